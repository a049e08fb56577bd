"""No number is given twice and no event is hidden: files sealed late, spools that are full, old or copied."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from celeriac.errors import DiskError
from celeriac.model.events import Event
from celeriac.programs.process import wait_until
from celeriac.store import spool as spools
from celeriac.store.columns import to_batch
from celeriac.store.disk import write_new
from celeriac.store.event_log import EventLog
from celeriac.store.local_place import LocalPlace
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import place_for
from celeriac.store.segment import read_segment, segments_in, write_segment
from celeriac.store.upkeep import merge_small, verify
from celeriac.store.write_ahead import WriteAhead
from tests.recorded import NOON_AT, ids_in, numbered, recorded_in, settle, write_ahead_in, writer_for

TINY: dict[str, Any] = {"segment_bytes": 1}
YEAR = 365 * 86400.0


class OddPlace(LocalPlace):
    """A place in a folder where some things fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        #: Is asked before and after each write, and may raise.
        self.before: Callable[[str], object] = lambda _name: None
        self.after: Callable[[str], object] = lambda _name: None
        self.on_read: Callable[[str], object] = lambda _name: None
        self.on_list: Callable[[str], object] = lambda _name: None

    def write(self, name: str, content: Any) -> None:
        self.before(name)
        super().write(name, content)
        self.after(name)

    def read(self, name: str) -> bytes:
        self.on_read(name)
        return super().read(name)

    def sizes(self, under: str) -> dict[str, int]:
        self.on_list(under)
        return super().sizes(under)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def odd(root: Path) -> OddPlace:
    return OddPlace(root)


def away(_name: str) -> None:
    raise DiskError("the place is away")


def events(numbers: range) -> list[Event]:
    """Return events that come one group after the other."""
    return numbered(numbers, received_at=NOON_AT + numbers.start)


def ids(numbers: range) -> list[str]:
    return [str(number) for number in numbers]


def record(writer: LogWriter, numbers: range) -> None:
    writer.append(events(numbers))
    writer.sync()


def ticked(writer: LogWriter) -> bool:
    try:
        writer.tick()
    except DiskError:
        return False
    finally:
        settle(writer)
    return True


def crash(writer: LogWriter) -> None:
    """Leave everything as it is, as a process does that is killed."""
    settle(writer)
    writer.disown()


def read(root: Path, **given: Any) -> tuple[list[str], list[str]]:
    """Return the ids that a reader finds, and what it says of damage."""
    log = EventLog(root, **given)
    return [str(event["uuid"]) for event in log.read()], log.damage


def write_file(root: Path, numbers: range, *, recorder: str) -> Path:
    """Write a file with events of these numbers into a spool, and return its path."""
    first = numbers.start + 1
    file = WriteAhead.create(root / "spool" / "one", recorder, first, made_at=NOON_AT)
    file.append(to_batch(events(numbers), recorder=recorder, first=first))
    file.sync()
    file.close()
    return file.path


def failing(code: int) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


# -- what is sealed late


@pytest.mark.parametrize("is_there", [False, True])
def test_nothing_is_sealed_before_what_came_before_it(root: Path, odd: OddPlace, is_there: bool) -> None:
    def fail(name: str) -> None:
        if ".000000000001-" in name:
            raise DiskError("no room")

    if is_there:
        odd.after = fail
    else:
        odd.before = fail
    writer = writer_for(root, odd, **TINY)
    writer.open()
    for start in (0, 3):
        record(writer, range(start, start + 3))
        ticked(writer)
    for _ in range(4):
        ticked(writer)
    record(writer, range(6, 7))

    assert [segment.first for segment in segments_in(odd)] == ([1] if is_there else [])
    crash(writer)
    with writer_for(root) as again:
        pass
    merge_small(EventLog(root), now=NOON_AT + YEAR)
    assert (read(root), again.damage) == ((ids(range(7)), []), [])
    assert verify(EventLog(root)).findings == []


def test_a_file_that_is_sealed_late_stands_for_its_own_numbers_alone(root: Path) -> None:
    with writer_for(root) as writer:
        recorder = writer._recorder
    for numbers in (range(3), range(3, 6), range(6, 8)):
        write_file(root, numbers, recorder=recorder)
    write_segment(
        place_for(root),
        [to_batch(events(range(3, 6)), recorder=recorder, first=4)],
        recorder=recorder,
        first=4,
        last=6,
        generation=0,
    )
    (root / "spool/one/000000000004.wal").unlink()

    with writer_for(root) as again:
        pass

    merge_small(EventLog(root), now=NOON_AT + YEAR)
    assert (read(root), again.damage) == ((ids(range(8)), []), [])
    assert verify(EventLog(root)).findings == []


def test_a_file_whose_removal_was_undone_changes_nothing(root: Path) -> None:
    with writer_for(root, **TINY) as writer:
        recorder = writer._recorder
        for start in (0, 3):
            record(writer, range(start, start + 3))
            ticked(writer)
    before = segments_in(place_for(root))
    write_file(root, range(3), recorder=recorder)

    with writer_for(root) as again:
        pass

    assert (segments_in(place_for(root)), again.damage, again.sealed) == (before, [], 0)
    assert len(write_ahead_in(root)) == 1


def test_what_a_file_lost_at_its_end_is_missed_for_good(root: Path, odd: OddPlace) -> None:
    odd.before = away
    writer = writer_for(root, odd, **TINY)
    writer.open()
    writer.append(events(range(2)))
    record(writer, range(2, 4))
    ticked(writer)
    record(writer, range(4, 5))
    crash(writer)
    path = write_ahead_in(root)[0]
    path.write_bytes(path.read_bytes()[:-9])

    with writer_for(root) as again:
        pass

    found, damage = read(root)
    assert found == ["0", "1", "4"]
    assert len(again.damage) > 0
    assert [sentence.partition(", and")[0] for sentence in damage] == [
        f"events 3-4 of {again._recorder} are missing (2)"
    ]


def test_a_segment_that_is_merged_away_while_it_is_looked_for_is_found_again(
    root: Path, odd: OddPlace
) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
        recorder = writer._recorder
    (old,) = segments_in(odd)
    write_file(root, range(3), recorder=recorder)

    def merge(_name: str) -> None:
        odd.on_read = lambda _name: None
        batches = read_segment(odd, old).to_batches()
        write_segment(odd, batches, recorder=recorder, first=1, last=3, generation=1)
        odd.remove(old.path)

    again = writer_for(root, odd)
    odd.on_read = merge
    again.open()
    settle(again)
    assert wait_until(lambda: ticked(again) and not again.pending_seals, patience=60)
    again.close()

    assert (ids_in(root), again.sealed) == (ids(range(3)), 0)


# -- a file that cannot be begun


@pytest.mark.parametrize("step", ["sync_folder", "open"])
@pytest.mark.parametrize("is_second_try_good", [True, False])
def test_what_is_recorded_after_a_file_could_not_be_begun_is_kept(
    root: Path, odd: OddPlace, monkeypatch: pytest.MonkeyPatch, step: str, is_second_try_good: bool
) -> None:
    odd.before = away
    writer = writer_for(root, odd, **TINY)
    writer.open()
    record(writer, range(2))
    with monkeypatch.context() as patch:
        if step == "open":
            patch.setattr(os, "open", _no_second_open())
        else:
            patch.setattr(spools, "sync_folder", failing(errno.EIO))
        with pytest.raises(DiskError):
            writer.tick()
    kept = ids(range(2))
    with monkeypatch.context() as patch:
        if not is_second_try_good:
            patch.setattr(spools, "write_new", failing(errno.EMFILE))
        try:
            record(writer, range(2, 4))
        except DiskError:
            assert not is_second_try_good
        else:
            kept = ids(range(4))
    assert read(root) == (kept, [])
    crash(writer)

    with writer_for(root) as again:
        record(again, range(7, 8))

    assert (read(root), again.damage) == (([*kept, "7"], []), [])


def _no_second_open() -> Callable[..., int]:
    """Return an ``open`` that fails for a write-ahead file that has its name already."""
    real = os.open

    def fail(path: Any, *arguments: Any, **named: Any) -> int:
        if str(path).endswith("000000000003.wal"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *arguments, **named)

    return fail


# -- a spool that is full


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Have a spool no room for another file while it has two."""
    real = write_new

    def limit(folder: Path) -> None:
        def write(path: Any, content: Any, **named: Any) -> None:
            if len(list(folder.glob("*.wal"))) >= 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(path, content, **named)

        monkeypatch.setattr(spools, "write_new", write)

    return limit


@pytest.mark.parametrize("is_started_again", [True, False])
def test_a_spool_that_was_full_is_emptied_once_the_place_is_back(
    root: Path, odd: OddPlace, full: Callable[[Path], None], is_started_again: bool
) -> None:
    odd.before = away
    writer = writer_for(root, odd, **TINY)
    writer.open()
    full(root / "spool" / "one")
    for start in (0, 3):
        record(writer, range(start, start + 3))
        ticked(writer)
    assert len(write_ahead_in(root)) == 2

    odd.before = lambda _name: None
    if is_started_again:
        crash(writer)
        writer = writer_for(root, odd, **TINY)
        writer.open()
    assert wait_until(lambda: ticked(writer) and writer.sealed == 2, patience=60)
    record(writer, range(6, 7))
    writer.close()

    assert read(root) == (ids(range(7)), [])


def test_while_a_full_spool_cannot_be_emptied_it_is_told_and_nothing_is_lost(
    root: Path, odd: OddPlace, full: Callable[[Path], None]
) -> None:
    odd.before = away
    writer = writer_for(root, odd, **TINY)
    writer.open()
    full(root / "spool" / "one")
    for start in (0, 3):
        record(writer, range(start, start + 3))
        ticked(writer)
    crash(writer)

    with pytest.raises(DiskError, match="No space left"):
        writer_for(root, odd).open()

    assert read(root) == (ids(range(6)), [])


@pytest.mark.parametrize("code", [errno.EFBIG, errno.EIO])
def test_where_a_file_takes_no_more_another_one_is_begun(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with writer_for(root) as writer:
        record(writer, range(3))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", failing(code))
            with pytest.raises(DiskError):
                writer.append(events(range(3, 4)))

        writer.tick()

        assert wait_until(lambda: writer.sealed == 1, patience=60)
        record(writer, range(3, 4))
    assert ids_in(root) == ids(range(4))


# -- a spool that is older than the log


def brought_back(root: Path, tmp_path: Path) -> None:
    """Record twice, and bring the spool back as it was in between."""
    with writer_for(root) as writer:
        record(writer, range(2))
    shutil.copytree(root / "spool", tmp_path / "copy")
    with writer_for(root, **TINY) as writer:
        record(writer, range(2, 4))
        ticked(writer)
        record(writer, range(4, 7))
    shutil.rmtree(root / "spool")
    shutil.copytree(tmp_path / "copy", root / "spool")


def test_a_spool_that_is_older_than_the_log_goes_on_under_another_id(root: Path, tmp_path: Path) -> None:
    brought_back(root, tmp_path)

    writer = writer_for(root)
    opened = writer.open()
    record(writer, range(7, 10))
    seen = read(root)
    writer.close()

    (told,) = opened.damage
    assert "has events up to number 7 of one-" in told
    assert f"The new recorder id is {opened.recorder}" in told
    assert opened.next_sequence == 1
    assert (seen, read(root)) == ((ids(range(10)), []), (ids(range(10)), []))
    assert writer_for(root).open()[0::3] == (opened.recorder, ())
    assert verify(EventLog(root)).findings == []


def test_what_the_older_spool_had_is_there_once(root: Path, tmp_path: Path) -> None:
    writer = writer_for(root)
    writer.open()
    record(writer, range(2))
    crash(writer)
    shutil.copytree(root / "spool", tmp_path / "copy")
    with writer_for(root) as again:
        record(again, range(2, 4))
    shutil.rmtree(root / "spool")
    shutil.copytree(tmp_path / "copy", root / "spool")

    with writer_for(root) as last:
        record(last, range(4, 6))

    assert len(last.damage) == 1
    assert read(root) == (ids(range(6)), [])


def test_numbers_that_others_have_are_noticed_when_they_are_sealed_if_the_place_was_away(
    root: Path, odd: OddPlace, tmp_path: Path
) -> None:
    brought_back(root, tmp_path)
    odd.on_list = away
    writer = writer_for(root, odd)
    opened = writer.open()
    record(writer, range(7, 10))
    odd.on_list = lambda _under: None
    writer.close()

    (told,) = writer.damage
    assert (opened.damage, opened.next_sequence) == ((), 3)
    assert "has numbers 3-5 of one-" in told
    assert "Its 3 events are stored as those of one-" in told
    assert sorted(read(root)[0], key=int) == ids(range(10))
    assert verify(EventLog(root)).findings == []


# -- a place that does not answer


def test_a_place_that_hangs_stops_nobody(root: Path, odd: OddPlace) -> None:
    may_go_on = Flag()
    odd.before = lambda _name: may_go_on.wait(60)
    writer = writer_for(root, odd, patience=0.01, **TINY)
    writer.open()
    try:
        for number in range(8):
            record(writer, range(number, number + 1))
            writer.tick()
        assert (writer.recorded, writer.pending_seals) == (8, 8)

        with pytest.raises(DiskError, match="8 files stay in the spool"):
            writer.close()
    finally:
        may_go_on.set()
    settle(writer)

    with writer_for(root) as again:
        assert again.damage == []
    assert read(root) == (ids(range(8)), [])


# -- rot


def test_rot_in_the_last_group_of_all_is_told_and_its_numbers_are_not_given_again(root: Path) -> None:
    writer = writer_for(root)
    writer.open()
    record(writer, range(2))
    record(writer, range(2, 5))
    crash(writer)
    path = write_ahead_in(root)[0]
    content = bytearray(path.read_bytes())
    content[-2000] ^= 1
    path.write_bytes(content)

    again = writer_for(root)
    opened = again.open()
    record(again, range(5, 6))
    again.close()

    assert opened.next_sequence == 6
    assert "3 events are lost, which may have been recorded" in opened.damage[0]
    assert recorded_in(root) == [(1, "0"), (2, "1"), (6, "5")]
    assert "events 3-5 of" in read(root)[1][0]


def test_rot_within_a_file_is_told_by_every_reader_also_when_it_is_sealed(root: Path) -> None:
    writer = writer_for(root)
    writer.open()
    for number in range(3):
        record(writer, range(number, number + 1))
    crash(writer)
    path = write_ahead_in(root)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with writer_for(root) as again:
        record(again, range(3, 4))

    found, (told,) = read(root)

    assert found == ["0", "2", "3"]
    assert "1 events of 1-3 of one-" in told
    merge_small(EventLog(root), now=NOON_AT + YEAR)
    assert "1 events of 1-4 of one-" in read(root)[1][0]
    assert list(EventLog(root).read(until=NOON_AT - 1)) == []


@pytest.mark.parametrize("name", ["_left", ".left", "ärger", "---", "_"])
def test_no_segment_has_a_name_that_other_readers_take_for_hidden(name: str, tmp_path: Path) -> None:
    spool = spools.Spool(tmp_path, name)
    spool.lock()

    recorder = spool.recorder_id()

    assert recorder[0].isalnum()
    assert recorder.isascii()
    spool.release()
