"""What is recorded stays recorded, once: through crashes, full disks, damage, clocks and forks."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.programs.process import wait_until
from celeriac.store.local_place import LocalPlace
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import place_for
from celeriac.store.segment import segments_in
from tests.program import run_program
from tests.recorded import (
    NOON_AT,
    ids_in,
    numbered,
    recorded_in,
    settle,
    unchanged,
    write_ahead_in,
    writer_for,
)

PROJECT = Path(__file__).parents[3]
POINTS = (
    "append-before-write",
    "append-after-write",
    "sync-before-fsync",
    "sync-after-fsync",
    "roll-before-create",
    "roll-after-create",
    "seal-before-write",
    "seal-after-write",
    "seal-before-fsync",
    "seal-after-fsync",
    "seal-before-rename",
    "seal-after-rename",
    "seal-before-remove",
)
TINY: dict[str, Any] = {"segment_bytes": 1}


class FicklePlace(LocalPlace):
    """A place in a folder that can be away, or slow."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.is_away = False
        self.may_go_on = Flag()
        self.may_go_on.set()
        self.writes = 0

    def write(self, name: str, content: Any) -> None:
        assert self.may_go_on.wait(60)
        self.writes += 1
        if self.is_away:
            raise DiskError(f"{name} cannot be written: the place is away")
        super().write(name, content)


def append_groups(told: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run ``tests.peers.appending`` in a process of its own that has read the code already."""
    call = f"from tests.peers.appending import append_groups; append_groups({told!r}); raise SystemExit"
    return run_program(before=call, cwd=PROJECT)


def ids(numbers: range) -> list[str]:
    return [str(number) for number in numbers]


def record(writer: LogWriter, numbers: range) -> None:
    writer.append(numbered(numbers))
    writer.sync()


def crash(writer: LogWriter) -> None:
    """Leave everything as it is, as a process does that is killed."""
    settle(writer)
    writer.disown()


def refuse(code: int) -> Callable[..., int]:
    def fail(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def fickle(root: Path) -> Iterator[FicklePlace]:
    place = FicklePlace(root)
    yield place
    place.may_go_on.set()


# -- what is recorded


def test_events_are_recorded_sealed_and_numbered_from_one(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(5))
        record(writer, range(5, 7))
        assert (writer.recorded, writer.sealed, writer.pending_seals) == (7, 0, 0)

    assert recorded_in(root) == [(n + 1, str(n)) for n in range(7)]
    (segment,) = segments_in(place_for(root))
    assert (segment.first, segment.last, segment.rows, segment.generation) == (1, 7, 7, 0)
    assert writer.sealed == 1


def test_one_who_opens_after_a_close_goes_on_behind_it(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(5))

    again = writer_for(root)
    opened = again.open()
    record(again, range(5, 6))
    again.close()

    assert (opened.next_sequence, opened.last_received_at, opened.damage) == (6, NOON_AT, ())
    assert [segment.recorder for segment in segments_in(place_for(root))] == [opened.recorder] * 2
    assert ids_in(root) == ids(range(6))


def test_at_the_very_first_there_is_nothing(root: Path) -> None:
    writer = writer_for(root)

    opened = writer.open()
    writer.close()

    assert (opened.next_sequence, opened.last_received_at, opened.damage) == (1, None, ())
    assert opened.recorder.startswith("one-")
    assert [path.name for path in write_ahead_in(root)] == ["000000000001.wal"]
    assert segments_in(place_for(root)) == []


def test_opening_and_closing_leaves_one_file_however_often(root: Path) -> None:
    for _ in range(3):
        writer_for(root).__enter__().close()

    assert [path.name for path in write_ahead_in(root)] == ["000000000001.wal"]


# -- files that are removed, or hidden, while they are written


@pytest.mark.parametrize("removed", ["", "spool", "spool/one", "spool/one/000000000001.wal"])
def test_events_are_not_recorded_in_a_file_that_was_removed(root: Path, removed: str) -> None:
    with writer_for(root) as writer:
        record(writer, range(5))
        gone = root / removed
        gone.unlink() if gone.is_file() else shutil.rmtree(gone)

        writer.append(numbered(range(5, 8)))
        with pytest.raises(DiskError, match="cannot be kept: removed, or hidden by a mount"):
            writer.sync()
        recorded, lost_since = writer.recorded, writer.take_lost()
        record(writer, range(5, 8))

        assert (recorded, lost_since) == (5, None)
        assert (writer.recorded, writer.take_lost(), writer.take_lost()) == (8, NOON_AT, None)
    assert ids_in(root) == ids(range(5, 8))


def test_a_removed_file_is_noticed_also_when_another_is_due(root: Path) -> None:
    with writer_for(root, segment_bytes=1) as writer:
        record(writer, range(5))
        shutil.rmtree(root)

        with pytest.raises(DiskError, match="cannot be kept"):
            writer.tick()
        record(writer, range(5, 8))

        assert writer.take_lost() == NOON_AT
    assert ids_in(root) == ids(range(5, 8))


def test_a_folder_that_cannot_be_made_again_is_tried_until_it_can(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(5))
        shutil.rmtree(root)
        root.write_text("in the way")

        for _ in range(3):
            with pytest.raises(DiskError):
                record(writer, range(5, 8))
        root.unlink()
        record(writer, range(5, 8))

        assert writer.take_lost() == NOON_AT
    assert ids_in(root) == ids(range(5, 8))


def test_a_folder_that_returns_with_its_file_before_another_could_be_made_is_used_again(root: Path) -> None:
    with writer_for(root, segment_bytes=1) as writer:
        record(writer, range(5))
        away = root.rename(root.with_name("away"))
        root.write_text("in the way")
        for _ in range(2):
            with pytest.raises(DiskError):
                record(writer, range(5, 8))
        root.unlink()
        away.rename(root)

        with pytest.raises(DiskError, match="cannot be kept"):
            writer.tick()
        record(writer, range(5, 8))

    assert ids_in(root) == ids(range(8))


def test_lost_events_of_an_earlier_run_are_lost_since_their_file_was_made(root: Path) -> None:
    def fail_to_seal(point: str) -> None:
        if point == "seal-before-remove":
            raise DiskError("the store is away")

    earlier = writer_for(root)
    earlier.open()
    record(earlier, range(3))
    crash(earlier)
    with writer_for(root, now=lambda: NOON_AT + 60, at=fail_to_seal) as writer:
        record(writer, range(3, 5))
        shutil.rmtree(root / "spool")
        with pytest.raises(DiskError, match="cannot be kept"):
            record(writer, range(5, 8))
        record(writer, range(5, 8))

        assert writer.take_lost() == NOON_AT
        with suppress(DiskError):
            writer.close()


def test_a_spool_that_another_recorder_took_meanwhile_stays_with_it(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(5))
        shutil.rmtree(root)
        with writer_for(root) as other:
            record(other, range(5, 7))
            with pytest.raises(DiskError, match="cannot be kept"):
                record(writer, range(7, 9))
            with pytest.raises(ImproperlyConfigured, match="is already running"):
                record(writer, range(7, 9))
        record(writer, range(7, 9))

    assert ids_in(root) == ids(range(5, 9))


def test_what_is_appended_was_redacted(root: Path) -> None:
    seen: list[int] = []

    def redact(batch: Any) -> Any:
        seen.append(batch.num_rows)
        return batch.slice(0)

    writer = LogWriter(
        place_for(root),
        spool=root / "spool",
        name="one",
        redact=redact,
        segment_bytes=1 << 20,
        segment_age=60,
    )
    with writer:
        writer.append(numbered(range(3)))

    assert seen == [3]


def test_what_cannot_be_redacted_is_not_written(root: Path) -> None:
    def redact(_: Any) -> Any:
        raise ValueError("no")

    writer = LogWriter(
        place_for(root),
        spool=root / "spool",
        name="one",
        redact=redact,
        segment_bytes=1 << 20,
        segment_age=60,
    )
    with writer:
        with pytest.raises(ValueError, match="no"):
            writer.append(numbered(range(3)))
        assert writer.unsynced == 0

    assert ids_in(root) == []


def test_a_writer_that_is_not_open_says_so(root: Path) -> None:
    writer = writer_for(root)

    uses: list[Callable[[], None]] = [partial(writer.append, numbered([1])), writer.sync, writer.tick]
    for use in uses:
        with pytest.raises(CallerError, match="not open"):
            use()
    writer.close()
    with writer, pytest.raises(CallerError, match="the writer is already open"):
        writer.open()


def test_threads_that_append_at_once_get_numbers_of_their_own(root: Path) -> None:
    def run(start: int) -> None:
        for number in range(start, start + 30):
            record(writer, range(number, number + 1))
            writer.tick()

    with writer_for(root, segment_bytes=30_000) as writer:
        threads = [Thread(target=run, args=(start,)) for start in (0, 30, 60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(map(int, ids_in(root))) == list(range(90))


# -- when files are sealed


def test_a_file_is_sealed_by_its_size(root: Path) -> None:
    with writer_for(root, segment_bytes=12_000) as writer:
        record(writer, range(1))
        writer.tick()
        assert writer.sealed + writer.pending_seals == 0
        record(writer, range(1, 60))
        writer.tick()
        assert wait_until(lambda: writer.sealed == 1, patience=60)

    assert ids_in(root) == ids(range(60))


@pytest.mark.parametrize("step", [60.0, -1.0, -3600.0, 3600.0])
def test_a_file_is_sealed_by_its_age_and_when_the_clock_was_set(root: Path, step: float) -> None:
    now_at = NOON_AT + 1800
    with writer_for(root, segment_age=60.0, now=lambda: now_at) as writer:
        record(writer, range(3))
        now_at += 59.0
        writer.tick()
        assert writer.sealed + writer.pending_seals == 0

        now_at += step - 59.0
        writer.tick()

        assert wait_until(lambda: writer.sealed == 1, patience=60)
        record(writer, range(3, 4))
    assert ids_in(root) == ids(range(4))


def test_a_file_is_sealed_when_the_hour_ends(root: Path) -> None:
    now_at = NOON_AT + 3590
    with writer_for(root, segment_age=1e6, now=lambda: now_at) as writer:
        record(writer, range(3))
        now_at += 9
        writer.tick()
        assert writer.sealed + writer.pending_seals == 0
        now_at += 1
        writer.tick()
        assert wait_until(lambda: writer.sealed == 1, patience=60)


def test_nothing_is_sealed_while_there_is_nothing(root: Path) -> None:
    now_at = NOON_AT
    with writer_for(root, segment_age=1.0, now=lambda: now_at) as writer:
        now_at += 1e6
        writer.tick()

        assert writer.pending_seals == 0
    assert segments_in(place_for(root)) == []


def test_events_that_were_not_synced_are_not_sealed_before_they_are(root: Path) -> None:
    with writer_for(root, **TINY) as writer:
        writer.append(numbered(range(3)))
        writer.tick()
        assert (writer.sealed + writer.pending_seals, writer.unsynced) == (0, 3)

        writer.sync()

        assert wait_until(lambda: writer.sealed == 1, patience=60)


# -- sealing that fails, or is slow


def test_what_cannot_be_sealed_is_told_and_tried_again(root: Path, fickle: FicklePlace) -> None:
    with writer_for(root, fickle, **TINY) as writer:
        fickle.is_away = True
        record(writer, range(3))
        tick_before_it_fails(writer, fickle)
        with pytest.raises(DiskError, match="the place is away"):
            writer.tick()
        # What is recorded meanwhile is recorded.
        record(writer, range(3, 5))
        assert ids_in(root) == ids(range(5))

        fickle.is_away = False
        assert wait_until(lambda: _ticked(writer) and writer.sealed == 2, patience=60)

    assert ids_in(root) == ids(range(5))
    assert len(write_ahead_in(root)) == 1


def _ticked(writer: LogWriter) -> bool:
    try:
        writer.tick()
    except DiskError:
        return False
    return True


def tick_before_it_fails(writer: LogWriter, fickle: FicklePlace) -> None:
    """Start to seal, and wait for the error, which the next tick raises."""
    fickle.may_go_on.clear()
    writer.tick()
    fickle.may_go_on.set()
    settle(writer)


def test_a_place_that_is_away_for_long_stops_nobody(root: Path, fickle: FicklePlace) -> None:
    fickle.is_away = True
    writer = writer_for(root, fickle, **TINY)
    writer.open()
    for number in range(8):
        record(writer, range(number, number + 1))
        _ticked(writer)
    settle(writer)
    assert writer.pending_seals == 8

    with pytest.raises(DiskError, match="the place is away"):
        writer.close()

    assert ids_in(root) == ids(range(8))
    fickle.is_away = False
    with writer_for(root, fickle):
        pass
    assert ids_in(root) == ids(range(8))
    assert (len(write_ahead_in(root)), len(segments_in(place_for(root)))) == (1, 8)


def test_where_sealing_is_slow_who_writes_waits(root: Path, fickle: FicklePlace) -> None:
    fickle.may_go_on.clear()
    done: list[int] = []

    def run() -> None:
        for number in range(4):
            record(writer, range(number, number + 1))
            writer.tick()
            done.append(number)

    with writer_for(root, fickle, **TINY) as writer:
        thread = Thread(target=run)
        thread.start()
        # The third file finds two that wait.
        assert wait_until(lambda: writer.recorded == 3 and writer._sealer._changed._waiters, patience=60)  # type: ignore[attr-defined]
        assert (writer.pending_seals, done) == (2, [0, 1])

        fickle.may_go_on.set()
        thread.join()

    assert ids_in(root) == ids(range(4))


def test_an_error_of_another_kind_is_told_too(
    root: Path, fickle: FicklePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("odd")

    writer = writer_for(root, fickle, **TINY)
    writer.open()
    record(writer, range(3))
    with monkeypatch.context() as patch:
        patch.setattr(fickle, "write", fail)
        with pytest.raises(DiskError, match="cannot be sealed, retrying: ZeroDivisionError: odd"):
            writer.close()

    assert ids_in(root) == ids(range(3))


# -- crashes


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_loses_nothing_and_doubles_nothing(root: Path, point: str) -> None:
    acknowledged: list[str] = []
    visits = (1, 3)
    for visit in visits:
        told = {
            "root": str(root),
            "run": f"{visit}-",
            "groups": 8,
            "size": 20,
            "point": point,
            "visit": visit,
        }
        run = append_groups(told)
        assert (run.returncode, run.stderr) == (-9, "")
        acknowledged += run.stdout.split()

    with writer_for(root) as writer:
        assert writer.damage == []
    stored = ids_in(root)

    assert [each for each in acknowledged if each not in stored] == []
    assert len(set(stored)) == len(stored)
    assert len(write_ahead_in(root)) == 1
    # What was not acknowledged is one group of each run at most.
    assert len(acknowledged) <= len(stored) <= len(acknowledged) + len(visits) * 20


def test_what_a_crash_left_sealed_and_unsealed_is_there_once(root: Path) -> None:
    writer = writer_for(root, at=_stop_at("seal-before-remove"))
    writer.open()
    record(writer, range(3))
    with pytest.raises(DiskError, match="Stopped"):
        writer.close()
    assert (len(write_ahead_in(root)), len(segments_in(place_for(root)))) == (2, 1)

    again = writer_for(root)
    opened = again.open()
    again.close()

    assert (opened.next_sequence, opened.damage, again.sealed) == (4, (), 0)
    assert (len(write_ahead_in(root)), len(segments_in(place_for(root)))) == (1, 1)
    assert ids_in(root) == ids(range(3))


def _stop_at(stop: str) -> Callable[[str], None]:
    class Stopped(Exception):
        pass

    def at(point: str) -> None:
        if point == stop:
            raise Stopped

    return at


def test_a_segment_that_is_damaged_is_sealed_again_while_its_events_are_there(root: Path) -> None:
    writer = writer_for(root, at=_stop_at("seal-before-remove"))
    writer.open()
    record(writer, range(3))
    with pytest.raises(DiskError, match="Stopped"):
        writer.close()
    (segment,) = segments_in(place_for(root))
    flip(root / segment.path, 200)

    with writer_for(root) as again:
        pass

    assert ids_in(root) == ids(range(3))
    assert again.sealed == 1
    assert "moved to damaged/ and sealed again" in again.damage[0]


def test_two_crashes_in_a_row_are_no_worse_than_one(root: Path) -> None:
    for number in range(4):
        writer = writer_for(root, **TINY)
        writer.open()
        record(writer, range(10 * number, 10 * number + 10))
        crash(writer)

    with writer_for(root):
        pass

    assert ids_in(root) == ids(range(40))


def test_what_was_not_synced_may_be_there_and_is_there_once(root: Path) -> None:
    writer = writer_for(root)
    writer.open()
    record(writer, range(3))
    writer.append(numbered(range(3, 5)))
    crash(writer)

    with writer_for(root) as again:
        record(again, range(5, 6))

    assert ids_in(root) == ids(range(6))


# -- damage


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def crashed(root: Path, groups: int = 4, size: int = 5) -> tuple[Path, list[int]]:
    """Leave a file with groups of events, and return where each of them ends."""
    writer = writer_for(root)
    writer.open()
    ends = []
    for group in range(groups):
        record(writer, range(group * size, (group + 1) * size))
        assert writer._file is not None
        ends.append(writer._file.bytes)
    crash(writer)
    (path,) = write_ahead_in(root)
    return path, ends


def set_aside(root: Path) -> list[str]:
    return [path.name for path in sorted((root / "damaged").rglob("*")) if path.is_file()]


def test_a_torn_tail_is_cut_off_set_aside_and_told_once(root: Path) -> None:
    path, ends = crashed(root)
    content = path.read_bytes()
    path.write_bytes(content[: ends[-1] - 100])

    writer = writer_for(root)
    opened = writer.open()
    record(writer, range(15, 20))
    writer.close()
    again = writer_for(root).open()

    assert len(opened.damage) == 1
    assert "ends in the middle of a write" in opened.damage[0]
    assert "5 events" in opened.damage[0]
    assert opened.next_sequence == 16
    assert again.damage == ()
    assert ids_in(root) == ids(range(20))
    assert set_aside(root) == [f"{path.name}.{ends[-2]}-{ends[-1] - 100}"]
    aside = next((root / "damaged").rglob(f"{path.name}.*"))
    assert aside.read_bytes() == content[ends[-2] : ends[-1] - 100]


def test_a_zeroed_tail_is_cut_off_and_told(root: Path) -> None:
    path, ends = crashed(root)
    content = path.read_bytes()
    path.write_bytes(content[: ends[-2]] + bytes(9000))

    with writer_for(root) as writer:
        record(writer, range(90, 92))

    assert len(writer.damage) == 1
    assert "removed 9,000 bytes" in writer.damage[0]
    assert ids_in(root) == [*ids(range(15)), "90", "91"]


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_bit_flip_costs_one_group_and_the_rest_is_kept(root: Path, group: int) -> None:
    path, ends = crashed(root)
    flip(path, ends[group] - 50)

    writer = writer_for(root)
    opened = writer.open()
    record(writer, range(20, 21))
    writer.close()

    assert len(opened.damage) == 1
    assert "5 events are lost" in opened.damage[0]
    assert len(set_aside(root)) == 1
    assert ids_in(root) == [str(n) for n in range(21) if not 5 * group <= n < 5 * group + 5]
    assert [(s.first, s.last, s.rows) for s in segments_in(place_for(root))][:1] == [(1, 20, 15)]


def test_a_header_that_is_damaged_costs_nothing(root: Path) -> None:
    path, _ = crashed(root)
    flip(path, 3)

    opened = writer_for(root).open()

    assert "the header" in opened.damage[0]
    assert ids_in(root) == ids(range(20))


def test_a_file_of_which_nothing_is_left_is_set_aside(root: Path) -> None:
    path, ends = crashed(root)
    path.write_bytes(bytes(ends[-1]))

    with writer_for(root) as writer:
        record(writer, range(50, 51))

    assert len(writer.damage) == 1
    assert set_aside(root) == [f"{path.name}.0-{ends[-1]}"]
    assert recorded_in(root) == [(1, "50")]


def test_damage_that_comes_while_a_file_waits_is_told_when_it_is_sealed(
    root: Path, fickle: FicklePlace
) -> None:
    with writer_for(root, fickle, **TINY) as writer:
        fickle.is_away = True
        for group in range(3):
            record(writer, range(group * 5, group * 5 + 5))
        assert not writer.pending_seals
        tick_before_it_fails(writer, fickle)
        path = write_ahead_in(root)[0]
        flip(path, path.stat().st_size // 2)
        fickle.is_away = False
        assert wait_until(lambda: _ticked(writer) and writer.sealed == 1, patience=60)

    assert ids_in(root) == [*ids(range(5)), *ids(range(10, 15))]
    assert "5 events are lost" in writer.damage[0]


def test_an_id_that_is_damaged_is_known_from_what_was_recorded(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
    before = (root / "spool/one/id").read_text()

    for content in (b"", bytes(20), b"\xff\xfe", b"../../x"):
        (root / "spool/one/id").write_bytes(content)
        with writer_for(root):
            pass

        assert (root / "spool/one/id").read_text() == before


def test_a_spool_that_was_lost_begins_under_another_id(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
    (root / "spool").rename(root / "lost")

    with writer_for(root) as writer:
        record(writer, range(3, 4))

    first, second = sorted(segments_in(place_for(root)), key=lambda each: each.rows)
    assert first.recorder != second.recorder
    assert (first.first, second.first) == (1, 1)


def test_numbers_go_on_behind_the_segments_if_the_files_were_removed(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
    for path in write_ahead_in(root):
        path.unlink()

    opened = writer_for(root).open()

    assert opened.next_sequence == 4


# -- a disk that fails


def test_a_full_disk_is_told_and_once_there_is_room_it_goes_on(root: Path) -> None:
    told = {
        "root": str(root), "run": "", "groups": 6, "size": 20, "limit": 30_000, "segment_bytes": 1 << 20
    }  # fmt: skip

    run = append_groups(told)

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("failed") == 1
    assert f"failed {errno.EFBIG}\n" in run.stdout
    assert ids_in(root) == ids(range(120))
    assert set_aside(root) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_events_that_could_not_be_appended_can_be_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with writer_for(root) as writer:
        writer.append(numbered(range(3)))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse(code))
            with pytest.raises(DiskError):
                writer.append(numbered(range(3, 6)))
        writer.append(numbered(range(3, 6)))

        writer.sync()

        assert writer.recorded == 6
    assert recorded_in(root) == [(n + 1, str(n)) for n in range(6)]
    assert writer.damage == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_events_that_could_not_be_synced_can_be_appended_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
        writer.append(numbered(range(3, 4)))
        writer.append(numbered(range(4, 6)))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse(code))
            with pytest.raises(DiskError):
                writer.sync()
        assert (writer.recorded, writer.unsynced) == (3, 0)

        record(writer, range(3, 6))

    assert recorded_in(root) == [(n + 1, str(n)) for n in range(6)]


@pytest.mark.parametrize("recorded", [0, 3])
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_file_that_cannot_be_mended_is_left_for_another(
    root: Path, monkeypatch: pytest.MonkeyPatch, recorded: int, is_crash: bool
) -> None:
    writer = writer_for(root)
    writer.open()
    if recorded:
        record(writer, range(recorded))
    writer.append(numbered(range(recorded, 9)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse(errno.EIO))
        patch.setattr(os, "ftruncate", refuse(errno.EIO))
        with pytest.raises(DiskError):
            writer.sync()

    record(writer, range(recorded, 9))
    if is_crash:
        crash(writer)
        writer = writer_for(root)
        writer.open()
    writer.close()

    assert recorded_in(root) == [(n + 1, str(n)) for n in range(9)]


def test_a_new_file_that_cannot_be_made_leaves_all_as_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer_for(root, **TINY) as writer:
        record(writer, range(3))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse(errno.ENOSPC))
            with pytest.raises(DiskError, match="No space left"):
                writer.tick()
        record(writer, range(3, 4))
        writer.tick()
        record(writer, range(4, 5))

    assert ids_in(root) == ids(range(5))


# -- one recorder, one process


def test_a_second_recorder_of_the_same_name_is_refused(root: Path) -> None:
    with writer_for(root) as writer:
        with pytest.raises(
            ImproperlyConfigured, match=rf"'one' is already running, in process {os.getpid()}.*log_recorder"
        ):
            writer_for(root).open()
        record(writer, range(3))

    with writer_for(root):
        pass


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../x", "\0", "é", "%", "a b", ".hidden", "x" * 255])
def test_whatever_its_name_a_recorder_stays_in_its_spool(root: Path, name: str) -> None:
    writer = LogWriter(
        place_for(root), spool=root / "spool", name=name, redact=unchanged, segment_bytes=1, segment_age=60
    )
    with writer:
        record(writer, range(2))

    (folder,) = (root / "spool").iterdir()
    assert sorted(path.suffix or path.name for path in folder.iterdir()) == [".wal", "home", "id", "lock"]
    assert sorted(path.name for path in root.iterdir() if path.name[0] != ".") == ["events", "spool"]
    assert len(segments_in(place_for(root))) == 1


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 50])
def test_a_name_that_no_folder_can_have_is_refused(root: Path, name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="log_recorder"):
        LogWriter(place_for(root), spool=root, name=name, redact=unchanged, segment_bytes=1, segment_age=1)


def test_a_forked_child_writes_nothing_and_holds_no_lock(root: Path) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.write(theirs, _tried_in_a_child(writer).encode())
            os._exit(0)
        os.close(theirs)
        os.waitpid(child, 0)
        with os.fdopen(ours) as said:
            assert said.read() == "refused refused refused closed"
        record(writer, range(3, 5))
        with pytest.raises(ImproperlyConfigured):
            writer_for(root).open()

    assert ids_in(root) == ids(range(5))


def _tried_in_a_child(writer: LogWriter) -> str:
    said = []
    uses: list[Callable[[], None]] = [partial(writer.append, numbered([1])), writer.sync, writer.tick]
    for use in uses:
        try:
            use()
        except CallerError:
            said.append("refused")
    writer.close()
    return " ".join([*said, "closed"])


def test_a_child_that_outlives_its_parent_does_not_keep_the_spool(root: Path) -> None:
    writer = writer_for(root)
    writer.open()
    record(writer, range(3))
    (child_ready, say_ready), (wait_here, let_go) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(let_go)
        os.write(say_ready, b"!")
        os.read(wait_here, 1)
        os._exit(0)
    os.read(child_ready, 1)
    crash(writer)

    with writer_for(root) as again:
        assert again.damage == []

    for number in (child_ready, say_ready, wait_here, let_go):
        os.close(number)
    os.waitpid(child, 0)
    assert ids_in(root) == ids(range(3))
