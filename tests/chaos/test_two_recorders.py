"""Two recorders on Redis, both killed at times: every event that one misses lies in a gap that it recorded.

``HYPOTHESIS_PROFILE=long`` kills at every point, several times.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from time import time

import pytest

from celeriac.programs.process import wait_until
from tests.live import IS_LONG
from tests.program import CELERIAC, own_environment
from tests.recorders import (
    PATIENCE,
    Publisher,
    RecorderProcess,
    missed_outside_gaps,
    read_lawful,
    read_shares,
)

#: The first time that a recorder passes these after its start.
POINTS = [
    *("append-before-write", "append-after-write", "sync-before-fsync", "sync-after-fsync"),
    *("roll-before-create", "roll-after-create", "seal-before-write", "seal-before-remove"),
]
#: Events in a message.
PER_MESSAGE = 5
KILLED_AT = POINTS * 5 if IS_LONG else POINTS[::3]


class Pair:
    """Two recorders of one log; each is a process that is started again and again."""

    def __init__(self, url: str, log: Path, ends: ExitStack) -> None:
        self._url = url
        self._log = log
        self._ends = ends
        self._recorders: dict[str, RecorderProcess] = {}

    def start(self, name: str, *, point: str = "") -> RecorderProcess:
        recorder = RecorderProcess(self._url, self._log, name=name, point=point)
        self._recorders[name] = self._ends.enter_context(recorder)
        return recorder

    def kill(self, name: str) -> None:
        self._recorders[name].kill()

    def wait_until_it_records(self, name: str) -> None:
        """Wait until a recorder has recorded an event of which it was told after this call."""
        is_recorded = partial(_has_recorded_since, self._recorders[name], time())
        assert wait_until(is_recorded, patience=PATIENCE), self._recorders[name].errors

    def end(self, publisher: Publisher) -> None:
        for recorder in self._recorders.values():
            recorder.wait_until_it_has_all_of(publisher)
            recorder.end()


def _has_recorded_since(recorder: RecorderProcess, timestamp: float) -> bool:
    return (recorder.told.get("last_event_at") or 0.0) >= timestamp


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def pair(redis_url: str, log: Path) -> Iterator[Pair]:
    with ExitStack() as ends:
        yield Pair(redis_url, log, ends)


def test_every_event_that_two_recorders_on_redis_miss_lies_in_a_gap_of_each(
    redis_url: str, log: Path, pair: Pair
) -> None:
    with Publisher(redis_url, per_message=PER_MESSAGE) as publisher:
        with publisher.steadily():
            for name in ("left", "right"):
                pair.start(name)
                pair.wait_until_it_records(name)
            for point, (name, other) in zip(KILLED_AT, cycle([("left", "right"), ("right", "left")])):
                pair.kill(name)
                pair.kill(other)
                _wait_until_more_is_published(publisher)
                pair.start(name, point=point).wait_until_it_is_dead(point)
                for each in (name, other):
                    pair.start(each)
                for each in (name, other):
                    pair.wait_until_it_records(each)
            pair.kill("left")
            _record_by_command(redis_url, log, "left")
            pair.start("left")
            pair.wait_until_it_records("left")
        pair.end(publisher)

    read_lawful(log)
    shares = read_shares(log)
    assert len(shares) == 2
    for recorder, share in shares.items():
        missed, uncovered = missed_outside_gaps(publisher, share)
        assert len(missed) >= len(KILLED_AT) * PER_MESSAGE, f"{recorder} was killed, and missed nothing"
        assert not uncovered, f"{recorder} missed {len(uncovered)} of {len(missed)} events in no gap"


def _wait_until_more_is_published(publisher: Publisher) -> None:
    """Wait for two messages: the first may have been on its way before."""
    enough = len(publisher.published) + 2 * PER_MESSAGE
    assert wait_until(lambda: len(publisher.published) >= enough, patience=PATIENCE)


def _record_by_command(url: str, log: Path, name: str) -> None:
    """Run ``celeriac record`` until it has recorded an event, and kill it."""
    command = [*CELERIAC, "record", str(log), "--name", name, "--broker", url]
    with subprocess.Popen(command, env=own_environment(), stderr=subprocess.PIPE, text=True) as recorder:  # noqa: S603
        has_recorded = wait_until(
            lambda: _last_event_at(log, name, recorder.pid) is not None or recorder.poll() is not None,
            patience=PATIENCE,
        )
        recorder.kill()
        _, said = recorder.communicate()
    assert has_recorded, said
    assert _last_event_at(log, name, recorder.pid) is not None, said


def _last_event_at(log: Path, name: str, pid: int) -> float | None:
    """Return when the last event was received that a process has recorded, by its status."""
    status = json.loads((log / "spool" / name / "status.json").read_text()) if _has_status(log, name) else {}
    return status.get("last_event_at") if status.get("pid") == pid else None


def _has_status(log: Path, name: str) -> bool:
    return (log / "spool" / name / "status.json").exists()
