"""A log is read while its segments are sealed, merged and removed: readers have each event once.

Before each step of a reader something may be done to the log.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any

import pytest

from celeriac.core.coverage import Span, is_within, join
from celeriac.model.events import Event, TaskEvent
from celeriac.node.replay import Replay
from celeriac.store.catalogue import marked
from celeriac.store.event_log import EventLog
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import Place
from celeriac.store.upkeep import apply_retention, export, merge_small, stat, verify
from tests.event_logs import HOUR_AT, failed, started
from tests.live import IS_LONG
from tests.recorded import settle

HOUR = 3600.0
SEEDS = range(100 if IS_LONG else 3)
#: Events in a group, of which the last is a failure; and the seconds between two events.
PER_GROUP, EVERY = 4, 300.0
#: All events, and those of failed tasks, are kept for so long.
KEEP, KEEP_FAILURES = 2 * HOUR, 5 * HOUR
#: Things that are done to the log during one reading, at most: it is to come to an end.
MOST = 8


class Scene:
    """A log in a folder or an object store, and what is done to it while it is read."""

    def __init__(self, url: str | Path, spool: Path, random: Random) -> None:
        self.url = url
        self.spool = spool
        self.random = random
        #: What was done.
        self.counts: Counter[str] = Counter()
        self.recorded = 0
        self._left = 0
        self.writer = LogWriter(
            self.log().place, spool=spool, name="a", redact=lambda batch: batch,
            segment_bytes=1, segment_age=1e9, now=lambda: self.now,
        )  # fmt: skip
        self.recorder = self.writer.open().recorder

    @property
    def now(self) -> float:
        """The time of the recorder, which goes on with each event."""
        return HOUR_AT + self.recorded * EVERY

    def log(self) -> EventLog:
        return EventLog(self.url, spool=self.spool)

    def busy_log(self) -> EventLog:
        """Return a log to which something is done while it is read."""
        log = self.log()
        log.place = Busy(log.place, self)
        self._left = MOST
        return log

    def act(self) -> None:
        """Do something to the log, or nothing."""
        if self._left and self.random.random() < 0.4:
            self._left -= 1
            self.random.choice([self.record, self.merge, self.remove])()

    def record(self) -> None:
        """Record a group of events, and have it sealed or not."""
        self.writer.append([self._next() for _ in range(PER_GROUP)])
        self.writer.sync()
        self.counts["recorded"] += PER_GROUP
        if self.random.random() < 0.8:
            self.writer.tick()
            settle(self.writer)

    def merge(self) -> None:
        merged = merge_small(self.log(), now=self.now)
        assert merged.damage == []
        self.counts["merged"] += merged.merged

    def remove(self) -> None:
        kept = apply_retention(self.log(), keep=KEEP, keep_failures=KEEP_FAILURES, now=self.now)
        assert kept.damage == []
        self.counts += Counter(dropped=kept.dropped, trimmed=kept.trimmed, removed=kept.rows_removed)

    def check(self, numbers: list[int], log: EventLog, *, at_least: int) -> None:
        """Check that each number came once and in order, or was removed on purpose."""
        assert all(one < other for one, other in pairwise(numbers)), "its rows are unordered or duplicated"
        assert log.damage == []
        removed = join(marked(self.log().place))
        ends = pairwise([0, *numbers, max(at_least + 1, *numbers, 0)])
        holes = [Span(self.recorder, one + 1, other - 1) for one, other in ends if other - one > 1]
        assert [hole for hole in holes if not is_within(hole, removed)] == []

    def _next(self) -> Event:
        self.recorded += 1
        make = started if self.recorded % PER_GROUP else failed
        return make(f"task-{self.recorded}", at=self.recorded * EVERY)


class Busy:
    """A place of a log to which something may be done before each call."""

    def __init__(self, place: Place, scene: Scene) -> None:
        self._place = place
        self._scene = scene

    def __getattr__(self, name: str) -> Any:
        if name in ("read", "sizes", "names"):
            self._scene.act()
        return getattr(self._place, name)


@pytest.fixture(params=["folder", "store"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return tmp_path / "log" if request.param == "folder" else f"memory://history/{token_hex(4)}"


@pytest.fixture(params=SEEDS)
def scene(request: pytest.FixtureRequest, url: str | Path, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(url, tmp_path / "spool", Random(request.param))
    with closing(scene.writer):
        for _ in range(15):
            scene.record()
        yield scene


def read_events(log: EventLog) -> list[int]:
    return [_number(event) for event in log.read()]


def replay(log: EventLog) -> list[int]:
    run = Replay(log, max_tasks_in_memory=10**6)
    numbers = [_number(event) for event in run]
    assert len(run.state.tasks) == len(numbers)
    return numbers


def read_sequence(log: EventLog) -> list[int]:
    batches = log.batches(columns=["sequence"])
    return [number for batch in batches for number in batch.column("sequence").to_pylist()]


def read_export(log: EventLog) -> list[int]:
    text = b"".join(export(log, "jsonl")).decode()
    return [int(json.loads(line)["uuid"].partition("-")[2]) for line in text.splitlines()]


def _number(event: Event) -> int:
    assert isinstance(event, TaskEvent)
    return int(event.uuid.partition("-")[2])


READERS: list[Callable[[EventLog], list[int]]] = [read_events, replay, read_sequence, read_export]


def test_a_reader_has_each_event_once_while_segments_are_merged_and_removed(scene: Scene) -> None:
    for reader in READERS:
        at_least, log = scene.recorded, scene.busy_log()
        scene.check(reader(log), log, at_least=at_least)
        assert stat(scene.busy_log()).recorders
        assert verify(scene.busy_log()).is_sound

    print(f"{dict(scene.counts)} during {3 * len(READERS)} readings")
    assert scene.counts["merged"] > 0
    assert scene.counts["removed"] > 0
    assert verify(scene.log()).is_sound
