"""How hard the property tests try: ``HYPOTHESIS_PROFILE`` is dev (the default), ci or long.

The first two try the same examples every time, so that a test that passed once passes
again; ``make soak`` looks for new ones.
"""

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.default_signals import default_signals as having_default_signals

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=100, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("ci", max_examples=100, derandomize=True, print_blob=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("long", max_examples=20_000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Collection makes many objects and frees few: the collector would look at all of them again and again.
gc.disable()

# So that a claim of the contract that is false shows its values, as one in a test does.
pytest.register_assert_rewrite("tests.arbiter_contract", "tests.contract")

# Real brokers, workers and a Spark, for the folders that want them.
pytest_plugins = [
    "tests.kit.late_collection",
    "tests.kit.schedule",
    "tests.kit.rabbit",
    "tests.live",
    "tests.kit.spark",
]


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Have signals that stop a program do so, for tests that send them to their own process."""
    with having_default_signals():
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests of one id: of those only one is run where files of tests are run side by side."""
    doubled = [name for name, count in Counter(item.nodeid for item in items).items() if count > 1]
    if doubled:
        raise pytest.UsageError(f"these ids are of more than one test: {', '.join(doubled)}")


def pytest_collection_finish() -> None:
    """Take the tests themselves out of the garbage collector's work: they stay until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Clean up after each file, so that no later one depends on which files ran before it in its process.

    Collecting garbage reports resources that were left open where they belong. kombu has one broker in memory
    for the whole process, where an exchange that one file declared would stay for all others.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        if memory := sys.modules.get("kombu.transport.memory"):
            memory.Transport.global_state.clear()
            memory.Channel.queues.clear()
