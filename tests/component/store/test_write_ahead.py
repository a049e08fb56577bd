"""One write-ahead file: what is written is read, what fails is taken back, what is damaged is told of."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from celeriac.errors import DiskError
from celeriac.model.events import Started
from celeriac.store import frame as frames
from celeriac.store.columns import SCHEMA, to_batch, to_events
from celeriac.store.frame import FRAME_BYTES, Header, find_frames, pack_header
from celeriac.store.write_ahead import Scanned, WriteAhead, scan, scan_folder
from tests.recorded import NOON_AT, numbered

#: Groups of one file: two that are compressed among small ones.
SIZES = (3, 300, 2, 257, 5)


def rows(first: int, count: int) -> pa.RecordBatch:
    return to_batch(numbered(range(first, first + count)), recorder="one-abc", first=first)


def filled(file: WriteAhead, sizes: tuple[int, ...] = SIZES) -> WriteAhead:
    for size in sizes:
        file.append(rows(file.next, size))
    file.sync()
    return file


def made(folder: Path, first: int = 1, sizes: tuple[int, ...] = SIZES) -> Path:
    """Return a file with groups of events."""
    file = filled(WriteAhead.create(folder, "one-abc", first, made_at=NOON_AT), sizes)
    file.close()
    return file.path


def numbers(scanned: Scanned) -> list[int]:
    return [number for batch in scanned.batches for number in batch.column("sequence").to_pylist()]


def starts(path: Path) -> list[int]:
    """Return where the frames of a file begin."""
    return list(find_frames(path.read_bytes(), 0))


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def all_but(group: int) -> list[int]:
    """Return the numbers of all events but those of one group."""
    first = 1 + sum(SIZES[:group])
    return [n for n in range(1, 1 + sum(SIZES)) if not first <= n < first + SIZES[group]]


# -- what is written is read


def test_what_was_written_is_read(tmp_path: Path) -> None:
    scanned = scan(made(tmp_path))

    assert numbers(scanned) == list(range(1, 568))
    assert [event for batch in scanned.batches for event in to_events(batch)] == numbered(range(1, 568))
    assert (scanned.recorder, scanned.first, scanned.next, scanned.rows) == ("one-abc", 1, 568, 567)
    assert (scanned.damage, scanned.bad, scanned.tail) == ((), (), None)
    assert scanned.last_received_at == NOON_AT


def test_without_batches_the_same_is_told(tmp_path: Path) -> None:
    path = made(tmp_path)

    assert scan(path, has_batches=False) == scan(path)._replace(batches=())


def test_a_file_counts_what_it_holds(tmp_path: Path) -> None:
    file = WriteAhead.create(tmp_path, "one-abc", 7)
    header = file.bytes

    file.append(rows(7, 3))

    assert (file.rows, file.next, file.unsynced) == (3, 10, 3)
    assert file.bytes == file.path.stat().st_size > header
    assert file.row_bytes == rows(7, 3).nbytes
    file.sync()
    assert file.unsynced == 0
    file.close()


def test_many_small_groups_are_put_together(tmp_path: Path) -> None:
    scanned = scan(made(tmp_path, sizes=(1,) * 50))

    assert [batch.num_rows for batch in scanned.batches] == [50]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    assert stat.S_IMODE(made(tmp_path).stat().st_mode) == 0o600


def test_a_file_says_when_the_last_event_before_it_was_received(tmp_path: Path) -> None:
    file = WriteAhead.create(tmp_path, "one-abc", 9, last_received_at=5.5)
    file.close()

    assert scan(file.path).last_received_at == 5.5
    assert scan(file.path).next == 9


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path = made(tmp_path)
    link = tmp_path / "000000000999.wal"
    link.symlink_to(path)

    with pytest.raises(DiskError, match="link"):
        scan(link)


# -- damage


def test_a_bit_flip_in_any_frame_costs_that_frame_alone(tmp_path: Path) -> None:
    ends = starts(made(tmp_path))[1:]

    for group in range(len(SIZES) - 1):
        for where in ("marker", "length", "rows", "crc", "payload", "end"):
            path = made(tmp_path)
            start = starts(path)[group]
            end = ends[group]
            offsets = {"marker": 0, "length": 4, "rows": 8, "crc": 20, "payload": FRAME_BYTES + 9}
            flip(path, end - 1 if where == "end" else start + offsets[where])

            scanned = scan(path)

            assert numbers(scanned) == all_but(group), (group, where)
            assert [(bad.start, bad.end, bad.lost) for bad in scanned.bad] == [(start, end, SIZES[group])]
            assert f"bytes {start:,} to {end:,}: {SIZES[group]} events are lost" in scanned.damage[0]
            assert scanned.tail is None


def test_a_bit_flip_in_the_last_frame_is_a_torn_tail(tmp_path: Path) -> None:
    for offset, lost in ((0, None), (5, None), (FRAME_BYTES + 9, 5), (-1, 5)):
        path = made(tmp_path)
        start = starts(path)[-1]
        flip(path, start + offset if offset >= 0 else path.stat().st_size - 1)

        scanned = scan(path)

        assert numbers(scanned) == all_but(4)
        assert scanned.tail == (start, path.stat().st_size, lost, offset > FRAME_BYTES)
        assert scanned.next == 563


def test_a_bit_flip_anywhere_in_the_header_costs_no_event(tmp_path: Path) -> None:
    path = made(tmp_path)
    size = starts(path)[0]

    for offset in range(size):
        flip(path, offset)
        scanned = scan(path)
        flip(path, offset)

        assert (len(numbers(scanned)), scanned.recorder, scanned.first) == (567, "one-abc", 1), offset
        assert scanned.damage == (
            f"the header of {path.name} is damaged at bytes 0 to {size}: 0 events are lost",
        )


def test_a_file_that_is_cut_anywhere_keeps_what_was_whole(tmp_path: Path) -> None:
    path = made(tmp_path, sizes=(3, 2))
    content = path.read_bytes()
    first, second = starts(path)

    edges = [edge + step for edge in (0, first, second, len(content)) for step in (-1, 0, 1)]
    for size in sorted({*range(0, len(content), 97), *edges[1:-2]}):
        path.write_bytes(content[:size])

        scanned = scan(path)

        assert numbers(scanned) == ([1, 2, 3] if size >= second else []), size
        begin = 0 if size < first else first if size < second else second
        assert (scanned.tail and scanned.tail[:3]) == (
            None if size in (0, first, second) else (begin, size, scanned.tail and scanned.tail.lost)
        )
        assert scanned.damage == ()


def test_a_zeroed_tail_is_told_from_the_frames_before_it(tmp_path: Path) -> None:
    path = made(tmp_path)
    start = starts(path)[-1]

    for offset in (start, start + 10, start + FRAME_BYTES, start + FRAME_BYTES + 100):
        path = made(tmp_path)
        content = path.read_bytes()
        path.write_bytes(content[:offset] + bytes(len(content) - offset + 5000))

        scanned = scan(path)

        assert numbers(scanned) == all_but(4)
        assert scanned.tail is not None
        assert (scanned.tail.start, scanned.tail.end) == (start, len(content) + 5000)


def test_bytes_that_are_missing_in_the_middle_cost_the_frames_they_were_in(tmp_path: Path) -> None:
    path = made(tmp_path)
    content = path.read_bytes()
    second, third = starts(path)[1:3]

    path.write_bytes(content[: second + 500] + content[third - 500 :])
    scanned = scan(path)

    assert numbers(scanned) == all_but(1)
    assert [bad.lost for bad in scanned.bad] == [SIZES[1]]


def test_a_file_of_anything_holds_nothing_and_is_told_of(tmp_path: Path) -> None:
    for content in (bytes(4096), b"x", b"CELWAL1\n", b"CELWAL1\n{}\n", b"\xff\xfeCW" * 500, os.urandom(5000)):
        path = tmp_path / "000000000005.wal"
        path.write_bytes(content)

        scanned = scan(path)

        assert (scanned.rows, scanned.first, scanned.next, scanned.recorder) == (0, 5, 5, "")
        assert scanned.tail == (0, len(content), None, False)


def test_text_of_users_never_passes_for_a_frame(tmp_path: Path) -> None:
    forged = "ÿþCW" + "\ufeff" * 10 + "\x00" * 40
    file = WriteAhead.create(tmp_path, "one-abc", 1)

    events = [Started(timestamp=1.0, clock=1, hostname=forged, uuid="u")]
    file.append(to_batch(events, recorder="one-abc", first=1))
    file.close()

    assert len(starts(file.path)) == 1
    assert scan(file.path).rows == 1


def test_a_frame_that_lies_about_its_rows_is_damage(tmp_path: Path) -> None:
    file = WriteAhead.create(tmp_path, "one-abc", 1)
    file.append(rows(77, 2))
    file.append(rows(3, 2))
    file.close()

    scanned = scan(file.path)

    assert numbers(scanned) == [3, 4]
    assert [bad.lost for bad in scanned.bad] == [2]


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "000000000001.wal"
    header = pack_header(Header("one-abc", 1, NOON_AT, format=2))
    path.write_bytes(header.replace(b"CELWAL1", b"CELWAL2"))

    with pytest.raises(DiskError, match="newer Celeriac: unsupported format 2; upgrade Celeriac"):
        scan(path)


def test_rows_with_columns_that_are_not_known_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = SCHEMA.append(pa.field("novel", pa.string()))
    batch = pa.RecordBatch.from_arrays([*rows(1, 2).columns, pa.array(["a", "b"])], schema=more)
    monkeypatch.setattr(frames, "SCHEMA", more)
    file = WriteAhead.create(tmp_path, "one-abc", 1)
    file.append(batch)
    file.close()
    monkeypatch.undo()

    with pytest.raises(DiskError, match="novel; upgrade Celeriac"):
        scan(file.path)


def test_rows_without_a_column_of_today_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = SCHEMA.get_field_index("reason")
    monkeypatch.setattr(frames, "SCHEMA", SCHEMA.remove(place))
    file = WriteAhead.create(tmp_path, "one-abc", 1)
    columns = rows(1, 2).columns
    file.append(
        pa.RecordBatch.from_arrays(columns[:place] + columns[place + 1 :], schema=SCHEMA.remove(place))
    )
    file.close()
    monkeypatch.undo()

    (batch,) = scan(file.path).batches

    assert batch.schema.equals(SCHEMA)
    assert to_events(batch) == numbered([1, 2])


# -- several files


def test_a_file_ends_where_the_next_begins(tmp_path: Path) -> None:
    made(tmp_path, first=1, sizes=(3, 2))
    made(tmp_path, first=4, sizes=(1,))

    before, after = scan_folder(tmp_path)

    assert (numbers(before), before.rows, before.next, before.damage) == ([1, 2, 3], 3, 4, ())
    assert numbers(after) == [4]


def test_a_file_that_ends_before_the_next_begins_has_lost_something(tmp_path: Path) -> None:
    path = made(tmp_path, first=1, sizes=(3,))
    made(tmp_path, first=10, sizes=(1,))

    before, _ = scan_folder(tmp_path)

    assert before.damage == (f"{path.name} ends 6 events too early",)


def test_nothing_else_in_the_folder_is_looked_at(tmp_path: Path) -> None:
    path = made(tmp_path)
    for name in ("id", "lock", ".000000000001.wal.new", "x.wal", "1.wal.damaged", "²3.wal"):
        (tmp_path / name).write_bytes(b"x")

    assert [scanned.path for scanned in scan_folder(tmp_path)] == [path]
    assert scan_folder(tmp_path / "none") == []


# -- a disk that fails


def failing(call: Callable[..., Any], code: int, *, after_bytes: int | None = None) -> Callable[..., Any]:
    """Return a call that fails, perhaps when a part is done."""
    calls = 0

    def fail(number: int, *arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if after_bytes is not None and calls == 1:
            content, offset = arguments
            done: int = call(number, bytes(content[:after_bytes]), offset)
            return done
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("after_bytes", [None, 1, FRAME_BYTES, FRAME_BYTES + 700])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_leaves_nothing_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_bytes: int | None, code: int
) -> None:
    file = filled(WriteAhead.create(tmp_path, "one-abc", 1), (3,))
    before = file.path.read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(os.pwrite, code, after_bytes=after_bytes))
        with pytest.raises(DiskError, match=r"000000000001\.wal.* cannot be written") as raised:
            file.append(rows(4, 2))

    assert raised.value.errno == code
    assert (file.path.read_bytes(), file.rows, file.next) == (before, 3, 4)
    file.append(rows(4, 2))
    file.sync()
    file.close()
    assert numbers(scan(file.path)) == [1, 2, 3, 4, 5]


def test_a_write_in_parts_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda number, content, offset: pwrite(number, content[:999], offset))

    assert numbers(scan(made(tmp_path))) == list(range(1, 568))


def test_a_sync_that_fails_takes_back_all_since_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = filled(WriteAhead.create(tmp_path, "one-abc", 1), (3,))
    file.append(rows(4, 2))
    file.append(rows(6, 2))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.EIO))
        with pytest.raises(DiskError, match="cannot be synced"):
            file.sync()

    assert (file.next, file.unsynced) == (4, 0)
    assert numbers(scan(file.path)) == [1, 2, 3]
    file.append(rows(4, 1))
    file.sync()
    file.close()
    assert numbers(scan(file.path)) == [1, 2, 3, 4]


def test_a_file_that_cannot_be_shortened_takes_nothing_more_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = filled(WriteAhead.create(tmp_path, "one-abc", 1), (3,))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(os.pwrite, errno.EIO, after_bytes=300))
        patch.setattr(os, "ftruncate", failing(os.ftruncate, errno.EIO))
        with pytest.raises(DiskError, match="cannot be written"):
            file.append(rows(4, 2))
        with pytest.raises(DiskError, match="cannot be shortened"):
            file.append(rows(4, 2))
    was_broken = file.is_broken

    file.append(rows(4, 2))

    assert (was_broken, file.is_broken) == (True, False)
    file.close()
    assert (numbers(scan(file.path)), scan(file.path).tail) == ([1, 2, 3, 4, 5], None)


def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.ENOSPC))
        with pytest.raises(DiskError, match="cannot be written: No space left"):
            WriteAhead.create(tmp_path, "one-abc", 1)

    assert list(tmp_path.iterdir()) == []
