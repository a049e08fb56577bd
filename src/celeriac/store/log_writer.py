"""Writes a log: events go to a write-ahead file at once, and from there into segments.

What was synced outlives a crash of the process and of the machine. Sequence numbers have no two events,
whatever happens: a file stands for the numbers up to where the next one begins, and is sealed only when
there is a next one.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from time import time
from types import TracebackType
from typing import Final, NamedTuple, Self
from weakref import WeakSet

import pyarrow as pa

from celeriac.errors import CallerError, DiskError
from celeriac.model.events import Event
from celeriac.store.catalogue import FIRST
from celeriac.store.columns import to_batch
from celeriac.store.disk import At, pass_by
from celeriac.store.place import Place
from celeriac.store.recovery import Recovered, recover
from celeriac.store.sealer import Sealer
from celeriac.store.sealing import Sealing, Task
from celeriac.store.spool import Spool
from celeriac.store.write_ahead import WriteAhead

__all__ = ["LogWriter", "Opened"]

_HOUR: Final = 3600.0
#: Seconds until what could not be sealed is tried again: an object store is away for minutes, not moments.
_RETRY_AFTER: Final = 5.0
#: Seconds for which one waits for a file to be sealed: many times what the largest takes. An object store, or
#: the network before it, can hang without a word.
_PATIENCE: Final = 10.0


class Opened(NamedTuple):
    """What a writer found."""

    recorder: str
    #: When the last event was received that is in the log; None if there is none.
    last_received_at: float | None
    #: The number that the next event gets.
    next_sequence: int
    #: What was damaged, one sentence each. It was set aside, and the rest is kept.
    damage: tuple[str, ...]


class LogWriter:
    """Records events under the name of one recorder, until it is closed.

    Events are recorded once :meth:`sync` has returned. Where :meth:`append` or :meth:`sync` raises DiskError,
    what it was about is not in the log, and can be appended again: after ``append`` those events, after
    ``sync`` all since the last sync. :meth:`tick` is to be called now and then; it raises DiskError for what
    could not be sealed, which costs nothing yet, and is tried again.

    Several threads may use one. A forked child may not: it has to open one of its own, with another name.
    """

    def __init__(
        self,
        place: Place,
        *,
        spool: Path,
        name: str,
        redact: Callable[[pa.RecordBatch], pa.RecordBatch],
        segment_bytes: int,
        segment_age: float,
        now: Callable[[], float] = time,
        at: At = pass_by,
        retry_after: float = _RETRY_AFTER,
        patience: float = _PATIENCE,
    ) -> None:
        self._place = place
        self._spool = Spool(spool, name)
        self._redact = redact
        self._segment_bytes = segment_bytes
        self._segment_age = segment_age
        self._now = now
        self._at = at
        #: Everything that was found damaged, also while files were sealed.
        self.damage: list[str] = []
        #: Events that were synced.
        self.recorded = 0
        self._retry_after = retry_after
        self._patience = patience
        self._sealing, self._sealer = self._seals()
        self._lock = RLock()
        self._process = 0
        self._recorder = ""
        self._file: WriteAhead | None = None
        #: When the first event of the file was appended.
        self._begun_at = 0.0
        self._last_received_at: float | None = None
        self._is_roll_due = False
        #: The next file may be there, and what is behind its number in this one would not count any more.
        self._must_roll = False
        self._roll_error: DiskError | None = None
        #: When the first event was received that may not be sealed.
        self._unsealed_since = 0.0
        #: The file is not at its path any more: nothing that is written to it would be recorded.
        self._is_gone = False
        self._lost_since: float | None = None

    @property
    def sealed(self) -> int:
        """How many segments were written."""
        return self._sealing.sealed

    @property
    def pending_seals(self) -> int:
        """How many files wait to be sealed, with the one that is."""
        return self._sealer.pending

    @property
    def unsynced(self) -> int:
        """How many events were appended, and are not recorded yet."""
        return self._file.unsynced if self._file is not None else 0

    def open(self) -> Opened:
        """Take the spool, mend what a crash left, and go on behind it; what was left is sealed.

        Raises ImproperlyConfigured while another recorder of this name runs, and DiskError if the disk
        or, where something has to be set aside, the place cannot be used.
        """
        with self._lock:
            if self._file is not None:
                raise CallerError("the writer is already open")
            self._spool.lock()
            try:
                return self._open()
            except BaseException:
                self._spool.release()
                raise

    def append(self, events: Sequence[Event]) -> None:
        """Write events behind all others; they are recorded by the next sync."""
        if not events:
            return
        with self._lock:
            file = self._writable()
            batch = self._redact(to_batch(events, recorder=self._recorder, first=file.next))
            if not file.rows:
                self._begun_at = self._now()
                if not self._sealer.pending:
                    self._unsealed_since = events[0].local_received or self._begun_at
            self._at("append-before-write")
            try:
                file.append(batch)
            except DiskError:
                # It may be this file: it is as long as files may be, or is where the disk is bad.
                self._is_roll_due = bool(file.rows)
                raise
            self._at("append-after-write")
            self._last_received_at = events[-1].local_received or self._last_received_at

    def sync(self) -> None:
        """Return once all events that were appended are recorded."""
        with self._lock:
            file = self._opened()
            events = file.unsynced
            if not events:
                return
            self._at("sync-before-fsync")
            self._watch(file.sync)
            self._at("sync-after-fsync")
            self.recorded += events
            if self._is_roll_due:
                try:
                    self._roll()
                except DiskError as error:
                    # The events are recorded: to say anything else here would have them written twice.
                    self._roll_error = error

    def take_lost(self) -> float | None:
        """Return since when recorded events may be lost, once; None if none are.

        They are if their files were removed, or unmounted, before they were sealed.
        """
        since, self._lost_since = self._lost_since, None
        return since

    def tick(self) -> None:
        """Begin another file, if this one is large or old enough, and have it sealed."""
        try:
            with self._lock:
                file = self._opened()
                error, self._roll_error = self._roll_error, None
                if error is not None:
                    raise error
                self._is_roll_due = self._is_roll_due or self._is_due(file)
                if self._is_roll_due and not file.unsynced:
                    self._roll()
        finally:
            # On a disk that is full no file can be begun, and room is made by sealing those that wait.
            self._sealer.wake()
        self._sealer.resume()

    def close(self) -> None:
        """Sync, seal, and let another have the spool. Raises DiskError for what failed; it is closed anyway.

        What could not be sealed stays in the spool, and is when the next one opens.
        """
        with self._lock:
            # What a child inherited is none of its business.
            if self._file is None or self._process != os.getpid():
                return
            try:
                self.sync()
                if self._file.rows:
                    self._roll()
            finally:
                try:
                    self._sealer.drain()
                finally:
                    self._sealing.end()
                    self._let_go()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Opened:
        found = recover(self._spool, self._place)
        self._sealing, self._sealer = self._seals()
        self._sealing.begin(oldest=found.oldest)
        self._is_roll_due = self._must_roll = False
        self._last_received_at = found.last_received_at
        self._unsealed_since = found.left_since or found.last_received_at or self._now()
        if found.beyond is not None:
            found = self._begin_again(
                found,
                f"the log has events up to number {found.beyond:,} of {found.recorder}, but the spool "
                f"{self._spool.folder} has only those before {found.first:,}: the spool was restored from "
                "a copy, or is a copy that another recorder uses",
            )
        elif self._spool.is_copy and found.is_listed:  # else what was left cannot be sealed now
            found = self._begin_again(
                found,
                f"the spool {self._spool.folder} of {found.recorder} is a copy: the original may be in use",
            )
        self._recorder = found.recorder
        self.damage.extend(found.damage)
        file, left = self._first_file(found)
        self._file = file
        self._process = os.getpid()
        _open_writers.add(self)
        self._sealer.put_all(task for task in left if task.path != file.path)
        return Opened(found.recorder, found.last_received_at, found.first, found.damage)

    def _seals(self) -> tuple[Sealing, Sealer[Task]]:
        """Return what seals files in one run; one that hangs since the last has nothing to do with it."""
        sealing = Sealing(self._place, name=self._spool.folder.name, report=self.damage.append, at=self._at)
        return sealing, Sealer(sealing.seal, retry_after=self._retry_after, patience=self._patience)

    def _begin_again(self, found: Recovered, reason: str) -> Recovered:
        """Take another id, since another recorder may have ours; what was left is sealed first."""
        for task in found.left:
            self._sealing.seal(task)
        recorder = self._spool.renew_id()
        notice = f"{reason}. The new recorder id is {recorder}"
        return found._replace(
            recorder=recorder, first=FIRST, left=(), damage=(*found.damage, notice), oldest=FIRST, beyond=None
        )

    def _first_file(self, found: Recovered) -> tuple[WriteAhead, tuple[Task, ...]]:
        """Make the file to go on in, and return it with what is still to be sealed."""
        left = found.left
        try:
            return self._created(found.first), left
        except DiskError:
            # All but the last can go, and may be what fills the disk. That one tells where to go on.
            with suppress(DiskError):
                while len(left) > 1:
                    self._sealing.seal(left[0])
                    left = left[1:]
        return self._created(found.first), left

    def _created(self, first: int) -> WriteAhead:
        return WriteAhead.create(
            self._spool.folder,
            self._recorder,
            first,
            made_at=self._now(),
            last_received_at=self._last_received_at,
        )

    def _opened(self) -> WriteAhead:
        if self._file is None:
            raise CallerError("the writer is not open: call open(), or use it in a with statement")
        if self._process != os.getpid():
            raise CallerError("a writer cannot be used after a fork: open one with another name in the child")
        return self._file

    def _writable(self) -> WriteAhead:
        """Return a file that can be written to."""
        file = self._opened()
        if self._is_gone:
            self._reopen(file)
            file = self._opened()
        if self._must_roll or (file.is_broken and not file.unsynced):
            self._roll()
            file = self._opened()
        return file

    def _watch(self, step: Callable[[], None]) -> None:
        """Do a step with the file; if that is not at its path any more, the next append makes another."""
        try:
            step()
        except DiskError as error:
            self._is_gone = self._is_gone or error.errno == errno.ESTALE
            raise

    def _reopen(self, file: WriteAhead) -> None:
        """Go on in another file, in folders that are made again if need be."""
        if self._lost_since is None:
            self._lost_since = self._unsealed_since
        file.close()
        self._sealing.end()
        self._spool.release()
        self._spool.lock()
        try:
            self._open()
        except BaseException:
            self._spool.release()
            raise
        self._is_gone = False

    def _is_due(self, file: WriteAhead) -> bool:
        if not file.rows:
            return False
        now = self._now()
        # A clock that was set back says nothing about the age any more.
        is_old = not 0 <= now - self._begun_at < self._segment_age
        is_other_hour = now // _HOUR != self._begun_at // _HOUR
        return is_old or is_other_hour or max(file.bytes, file.row_bytes) >= self._segment_bytes

    def _roll(self) -> None:
        """Go on in another file; all in this one is synced.

        If that fails, the events that are there are as they were. But the other file may be there already,
        or after a crash, and its name says where this one ends: so nothing more is written to this one then.
        """
        old = self._opened()
        self._watch(old.check)
        self._at("roll-before-create")
        try:
            self._file = self._created(old.next)
        except BaseException:
            self._is_roll_due = True
            self._must_roll = self._must_roll or WriteAhead.may_exist(self._spool.folder, old.next)
            raise
        self._at("roll-after-create")
        self._is_roll_due = self._must_roll = False
        old.close()
        if old.rows:
            self._sealer.put(Task(old.path, self._file.first - 1))

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._spool.release()
        _open_writers.discard(self)

    def disown(self) -> None:
        """Leave all to the parent, in a forked child: the lock would else be held when the parent dies."""
        self._lock = RLock()
        if self._file is not None:
            self._file.close()
        self._spool.release()


_open_writers: WeakSet[LogWriter] = WeakSet()


def _disown() -> None:
    for writer in list(_open_writers):
        writer.disown()


os.register_at_fork(after_in_child=_disown)
