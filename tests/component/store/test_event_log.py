"""A log is read in the order of receipt, whatever its files go through meanwhile, and damage is told of."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from celeriac.core.coverage import Span
from celeriac.errors import CallerError, DiskError
from celeriac.model.events import Event, Gap
from celeriac.store import reading, stream
from celeriac.store.catalogue import mark, span_of
from celeriac.store.columns import SCHEMA, to_events
from celeriac.store.event_log import EventLog
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import Place
from celeriac.store.upkeep import merge_small
from celeriac.store.write_ahead import write_ahead_files
from tests.event_logs import (
    HOUR_AT,
    damage_at,
    failed,
    heartbeat,
    received,
    seal,
    started,
    succeeded,
    times,
    unsealed,
)

HOUR = 3600.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


class Meddling:
    """A place where something happens just before a certain file is read."""

    def __init__(self, place: Place, path: str, then: Callable[[], object]) -> None:
        self._place, self._path, self._then = place, path, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def read(self, name: str) -> bytes:
        if name == self._path:
            self._path = ""
            self._then()
        return self._place.read(name)


# -- order


def test_a_log_that_is_not_there_has_nothing(root: Path) -> None:
    log = EventLog(root)

    assert list(log.read()) == []
    assert (log.segments(), log.recorders(), log.last_received_at(), log.damage) == ([], [], None, [])
    assert not root.exists()


def test_events_come_back_as_they_were_recorded(root: Path) -> None:
    gap = Gap(timestamp=HOUR_AT, clock=0, hostname="r", since=1.0, until=2.0, reason="x", attempts=1)
    events: list[Event] = [received(at=1, args="(1,)"), started(at=2), succeeded(at=3, runtime=0.5), gap]
    seal(root, events)

    read = list(EventLog(root).read())

    assert read == events


def test_segments_are_read_by_their_numbers_and_then_what_is_not_sealed(root: Path) -> None:
    seal(root, [started(at=3), started(at=4)], first=3)
    seal(root, [started(at=1), started(at=2)], first=1)
    unsealed(root, [[started(at=5)], [started(at=6)]], first=5)
    unsealed(root, [[started(at=7)]], first=7)

    assert times(list(EventLog(root).read())) == [1, 2, 3, 4, 5, 6, 7]


def test_recorders_are_merged_by_time_of_receipt(root: Path) -> None:
    seal(root, [started(at=at) for at in (1, 4, 5)], recorder="a")
    seal(root, [started(at=at) for at in (2, 3, 9)], recorder="b")
    unsealed(root, [[started(at=6)], [started(at=7)]], recorder="a", first=4)

    assert times(list(EventLog(root).read())) == [1, 2, 3, 4, 5, 6, 7, 9]
    assert EventLog(root).recorders() == ["a", "b"]


def test_of_two_that_came_at_once_the_recorder_with_the_lesser_name_is_first(root: Path) -> None:
    for recorder in ("b", "a"):
        seal(root, [started(f"{recorder}1", at=1), started(f"{recorder}2", at=1)], recorder=recorder)
        seal(root, [started(f"{recorder}3", at=1)], recorder=recorder, first=3)

    uuids = [event["uuid"] for event in EventLog(root).read()]

    assert uuids == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_a_clock_that_was_set_back_does_not_change_the_order_of_a_recorder(root: Path) -> None:
    seal(root, [started("a1", at=50), started("a2", at=10), started("a3", at=11)], recorder="a")
    seal(root, [started("b1", at=20), started("b2", at=60)], recorder="b")

    uuids = [event["uuid"] for event in EventLog(root).read()]

    assert uuids == ["b1", "a1", "a2", "a3", "b2"]


def test_a_recorder_of_a_later_hour_is_not_opened_before_its_time(root: Path) -> None:
    seal(root, [started(at=1), started(at=2)], recorder="a")
    later = seal(root, [started(at=HOUR + 1)], recorder="b")
    log = EventLog(root)
    opened: list[str] = []
    log.place = Meddling(log.place, later.path, lambda: opened.append("b"))
    batches = log.batches()

    first = next(batches)

    assert (first.num_rows, opened) == (2, [])
    assert sum(batch.num_rows for batch in batches) == 1
    assert opened == ["b"]


def test_the_last_receipt_is_that_of_a_recorder_or_of_all(root: Path) -> None:
    seal(root, [started(at=1)], recorder="a")
    seal(root, [started(at=2)], recorder="b")
    unsealed(root, [[started(at=5)]], recorder="a", first=2)
    unsealed(root, [], recorder="a", first=3)
    log = EventLog(root)

    assert log.last_received_at("a") == log.last_received_at() == HOUR_AT + 5
    assert log.last_received_at("b") == HOUR_AT + 2
    assert log.last_received_at("c") is None


# -- selection


@pytest.fixture
def mixed(root: Path) -> EventLog:
    """A log with two tasks and a worker."""
    seal(
        root,
        [
            started("t1", at=0), received("t1", at=1, name="shop.pay"), started("t1", at=2),
            received("t2", at=3, name="mail.send"), started("t2", at=4),
            heartbeat(at=5, hostname="celery@db"), failed("t2", at=6), succeeded("t1", at=7),
        ],
    )  # fmt: skip
    return EventLog(root)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"types": ("task-started",)}, [0, 2, 4]),
        ({"types": ("task-f*", "worker-*")}, [5, 6]),
        ({"types": "worker-*"}, [5]),
        ({"types": ("nothing",)}, []),
        ({"worker": "*@db"}, [5]),
        ({"worker": "celery@web1", "types": ("*ed",)}, [0, 1, 2, 3, 4, 6, 7]),
        ({"task": "t2"}, [3, 4, 6]),
        ({"task": "shop.*"}, [1, 2, 7]),
        ({"task": "*"}, [1, 2, 3, 4, 6, 7]),
        ({"task": "shop.pay", "types": ("task-succeeded",)}, [7]),
        ({"since": HOUR_AT + 5}, [5, 6, 7]),
        ({"until": HOUR_AT + 1}, [0, 1]),
        ({"since": HOUR_AT + 2, "until": HOUR_AT + 3}, [2, 3]),
        ({"since": HOUR_AT + 3, "task": "mail.*"}, [3, 4, 6]),
    ],
)
def test_what_is_asked_for_is_read_and_nothing_else(
    mixed: EventLog, asked: dict[str, Any], expected: list[float]
) -> None:
    assert times(list(mixed.read(**asked))) == expected
    rows = [event for batch in mixed.batches(**asked) for event in to_events(batch)]
    assert times(rows) == expected


def test_the_name_of_a_task_is_known_across_files_and_recorders(root: Path) -> None:
    seal(root, [received("t1", at=1), started("t1", at=3)], recorder="a")
    seal(root, [started("t1", at=0), started("t1", at=2)], recorder="b")
    unsealed(root, [[succeeded("t1", at=4)], [succeeded("t2", at=5)]], recorder="a", first=3)

    assert times(list(EventLog(root).read(task="shop.*"))) == [1, 2, 3, 4]


def test_segments_of_another_time_are_not_even_opened(root: Path) -> None:
    early = seal(root, [started(at=1)])
    seal(root, [started(at=HOUR + 1)], first=2)
    damage_at(root / early.path, 40)
    log = EventLog(root)

    read = list(log.read(since=HOUR_AT + HOUR))

    assert (times(read), log.damage) == ([HOUR + 1], [])
    assert [segment.first for segment in log.segments(since=HOUR_AT + HOUR)] == [2]


def test_an_event_without_a_time_of_its_own_happened_when_it_was_received(root: Path) -> None:
    seal(root, [heartbeat(at=1), Gap(
        timestamp=0.0, clock=0, hostname="r", since=1.0, until=2.0, reason="x", attempts=1,
        local_received=HOUR_AT + 9,
    )])  # fmt: skip

    assert times(list(EventLog(root).read(since=HOUR_AT + 8, until=HOUR_AT + 9))) == [9]


def test_a_time_that_ends_before_it_begins_is_refused(root: Path) -> None:
    with pytest.raises(CallerError, match="swap"):
        EventLog(root).read(since=2.0, until=1.0)


def test_rows_have_all_columns_or_those_that_are_asked_for(mixed: EventLog) -> None:
    whole, part = next(mixed.batches()), next(mixed.batches(types=("task-failed",), columns=["uuid"]))

    assert whole.schema.equals(SCHEMA)
    assert part.to_pylist() == [{"uuid": "t2"}]
    with pytest.raises(CallerError, match="wrong"):
        mixed.batches(columns=["wrong"])


def test_encoded_columns_of_sealed_and_unsealed_rows_go_together(root: Path) -> None:
    seal(root, [started(at=1), heartbeat(at=4)], recorder="a")
    unsealed(root, [[failed(at=2)], [heartbeat(at=3)]], recorder="b")

    rows = [row for batch in EventLog(root).batches(dictionaries=["type"]) for row in batch.to_pylist()]

    assert [row["type"] for row in rows] == ["task-started", "task-failed", *["worker-heartbeat"] * 2]


def test_progress_is_told_in_rows_and_ends_with_all_of_them(root: Path) -> None:
    seal(root, [started(at=1), started(at=2)])
    unsealed(root, [[started(at=3)]], first=3)
    told: list[tuple[int, int]] = []

    list(EventLog(root).read(progress=lambda done, total: told.append((done, total))))

    assert told == [(2, 2), (3, 3)]


# -- what is read once, and what not at all


def test_what_another_segment_stands_for_is_not_read(root: Path) -> None:
    seal(root, [started("old", at=1)])
    seal(root, [started("old", at=2)], first=2)
    seal(root, [started("new", at=1), started("new", at=2)], generation=1)

    assert [event["uuid"] for event in EventLog(root).read()] == ["new", "new"]


def test_a_write_ahead_file_that_was_sealed_is_not_read_again(root: Path) -> None:
    unsealed(root, [[started(at=1), started(at=2)]])
    unsealed(root, [[started(at=3)]], first=3)
    seal(root, [started(at=1), started(at=2)])

    assert times(list(EventLog(root).read())) == [1, 2, 3]


def test_rows_that_two_segments_have_are_read_once(root: Path) -> None:
    seal(root, [started(at=at) for at in (1, 2, 3)])
    seal(root, [started(at=at) for at in (2, 3, 4)], first=2)

    assert times(list(EventLog(root).read())) == [1, 2, 3, 4]


def test_a_file_that_is_sealed_between_listing_and_reading_is_read_once(root: Path) -> None:
    events = [started(at=at) for at in range(6)]
    front = seal(root, events[:2])
    waiting = unsealed(root, [events[2:4]], first=3)
    unsealed(root, [events[4:]], first=5)
    log = EventLog(root)

    def sealed() -> None:
        seal(root, events[2:4], first=3)
        waiting.unlink()

    log.place = Meddling(log.place, front.path, sealed)

    assert times(list(log.read())) == times(events)
    assert log.damage == []


def test_segments_that_are_merged_between_listing_and_reading_are_read_once(root: Path) -> None:
    events = [started(at=at) for at in range(6)]
    old = [seal(root, events[at : at + 2], first=at + 1) for at in (0, 2, 4)]
    log = EventLog(root)

    def merged() -> None:
        seal(root, events, generation=1)
        for segment in old[1:]:
            (root / segment.path).unlink()

    log.place = Meddling(log.place, old[0].path, merged)

    assert times(list(log.read())) == times(events)
    assert log.damage == []


def test_what_retention_removes_meanwhile_is_no_damage_but_what_vanishes_is(root: Path) -> None:
    front, middle, _ = (seal(root, [started(at=at)], first=at) for at in (1, 2, 3))
    log = EventLog(root)
    place = log.place

    def removed() -> None:
        mark(place, [span_of(middle)], "nothing")
        (root / middle.path).unlink()

    log.place = Meddling(place, front.path, removed)
    assert (times(list(log.read())), log.damage) == ([1, 3], [])
    shutil.rmtree(root / "retained")
    middle = seal(root, [started(at=2)], first=2)
    log.place = Meddling(place, front.path, (root / middle.path).unlink)

    assert times(list(log.read())) == [1, 3]
    assert len(log.damage) == 1
    assert "2-2 of a are missing" in log.damage[0]


def test_who_reads_while_a_recorder_writes_and_segments_are_merged_finds_every_row_once(root: Path) -> None:
    log, recorded = EventLog(root), [0]
    hours = iter(range(1_000_000))

    def record() -> None:
        with LogWriter(
            log.place, spool=root / "spool", name="a", redact=lambda batch: batch,
            segment_bytes=1, segment_age=1e9, now=lambda: HOUR_AT + next(hours),
        ) as writer:  # fmt: skip
            for number in range(60):
                writer.append([started(at=number), started(at=number + 0.5)])
                writer.sync()
                recorded[0] += 2
                writer.tick()
                if number % 10 == 9:
                    merge_small(EventLog(root), now=HOUR_AT + 2 * HOUR)

    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(record)
        while True:
            is_last, least = recording.done(), recorded[0]
            numbers = [
                number
                for batch in log.batches(columns=["sequence"])
                for number in batch.column("sequence").to_pylist()
            ]

            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) >= least
            assert log.damage == []
            if is_last:
                break
        recording.result()

    assert len(numbers) == 120


# -- damage


def test_a_damaged_segment_is_told_of_and_the_rest_is_read(root: Path) -> None:
    seal(root, [started(at=1)])
    bad = seal(root, [started(at=2), started(at=3)], first=2)
    seal(root, [started(at=4)], first=4)
    damage_at(root / bad.path, 100)
    log = EventLog(root)

    read = list(log.read())

    assert times(read) == [1, 4]
    assert len(log.damage) == 1
    assert bad.path in log.damage[0]
    assert "2 events are skipped" in log.damage[0]


def test_damage_is_that_of_the_last_reading(root: Path) -> None:
    bad = seal(root, [started(at=2)])
    content = (root / bad.path).read_bytes()
    damage_at(root / bad.path, 100)
    log = EventLog(root)
    assert not list(log.read())
    assert log.damage
    (root / bad.path).write_bytes(content)

    assert len(list(log.read())) == 1
    assert log.damage == []


def test_a_segment_that_is_missing_is_told_of_where_it_matters(root: Path) -> None:
    seal(root, [started(at=1)])
    gone = seal(root, [started(at=2)], first=2)
    seal(root, [started(at=3)], first=3)
    seal(root, [started(at=HOUR)], first=4)
    (root / gone.path).unlink()
    log = EventLog(root)

    assert times(list(log.read())) == [1, 3, HOUR]
    assert [each for each in log.damage if "2-2 of a are missing (1)" in each] == log.damage != []
    assert times(list(log.read(since=HOUR_AT + HOUR))) == [HOUR]
    assert log.damage == []


def test_the_first_segments_of_a_recorder_are_missed_too(root: Path) -> None:
    seal(root, [started(at=5)], first=5)
    log = EventLog(root)

    list(log.read())

    assert "1-4 of a are missing (4)" in log.damage[0]


def test_what_went_on_purpose_is_not_missed(root: Path) -> None:
    seal(root, [started(at=5)], first=5)
    log = EventLog(root)
    mark(log.place, [span_of(log.segments()[0])._replace(first=1, last=2)], "nothing")
    mark(log.place, [span_of(log.segments()[0])._replace(first=3, last=4)], "nothing")

    list(log.read())

    assert log.damage == []
    assert [path.name for path in (root / "retained").iterdir()] == ["a.000000000001-000000000004.nothing"]


def test_damage_within_a_write_ahead_file_is_told_of_and_its_torn_end_is_not(root: Path) -> None:
    path = unsealed(root, [[started(at=1)], [started(at=2)], [started(at=3)]])
    damage_at(path, path.stat().st_size // 2)
    with path.open("ab") as file:
        file.write(b"\xff\xfeCW half of a fra")
    log = EventLog(root)

    assert times(list(log.read())) == [1, 3]
    assert len(log.damage) == 1
    assert "damaged at bytes" in log.damage[0]


def test_a_segment_that_the_system_does_not_let_us_read_is_told_of(root: Path) -> None:
    _, refused, _ = (seal(root, [started(at=at)], first=at) for at in (1, 2, 3))
    log = EventLog(root)

    def refuse() -> None:
        raise DiskError(f"{refused.path} cannot be read: Input/output error")

    log.place = Meddling(log.place, refused.path, refuse)

    assert times(list(log.read())) == [1, 3]
    assert log.damage == [f"{refused.path} cannot be read: Input/output error; its content is skipped"]


def test_a_segment_under_the_name_of_another_is_told_of(root: Path) -> None:
    one, other = seal(root, [started(at=1)]), seal(root, [started(at=2)], first=2)
    (root / one.path).write_bytes((root / other.path).read_bytes())
    log = EventLog(root)

    assert times(list(log.read())) == [2]
    assert len(log.damage) == 1
    assert one.path in log.damage[0]


# -- elsewhere


def test_a_log_in_an_object_store_is_read_with_the_spool_of_this_machine(tmp_path: Path) -> None:
    url = "memory://history/read"
    seal(url, [started(at=1), started(at=2)])
    unsealed(tmp_path, [[started(at=3)]], first=3)
    log = EventLog(url, spool=tmp_path / "spool")

    assert times(list(log.read())) == [1, 2, 3]
    assert log.damage == []
    assert times(list(EventLog(url).read())) == [1, 2]


def test_streams_of_nothing_but_unwanted_rows_come_to_an_end(root: Path) -> None:
    for recorder in ("a", "b", "c"):
        for at in range(3):
            seal(root, [started(at=at)], recorder=recorder, first=at + 1)

    assert list(EventLog(root).read(types=("worker-*",))) == []


def test_no_more_than_a_batch_of_each_recorder_waits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for recorder in ("a", "b"):
        for hour in range(4):
            events = [started(at=hour * HOUR + at) for at in range(50)]
            seal(root, events, recorder=recorder, first=1 + hour * 50)
    held: list[int] = []
    advance = stream.Stream.advance

    def counted(self: stream.Stream) -> None:
        advance(self)
        held.append(0 if self.head is None else self.head.batch.num_rows)

    monkeypatch.setattr(stream.Stream, "advance", counted)
    batches: Iterator[Any] = EventLog(root).batches()

    first = next(batches)

    assert sum(held) <= 100
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 400


def test_a_file_that_goes_on_and_is_ended_while_it_is_read_is_not_damaged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsealed(root, [[started(at=1)]])
    real = write_ahead_files

    def go_on(folder: Path) -> list[Path]:
        monkeypatch.setattr(reading, "write_ahead_files", real)
        unsealed(root, [[started(at=1)], [started(at=2)]])
        unsealed(root, [], first=3)
        return real(folder)

    monkeypatch.setattr(reading, "write_ahead_files", go_on)
    log = EventLog(root)

    found = times(list(log.read()))

    assert (found, log.damage) == ([1, 2], [])


def test_events_that_a_segment_lacks_are_told_of_unless_retention_took_them(root: Path) -> None:
    seal(root, [started(at=1), started(at=2)], last=5)
    log = EventLog(root)

    assert times(list(log.read())) == [1, 2]
    (told,) = log.damage
    assert "3 events of 1-5 of a are missing in events/" in told
    assert list(log.read(since=HOUR_AT + 9)) == []
    assert log.damage == []
    mark(log.place, [Span("a", 1, 5)], "failures")
    assert times(list(log.read())) == [1, 2]
    assert log.damage == []


def test_a_segment_with_fewer_rows_hides_none_of_its_generation(root: Path) -> None:
    seal(root, [started(at=1), started(at=2)], last=6)
    seal(root, [started(at=4), started(at=5), started(at=6)], first=4)

    assert times(list(EventLog(root).read())) == [1, 2, 4, 5, 6]
