"""Every kind of damage is found, told apart, and comes with what to do about it."""

import os
from pathlib import Path

import pytest

from celeriac.store import segment as segments
from celeriac.store.catalogue import mark, span_of
from celeriac.store.columns import SCHEMA
from celeriac.store.event_log import EventLog
from celeriac.store.segment import Segment
from celeriac.store.upkeep import stat, verify
from tests.event_logs import HOUR_AT, damage_at, seal, started, times, unsealed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def segment(root: Path) -> Segment:
    """The second of three segments."""
    _, middle, _ = (seal(root, [started(at=at), started(at=at + 1)], first=at) for at in (1, 3, 5))
    return middle


def kinds(log: EventLog) -> list[str]:
    return [finding.kind for finding in verify(log).findings]


def test_a_sound_log_is_counted_and_nothing_is_found(root: Path, segment: Segment) -> None:
    unsealed(root, [[started(at=7)]], first=7)
    told: list[tuple[int, int]] = []

    report = verify(EventLog(root), progress=lambda *each: told.append(each))

    assert (report.segments, report.unsealed, report.rows, report.findings) == (3, 1, 7, [])
    assert report.is_sound
    assert report.bytes > 3 * segment.size // 2
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.999])
def test_a_flipped_bit_is_found_wherever_it_is(root: Path, segment: Segment, share: float) -> None:
    damage_at(root / segment.path, int((segment.size - 1) * share))

    report = verify(EventLog(root))

    (found,) = report.findings
    assert found.where == segment.path
    assert found.kind in ("altered", "truncated")
    assert "restore it from a backup" in found.fix
    assert not report.is_sound


@pytest.mark.parametrize("lost", [1, 100])
def test_a_segment_that_was_cut_short_is_found(root: Path, segment: Segment, lost: int) -> None:
    os.truncate(root / segment.path, segment.size - lost)

    assert kinds(EventLog(root)) == ["truncated"]


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_zeros_in_place_of_a_segment_or_of_its_end_are_found(
    root: Path, segment: Segment, kept: float
) -> None:
    content = (root / segment.path).read_bytes()[: int(segment.size * kept)]
    (root / segment.path).write_bytes(content.ljust(segment.size, b"\0"))

    assert kinds(EventLog(root)) == ["zeroed"]


def test_an_empty_file_is_found(root: Path, segment: Segment) -> None:
    os.truncate(root / segment.path, 0)

    assert kinds(EventLog(root)) == ["zeroed"]


def test_a_segment_that_is_missing_is_found_by_its_numbers(root: Path, segment: Segment) -> None:
    (root / segment.path).unlink()

    (found,) = verify(EventLog(root)).findings

    assert (found.kind, found.where) == ("missing", "a")
    assert "3-4 of a" in found.what
    assert "backup" in found.fix


def test_numbers_that_are_missing_within_a_segment_are_found(root: Path) -> None:
    seal(root, [started(at=3)], first=3, last=5)
    log = EventLog(root)
    mark(log.place, [span_of(log.segments()[0])._replace(first=1, last=2)], "nothing")

    found = verify(log).findings

    assert [finding.kind for finding in found] == ["missing"]
    assert "4-5 of a" in found[0].what


@pytest.mark.usefixtures("segment")
def test_segments_that_overlap_are_found_and_cost_nothing(root: Path) -> None:
    seal(root, [started(at=4), started(at=5)], first=4)
    log = EventLog(root)

    report = verify(log)

    assert [finding.kind for finding in report.findings] == ["overlapping", "overlapping"]
    assert report.is_sound
    assert times(list(log.read())) == [1, 2, 3, 4, 5, 6]


def test_what_a_merge_left_and_what_is_none_of_ours_is_found(root: Path, segment: Segment) -> None:
    seal(root, [started(at=3), started(at=4)], first=3, generation=1)
    (root / "events" / "notes.txt").write_text("mine")

    report = verify(EventLog(root))

    assert [(each.kind, each.where) for each in report.findings] == [
        ("superseded", segment.path),
        ("foreign", "events/notes.txt"),
    ]
    assert report.is_sound


def test_a_segment_of_other_rows_than_its_name_says_is_found(root: Path) -> None:
    right = root / seal(root, [started(at=1)]).path
    wrong = right.with_name(right.name.replace(str(int(HOUR_AT + 1) * 1000), str(int(HOUR_AT) * 1000)))
    right.rename(wrong)

    assert kinds(EventLog(root)) == ["inconsistent"]


def test_damage_in_a_write_ahead_file_is_found(root: Path) -> None:
    path = unsealed(root, [[started(at=1)], [started(at=2)], [started(at=3)]])
    damage_at(path, path.stat().st_size // 2)

    report = verify(EventLog(root))

    assert [finding.kind for finding in report.findings] == ["altered"]
    assert report.rows == 2


def test_a_torn_end_is_found_once_nobody_writes_it_any_more(root: Path) -> None:
    path = unsealed(root, [[started(at=1)]])
    with path.open("ab") as file:
        file.write(b"\xff\xfeCW half of a fra")
    assert kinds(EventLog(root)) == []
    os.utime(path, (HOUR_AT, HOUR_AT))

    (found,) = verify(EventLog(root)).findings

    assert (found.kind, "18 bytes" in found.what) == ("torn", True)


def test_what_is_damaged_can_be_set_aside_and_is_missing_from_then_on(root: Path, segment: Segment) -> None:
    damage_at(root / segment.path, 40)
    log = EventLog(root)

    (found,) = verify(log, set_aside=True).findings

    assert f"damaged/{segment.path}" in found.fix
    assert (root / "damaged" / segment.path).exists()
    assert kinds(log) == ["missing"]
    assert times(list(log.read())) == [1, 2, 5, 6]
    assert stat(log).set_aside == 1


# -- how much there is


def test_the_size_of_a_log_is_told_by_recorder_and_in_all(root: Path, segment: Segment) -> None:
    seal(root, [started(at=9)], recorder="b", first=5)
    unsealed(root, [[started(at=7), started(at=8)]], first=7)
    log = EventLog(root)
    mark(log.place, [span_of(segment)._replace(recorder="b", first=1, last=3)], "nothing")

    told = stat(log)

    first, second = told.recorders
    assert (first.recorder, first.segments, first.rows, first.unsealed_rows) == ("a", 3, 6, 2)
    assert (first.first, first.last, first.begin_at, first.end_at) == (1, 8, HOUR_AT + 1, HOUR_AT + 8)
    assert (second.rows, second.unsealed_bytes) == (1, 0)
    assert (told.segments, told.rows, told.removed, told.missing) == (4, 9, 3, 1)
    assert (told.begin_at, told.end_at) == (HOUR_AT + 1, HOUR_AT + 9)
    assert told.bytes_per_event == sum(each.bytes for each in told.recorders) / 7


def test_an_empty_log_has_no_size(root: Path) -> None:
    told = stat(EventLog(root))

    assert (told.rows, told.bytes, told.bytes_per_event, told.begin_at, told.recorders) == (
        0,
        0,
        None,
        None,
        [],
    )


def test_a_segment_of_a_later_version_is_never_set_aside_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "checksummed"
    with monkeypatch.context() as patch:
        patch.setattr(segments, "SCHEMA", SCHEMA.with_metadata({"celeriac.schema": "2"}))
        made = seal(root, [started()])

    (found,) = verify(EventLog(root), set_aside=True).findings

    assert (found.kind, found.fix) == ("unreadable", "upgrade Celeriac")
    assert (root / made.path).exists()


def test_a_damaged_segment_is_set_aside_wherever_it_is(tmp_path: Path) -> None:
    root = tmp_path / "upgrade Celeriac"
    made = seal(root, [started()])
    damage_at(root / made.path, 100)

    (found,) = verify(EventLog(root), set_aside=True).findings

    assert found.kind == "altered"
    assert not (root / made.path).exists()
