"""The laws of a log that is written: whatever fails, crashes or is damaged, in whatever order.

Beside the writer runs a ledger of what was appended and recorded. What was recorded is there once and in its
order; what was not may be there, up to some point; what damage took is just what it hit, and is told of.
And bugs that break the laws are found.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from celeriac.errors import DiskError
from celeriac.store import sealing, write_ahead_scan
from celeriac.store.frame import find_frames
from celeriac.store.local_place import LocalPlace
from celeriac.store.sealing import Sealing, Task
from celeriac.store.write_ahead import WriteAhead
from celeriac.store.write_ahead_scan import Scanned
from tests.property.effort import ON_DISK
from tests.property.test_planted_bugs import UNTIL_FOUND
from tests.recorded import NOON_AT, ids_in, numbered, settle, write_ahead_in, writer_for

#: Whether it is a disk makes no difference to the laws, only to the time.
MEMORY = Path("/dev/shm")  # noqa: S108 - each run makes a folder of its own in it
fractions = st.integers(0, 999).map(lambda number: number / 1000)
#: Compressed ones too.
sizes = st.sampled_from((1, 2, 3, 10, 300))


class FicklePlace(LocalPlace):
    """A place that can be away."""

    is_away = False

    def write(self, name: str, content: Any) -> None:
        if self.is_away:
            raise DiskError("the place is away")
        super().write(name, content)


class Kept(NamedTuple):
    """A group of events in a file."""

    name: str
    start: int
    end: int
    numbers: list[int]


@contextmanager
def failing_disk(call: str, *, after: float | None, can_be_mended: bool) -> Iterator[None]:
    """Have a call fail, perhaps when a part is done; and perhaps nothing can be cut off either."""
    pwrite = os.pwrite

    def fail(number: int, *arguments: Any) -> int:
        nonlocal after
        if after is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        content, offset = arguments
        part, after = bytes(content[: int(after * len(content))]), None
        return pwrite(number, part, offset)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with ExitStack() as stack:
        stack.enter_context(patch.object(os, call, fail))
        if not can_be_mended:
            stack.enter_context(patch.object(os, "ftruncate", refuse))
        yield


class LogWriterMachine(RuleBasedStateMachine):
    """One recorder, one disk, and all that can happen to both."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        # Always the same, as it is in every row: so groups are as long in each run.
        folder = self.root / "spool" / "one"
        folder.mkdir(parents=True)
        (folder / "id").write_text("one-abcdef\n")
        self.place = FicklePlace(self.root)
        self.now_at = NOON_AT
        self.last_number = 0
        #: What was recorded, what was appended since, and what was taken back, in their order.
        self.recorded: list[int] = []
        self.unsynced: list[int] = []
        self.owed: list[int] = []
        self.kept: list[Kept] = []
        #: Damage may be told of, for a write that was left unfinished.
        self.may_be_torn = False
        self.writer = self.made()
        self.writer.open()

    def made(self) -> Any:
        return writer_for(
            self.root, self.place, segment_bytes=200_000, segment_age=60.0, now=lambda: self.now_at
        )

    def settle(self) -> None:
        """Wait until nothing is being sealed, so that each run is like the other."""
        settle(self.writer)

    def events(self, count: int) -> list[int]:
        """Return the numbers to append: first what is owed, so that their order stays."""
        if self.owed:
            return list(self.owed)
        return list(range(self.last_number + 1, self.last_number + 1 + count))

    def appended(self, numbers: list[int]) -> None:
        self.owed = []
        self.last_number = max(self.last_number, *numbers)
        self.unsynced += numbers
        file = self.writer._file
        # What was taken back and written again is where it was written last.
        self.kept = [each for each in self.kept if not set(numbers) & set(each.numbers)]
        start = list(find_frames(file.path.read_bytes()[: file.bytes], 0))[-1]
        self.kept.append(Kept(file.path.name, start, file.bytes, numbers))

    # -- what a recorder does

    @rule(count=sizes)
    def append(self, count: int) -> None:
        numbers = self.events(count)
        self.writer.append(numbered(numbers))
        self.settle()
        self.appended(numbers)

    @rule()
    def sync(self) -> None:
        self.writer.sync()
        self.recorded += self.unsynced
        self.unsynced = []
        self.settle()

    @rule(seconds=st.sampled_from((0.0, 1.0, 61.0, 4000.0, -1.0, -3600.0)))
    def tick(self, seconds: float) -> None:
        self.now_at += seconds
        try:
            self.writer.tick()
        except DiskError:
            # Told of what could not be sealed, and only of that.
            assert self.place.is_away or self.writer.pending_seals or self.writer.sealed
        self.settle()

    @rule()
    def look(self) -> None:
        known = [str(number) for number in self.recorded + self.unsynced]
        stored = ids_in(self.root)
        # What could not be taken back is seen until another file takes over.
        assert stored[: len(known)] == known
        assert stored == known or self.writer._file.is_broken

    @rule()
    def close_and_open(self) -> None:
        numbers = self.recorded + self.unsynced
        try:
            self.writer.close()
        except DiskError:
            assert self.place.is_away
        self.reopen(numbers, is_damaged=False)

    # -- what a disk does

    @rule()
    def leave_or_come_back(self) -> None:
        self.place.is_away = not self.place.is_away

    @rule(count=sizes, after=st.none() | fractions, can_be_mended=st.booleans())
    def fail_to_append(self, count: int, after: float | None, can_be_mended: bool) -> None:
        numbers = self.events(count)
        with failing_disk("pwrite", after=after, can_be_mended=can_be_mended), pytest.raises(DiskError):
            self.writer.append(numbered(numbers))
        self.settle()
        self.owed = numbers
        self.last_number = max(self.last_number, *numbers)
        self.may_be_torn |= not can_be_mended

    @rule(count=sizes, can_be_mended=st.booleans(), is_tried_again=st.booleans())
    def fail_to_sync(self, count: int, can_be_mended: bool, is_tried_again: bool) -> None:
        self.append(count)
        with failing_disk("fsync", after=None, can_be_mended=can_be_mended), pytest.raises(DiskError):
            self.writer.sync()
        gone = set(self.unsynced)
        self.owed, self.unsynced = self.unsynced + self.owed, []
        if can_be_mended:
            self.kept = [each for each in self.kept if not gone & set(each.numbers)]
        self.may_be_torn |= not can_be_mended
        if is_tried_again:
            self.append(0)
            self.sync()

    @rule()
    def fail_to_begin_another(self) -> None:
        self.now_at += 61.0
        with failing_disk("fsync", after=None, can_be_mended=True), suppress(DiskError):
            self.writer.tick()
        self.settle()

    # -- crashes

    @rule(keep=fractions, is_zeroed=st.booleans())
    def crash(self, keep: float, is_zeroed: bool) -> None:
        """Lose the process, and of what was not synced some part."""
        file = self.writer._file
        synced, size = file._synced[1], file.path.stat().st_size
        self.writer.disown()
        cut = synced + int(keep * (size - synced))
        with file.path.open("r+b") as disk:
            disk.truncate(cut)
            if is_zeroed:
                disk.truncate(size)
        self.may_be_torn |= size > synced
        self.reopen(self.recorded, is_damaged=False)

    @precondition(lambda self: not self.place.is_away)
    @rule(which=fractions, where=fractions, how=st.sampled_from(("flip", "flip", "flip", "cut", "zero")))
    def crash_and_damage(self, which: float, where: float, how: str) -> None:
        """Lose the process, and then the disk is not what it was."""
        self.writer.disown()
        paths = write_ahead_in(self.root)
        path = paths[int(which * len(paths))]
        before = path.read_bytes()
        offset = int(where * len(before))
        after = {
            "flip": before[:offset] + bytes([before[offset] ^ 4]) + before[offset + 1 :],
            "cut": before[:offset],
            "zero": before[:offset] + bytes(len(before) - offset),
        }[how]
        path.write_bytes(after)
        here = [each for each in self.kept if each.name == path.name]
        hit = [each for each in here if before[each.start : each.end] != after[each.start : each.end]]
        lost = {number for each in hit for number in each.numbers}
        # A last file that is cut between two groups is a file with fewer groups; nobody can tell.
        borders = {each.start for each in here} | {each.end for each in here} | {0, len(before)}
        is_told = not (how == "cut" and offset in borders and path == paths[-1])
        self.may_be_torn = True
        self.reopen([n for n in self.recorded if n not in lost], is_damaged=after != before and is_told)

    def reopen(self, expected: list[int], *, is_damaged: bool) -> None:
        """Open the log again, and see what is there."""
        self.place.is_away = False
        self.writer = self.made()
        opened = self.writer.open()
        self.settle()
        told = opened.damage + tuple(self.writer.damage)
        assert told or not is_damaged
        assert not told or is_damaged or self.may_be_torn
        stored = [int(each) for each in ids_in(self.root)]
        # What was recorded is there, and behind it perhaps some of what was not.
        unsure = [n for n in self.unsynced + self.owed if n not in set(expected)]
        more = stored[len(expected) :] if len(stored) > len(expected) else []
        assert stored[: len(expected)] == expected
        assert set(more) <= set(unsure)
        assert stored == sorted(set(stored))
        self.recorded, self.unsynced = stored, []
        # As with a queue, from which what was not recorded comes again, behind what is there.
        self.owed = [n for n in unsure if n > max(stored, default=0)]
        self.kept = [each for each in self.kept if (self.root / "spool/one" / each.name).exists()]
        self.may_be_torn = False

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            try:
                self.close_and_open()
                self.writer.close()
            finally:
                self.writer.disown()
                shutil.rmtree(self.root)


STEPS = settings(ON_DISK, stateful_step_count=25)
TestLogWriter = LogWriterMachine.TestCase
TestLogWriter.settings = STEPS

# -- planted bugs

_sync, _seal, _until, _told = WriteAhead.sync, Sealing.seal, Scanned.until, sealing.set_damage_aside


def take_nothing_back(self: WriteAhead) -> None:
    """Leave what was written in part."""


def sync_or_not(self: WriteAhead) -> None:
    """Say that it failed, and keep what was to be synced."""
    before = self.rows, self.bytes, self.row_bytes
    try:
        _sync(self)
    except DiskError:
        self.rows, self.bytes, self.row_bytes = before
        raise


def believe_a_later_sync(self: WriteAhead) -> None:
    """Take a sync that failed for one that is done."""
    try:
        os.fsync(self._number)
    except OSError as error:
        self._synced = (self.rows, self.bytes, self.row_bytes)
        raise DiskError(str(error)) from None
    self._synced = (self.rows, self.bytes, self.row_bytes)


def remove_what_is_not_sealed(self: Sealing, task: Task) -> None:
    """Remove the file whatever became of the segment."""
    try:
        _seal(self, task)
    finally:
        task.path.unlink(missing_ok=True)


def keep_what_was_taken_back(self: Scanned, last: int) -> Scanned:
    """Read a file to its end, though another has taken over before."""
    return _until(self, max(last, self.next - 1))


def give_up_at_damage(*_: Any) -> None:
    """Take all that is behind damage for damaged."""


def say_nothing(*arguments: Any) -> tuple[str, ...]:
    """Set damage aside without a word."""
    _told(*arguments)
    return ()


def begin_again(self: Scanned) -> int:
    """Give the numbers of the last file once more."""
    return self.first


PLANTED: list[tuple[Callable[..., Any], Any]] = [
    (take_nothing_back, lambda bug: patch.object(WriteAhead, "_take_back", bug)),
    (sync_or_not, lambda bug: patch.object(WriteAhead, "sync", bug)),
    (believe_a_later_sync, lambda bug: patch.object(WriteAhead, "sync", bug)),
    (remove_what_is_not_sealed, lambda bug: patch.object(Sealing, "seal", bug)),
    (keep_what_was_taken_back, lambda bug: patch.object(Scanned, "until", bug)),
    (give_up_at_damage, lambda bug: patch.object(write_ahead_scan, "_next_whole", bug)),
    (say_nothing, lambda bug: patch("celeriac.store.recovery.set_damage_aside", bug)),
    (begin_again, lambda bug: patch.object(Scanned, "next", property(bug))),
]


@pytest.mark.parametrize(("bug", "planted"), PLANTED, ids=[bug.__name__ for bug, _ in PLANTED])
def test_a_planted_bug_is_found(bug: Callable[..., Any], planted: Any) -> None:
    with planted(bug), pytest.raises((AssertionError, DiskError)):
        run_state_machine_as_test(LogWriterMachine, settings=settings(UNTIL_FOUND, stateful_step_count=10))
