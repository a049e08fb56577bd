"""Distribution of test files over the processes of a parallel run, longest first.

A file stays in one process, so that its fixtures are made once; files that share something expensive (a
Java with Spark, a RabbitMQ that tests kill) stay together. Processes take the longest file that is left, so
that none begins a file of a minute when the others are done. ``make durations`` measures the files again; one
without a measurement counts as short. The tests with Spark are the longest group by far: all others run at a
lower priority, so that Spark does not end minutes after them.
"""

import json
import os
import re
from collections import Counter, defaultdict
from functools import cache
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.kit.summary import DURATIONS

#: The files of this folder share a process, and so does this file: a second Spark costs more than it gains.
_SPARK: Final = ("tests/spark/", "tests/conformance/test_history.py")
#: This one starts processes of its own, which is nothing to share.
_APART: Final = "tests/spark/test_dead_java.py"
#: The files of a folder that name this fixture share a process: its RabbitMQ takes five CPU seconds to start.
_HURT_RABBIT: Final = re.compile("hurt_rabbit|rabbit_to_hurt")
#: Files below this many seconds are not worth a line.
_LEAST_SECONDS: Final = 1.0
#: How far the priority of a process is lowered by its first test without Spark: its weight is a third then.
_NICENESS: Final = 5
_LOWERED: Final = pytest.StashKey[bool]()


def group_of(nodeid: str) -> str:
    """Return the group of a test: tests of one group run in one process, in order."""
    file = nodeid.partition("::")[0]
    if file in _files_that_hurt_rabbit():
        return f"{file.rpartition('/')[0]}: {_HURT_RABBIT.pattern}"
    return _SPARK[0] if file.startswith(_SPARK) and file != _APART else file


@cache
def _files_that_hurt_rabbit() -> frozenset[str]:
    tests = DURATIONS.parents[1]
    return frozenset(
        path.relative_to(tests.parent).as_posix()
        for path in tests.rglob("test_*.py")
        if _HURT_RABBIT.search(path.read_text())
    )


@cache
def read_durations() -> Counter[str]:
    """Return the measured seconds of each group of tests."""
    seconds: Counter[str] = Counter()
    for file, duration in json.loads(DURATIONS.read_text()).items():
        seconds[group_of(file)] += duration
    return seconds


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process the longest group that is left."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the item whose process ended under it; xdist would run it again, without end."""
        units = self.assigned_work[node].values()
        crashed = [(unit, item) for unit in units for item, is_finished in unit.items() if not is_finished][
            :1
        ]
        for unit, item in crashed:
            unit[item] = True
        super().remove_node(node)
        return crashed[0][1] if crashed else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures."""
    parser.addoption(
        "--write-durations", action="store_true", help=f"Write the seconds of each file to {DURATIONS.name}."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the queue, which is ours, and measure where that is wanted."""
    config.option.loadscopereorder = False
    if config.option.write_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch(), "celeriac-durations")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst:
    """Schedule by measured durations, whatever ``--dist`` says."""
    return LongestFirst(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest groups first in each process of a parallel run; their own order stays."""
    if hasattr(config, "workerinput"):
        durations = read_durations()
        items.sort(key=lambda item: -durations[group_of(item.nodeid)])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of a process of a parallel run, and of all that it starts, unless it tests Spark."""
    stash, is_parallel = item.config.stash, hasattr(item.config, "workerinput")
    if is_parallel and group_of(item.nodeid) != _SPARK[0] and not stash.get(_LOWERED, False):
        stash[_LOWERED] = True
        os.nice(_NICENESS)


class _Stopwatch:
    """Adds up the durations of the tests of each file."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        lines = {
            file: round(seconds)
            for file, seconds in sorted(self._seconds.items())
            if seconds >= _LEAST_SECONDS
        }
        DURATIONS.write_text(json.dumps(lines, indent=1) + "\n")
