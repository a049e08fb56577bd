"""A recorder is started from a copy of a spool: no event is lost or counted twice, and it says so.

A spool that was restored from a backup is in ``tests/component/store/test_recovery.py``. On RabbitMQ a second
recorder of one name is refused, in ``tests/interop/test_recorder.py``.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from celeriac.model.events import Event
from celeriac.node.replay import Replay
from celeriac.store.event_log import EventLog
from celeriac.store.log_writer import LogWriter
from celeriac.store.upkeep import merge_small, verify
from tests.live import IS_LONG
from tests.recorded import NOON_AT, numbered, settle, writer_for
from tests.recorders import Publisher, RecorderProcess, read_lawful

SEEDS = range(200 if IS_LONG else 6)
YEAR = 365 * 86400.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


def crash(writer: LogWriter) -> None:
    """Leave everything as it is, as a process does that is killed."""
    settle(writer)
    writer.disown()


def copied(root: Path, spool: Path) -> Path:
    """Copy the spool of a log to another place, as a backup or a clone of a machine does."""
    shutil.copytree(root / "spool", spool)
    return spool


class Twins:
    """Two writers of one log; the spool of the second is a copy of that of the first."""

    def __init__(self, root: Path, spool: Path, random: Random) -> None:
        self._root = root
        self._random = random
        self._number = 0
        self._sent: list[Event] = []
        self._recorded: Counter[str] = Counter()
        before = writer_for(root, **self._options())
        before.open()
        self._record(before, self._events())
        if random.random() < 0.5:
            before.tick()
        crash(before) if random.random() < 0.7 else before.close()
        self.spools = (root / "spool", copied(root, spool))
        self.writers = [writer_for(root, spool=each, **self._options()) for each in self.spools]
        self.told = [sentence for writer in self.writers for sentence in writer.open().damage]

    def run(self, turns: int) -> None:
        """Have both record, the same events or each its own, and seal."""
        for _ in range(turns):
            kind, events = self._random.choice(["both", "both", "one", "tick"]), self._events()
            if kind == "both":
                for writer in self.writers:
                    self._record(writer, events)
            elif kind == "one":
                self._record(self._random.choice(self.writers), events)
            else:
                writer = self._random.choice(self.writers)
                writer.tick()
                settle(writer)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
            self.told += writer.damage

    @property
    def sent(self) -> set[str]:
        """The ids of all events that one of them has recorded."""
        return set(self._recorded)

    def _record(self, writer: LogWriter, events: list[Event]) -> None:
        writer.append(events)
        writer.sync()
        self._recorded.update(str(event["uuid"]) for event in events)

    def _events(self) -> list[Event]:
        first, self._number = self._number, self._number + self._random.randint(1, 5)
        return numbered(range(first, self._number), received_at=NOON_AT + first)

    def _options(self) -> dict[str, Any]:
        return {"segment_bytes": self._random.choice([1, 1 << 30])}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_recorders_with_one_spool_lose_and_double_nothing_in_a_shared_log(
    root: Path, tmp_path: Path, seed: int
) -> None:
    twins = Twins(root, tmp_path / "copy", Random(seed))
    twins.run(30)
    twins.close()

    log = EventLog(root)
    counted = Counter(str(event["uuid"]) for event in Replay(log))
    assert counted == Counter(twins.sent)
    assert log.damage == []
    assert verify(log).findings == []
    merge_small(log, now=NOON_AT + YEAR)
    assert Counter(str(event["uuid"]) for event in Replay(log)) == counted


def test_a_recorder_that_is_started_from_a_copy_says_so(root: Path, tmp_path: Path) -> None:
    with writer_for(root) as writer:
        writer.append(numbered(range(3)))
        writer.sync()
    spool = copied(root, tmp_path / "copy")

    with writer_for(root) as original, writer_for(tmp_path / "other", spool=spool) as copy:
        pass

    assert original.damage == []
    (told,) = copy.damage
    assert "is a copy" in told
    assert original._recorder != copy._recorder


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def copy_unless_removed(source: str, target: str) -> None:
    """Copy a file of a folder that changes meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def test_a_copy_of_a_running_recorder_on_redis_is_another_recorder(
    redis_url: str, root: Path, tmp_path: Path, ends: ExitStack
) -> None:
    other = tmp_path / "other"
    publisher = ends.enter_context(Publisher(redis_url))
    original = ends.enter_context(RecorderProcess(redis_url, root))
    original.wait_until_it_records()
    publisher.publish(20)
    original.wait_until_it_has_all_of(publisher)
    before = {*publisher.published}
    # It runs on, and removes what it has sealed.
    shutil.copytree(root, other, copy_function=copy_unless_removed)
    copy = ends.enter_context(RecorderProcess(redis_url, other))
    copy.wait_until_it_records()
    publisher.publish(20)
    for recorder in (original, copy):
        recorder.wait_until_it_has_all_of(publisher)
        recorder.end()

    assert read_lawful(root).ids == {*publisher.published}
    assert read_lawful(other).ids >= {*publisher.published} - before
    assert len(read_lawful(other).gaps) == 1
    assert "is a copy" in copy.errors
    # Whoever brings both logs together has each event, and counts it once.
    shutil.copytree(other / "events", root / "events", dirs_exist_ok=True)
    log = EventLog(root)
    tasks = Replay(log, max_tasks_in_memory=10**6).run().tasks
    assert {*tasks} == {*publisher.published}
    assert {task.deliveries for task in tasks.values()} == {1}
    assert log.damage == []
