"""Small segments become large ones: no row is lost or twice at any moment, also if it is never finished."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from celeriac.errors import DiskError
from celeriac.store.event_log import EventLog
from celeriac.store.place import Place, place_for
from celeriac.store.segment import Segment
from celeriac.store.upkeep import merge_small, verify
from tests.event_logs import HOUR_AT, damage_at, seal, started, times

HOUR = 3600.0
LATER = HOUR_AT + 2 * HOUR


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


class Killed(BaseException):
    """The process ended here."""


class Deadly:
    """A place whose user dies at the given call of it, counted over all that change something."""

    def __init__(self, place: Place, calls_left: int) -> None:
        self._place, self.calls_left = place, calls_left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._place, name)
        return self._counted(found) if name in ("write", "remove") else found

    def _counted(self, found: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            if not self.calls_left:
                raise Killed
            self.calls_left -= 1
            return found(*given)

        return call


def twelve(root: Path, recorder: str = "a") -> list[float]:
    """Make six segments of two rows in one hour, and return when the rows were received."""
    for number in range(6):
        events = [started(at=number * 300 + step) for step in (0, 1)]
        seal(root, events, recorder=recorder, first=1 + 2 * number)
    return [number * 300.0 + step for number in range(6) for step in (0, 1)]


def test_the_segments_of_an_hour_become_one_with_the_same_rows(root: Path) -> None:
    expected = twelve(root)
    log = EventLog(root)
    told: list[tuple[int, int]] = []

    report = merge_small(log, now=LATER, progress=lambda done, total: told.append((done, total)))

    assert (report.merged, report.made, report.swept, report.damage) == (6, 1, 0, [])
    assert report.bytes_after < report.bytes_before
    assert told == [(6, 6)]
    (one,) = log.segments()
    assert (one.first, one.last, one.generation, one.rows) == (1, 12, 1, 12)
    assert times(list(log.read())) == expected
    assert verify(log).findings == []


def test_merged_segments_keep_to_the_target(root: Path) -> None:
    expected = twelve(root)
    log = EventLog(root)
    size = log.segments()[0].size

    merge_small(log, now=LATER, target_bytes=2 * size + size // 2)

    assert [segment.rows for segment in log.segments()] == [4, 4, 4]
    assert times(list(log.read())) == expected


def test_merging_again_finds_nothing_to_do(root: Path) -> None:
    twelve(root)
    log = EventLog(root)
    merge_small(log, now=LATER)
    before = log.segments()

    report = merge_small(log, now=LATER)

    assert (report.merged, report.made) == (0, 0)
    assert log.segments() == before


def test_an_hour_that_is_not_over_is_left(root: Path) -> None:
    twelve(root)
    log = EventLog(root)

    assert merge_small(log, now=HOUR_AT + HOUR - 1).made == 0
    assert len(log.segments()) == 6


@pytest.mark.parametrize("calls", range(8))
def test_whenever_a_merge_is_killed_the_log_has_the_same_rows_and_the_next_one_ends_it(
    root: Path, calls: int
) -> None:
    expected = twelve(root)
    log = EventLog(root)
    log.place = Deadly(log.place, calls)
    if calls < 7:
        with pytest.raises(Killed):
            merge_small(log, now=LATER)
    else:
        merge_small(log, now=LATER)
    fresh = EventLog(root)

    assert times(list(fresh.read())) == expected
    assert verify(fresh).is_sound
    merge_small(fresh, now=LATER)
    assert times(list(fresh.read())) == expected
    assert len(list((root / "events").rglob("*.parquet"))) == 1


def test_a_damaged_segment_stops_the_merge_of_its_neighbours_alone(root: Path) -> None:
    twelve(root, "a")
    twelve(root, "b")
    log = EventLog(root)
    damage_at(root / log.segments()[2].path, 50)

    report = merge_small(log, now=LATER)

    assert (report.merged, report.made) == (6, 1)
    assert len(report.damage) == 1
    assert "are not compacted" in report.damage[0]
    assert len([segment for segment in log.segments() if segment.recorder == "a"]) == 6


def test_what_a_damaged_segment_was_made_of_is_not_swept(root: Path) -> None:
    old = [seal(root, [started(at=at)], first=at) for at in (1, 2)]
    new = seal(root, [started(at=1), started(at=2)], generation=1)
    damage_at(root / new.path, 50)
    log = EventLog(root)

    report = merge_small(log, now=LATER)

    assert report.swept == 0
    assert "still exist" in report.damage[0]
    assert verify(log, set_aside=True).findings[0].kind == "altered"
    assert log.segments() == old
    assert times(list(log.read())) == [1, 2]


def test_a_second_one_who_merges_is_refused(root: Path) -> None:
    twelve(root)
    lock = os.open(root / "upkeep.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)

    with pytest.raises(DiskError, match="Try again"):
        merge_small(EventLog(root), now=LATER)

    os.close(lock)
    assert merge_small(EventLog(root), now=LATER).made == 1


def test_a_log_that_is_not_there_is_not_made(root: Path) -> None:
    assert merge_small(EventLog(root), now=LATER).made == 0
    assert not root.exists()


def test_segments_in_an_object_store_are_merged_too() -> None:
    url = "memory://history/merge"
    for at in (1, 2, 3):
        seal(url, [started(at=at)], first=at)
    log = EventLog(url)

    assert merge_small(log, now=LATER).merged == 3
    assert times(list(log.read())) == [1, 2, 3]
    assert len(log.segments()) == 1


def with_a_new_column(root: Path, segment: Segment) -> Segment:
    """Make a segment one that a later version wrote, with a column more."""
    place = place_for(root)
    table = pq.ParquetFile(pa.BufferReader(place.read(segment.path))).read()
    table = table.append_column("added_later", pa.array(["precious"] * table.num_rows))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue()
    newer = segment._replace(crc=crc32(content), size=content.size)
    newer = newer._replace(path=f"{segment.path.rpartition('/')[0]}/{newer.name}")
    place.write(newer.path, content)
    place.remove(segment.path)
    return newer


def test_segments_with_columns_that_are_not_known_are_read_but_not_merged(root: Path) -> None:
    made = [seal(root, [started(at=number)], first=number) for number in (1, 2)]
    newer = [with_a_new_column(root, segment) for segment in made]
    log = EventLog(root)

    report = merge_small(log, now=HOUR_AT + 1e6)

    assert (report.merged, log.segments()) == (0, newer)
    assert "added_later, which would be lost: upgrade Celeriac" in report.damage[0]
    assert (len(list(log.read())), log.damage) == (2, [])
