"""One write-ahead file: where events are first, before they are sealed.

An event is recorded once :meth:`WriteAhead.sync` has returned. What fails is taken back: the file then ends
where it ended before, and the same events can be written again.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS, failed
from celeriac.store.frame import Header, encode_rows, pack_header
from celeriac.store.spool import write_whole
from celeriac.store.write_ahead_scan import SUFFIX, Scanned, scan, scan_folder, write_ahead_files

__all__ = ["Scanned", "WriteAhead", "scan", "scan_folder", "write_ahead_files"]

#: How the system says that a file, or a folder on the way to it, is not there.
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class WriteAhead:
    """A file that rows are written to, in frames, until another one takes over."""

    def __init__(self, path: Path, number: int, *, first: int, size: int) -> None:
        self.path = path
        #: The sequence number of the first event in it.
        self.first = first
        self.rows = 0
        #: How long it is.
        self.bytes = size
        #: What its rows take in memory.
        self.row_bytes = 0
        #: What could not be written could not be taken back either: nothing more can be written.
        self.is_broken = False
        self._number = number
        #: Rows, bytes and bytes in memory that outlive a crash.
        self._synced = (0, size, 0)

    @classmethod
    def create(
        cls,
        folder: Path,
        recorder: str,
        first: int,
        *,
        made_at: float = 0.0,
        last_received_at: float | None = None,
    ) -> "WriteAhead":
        """Make a file for the events from number ``first`` on, in place of one of the same name.

        On return it outlives a crash. Raises DiskError if that cannot be; it may be there nevertheless, or
        be there after a crash, if :meth:`may_exist` says so.
        """
        path = cls.path_in(folder, first)
        header = pack_header(Header(recorder, first, made_at, last_received_at))
        write_whole(path, header)
        try:
            number = os.open(path, os.O_RDWR | FLAGS)
        except OSError as error:
            raise _failed(path, "opened", error) from error
        return cls(path, number, first=first, size=len(header))

    @staticmethod
    def path_in(folder: Path, first: int) -> Path:
        """Return where the file for the events from number ``first`` on is."""
        return folder / f"{first:012d}{SUFFIX}"

    @classmethod
    def may_exist(cls, folder: Path, first: int) -> bool:
        """Say whether there is a file for the events from number ``first`` on, as far as can be told."""
        try:
            cls.path_in(folder, first).lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    @property
    def next(self) -> int:
        """The sequence number that the next event gets."""
        return self.first + self.rows

    @property
    def unsynced(self) -> int:
        """How many events may be lost in a crash."""
        return self.rows - self._synced[0]

    def append(self, batch: pa.RecordBatch) -> None:
        """Write rows behind the others. Raises DiskError if that fails; none of them is there then."""
        if self.is_broken:
            self._cut()
        try:
            frame = encode_rows(batch, first=self.next)
            _write(self._number, frame, self.bytes)
            self._count(batch, len(frame))
        except OSError as error:
            self._take_back()
            raise _failed(self.path, "written", error) from error
        except BaseException:
            # Such as an interruption, when some of it may be there.
            self._take_back()
            raise

    def sync(self) -> None:
        """Have all rows on the disk. Raises DiskError if that fails; none since the last sync is there then.

        After a failed fsync nobody knows what is on the disk, and another one would not tell. So those rows
        have to be written again. The same is true if the file is not at its path any more: it may return.
        """
        if not self.unsynced:
            return
        try:
            os.fsync(self._number)
            self.check()
        except OSError as error:
            self.rows, self.bytes, self.row_bytes = self._synced
            self._take_back()
            if isinstance(error, DiskError):
                raise
            raise _failed(self.path, "synced", error) from error
        self._synced = (self.rows, self.bytes, self.row_bytes)

    def check(self) -> None:
        """Raise DiskError with ESTALE unless the file is at its path.

        It is not there once somebody removed it or its folder, or unmounted or covered the file system. What
        is written to it then is gone as soon as it is closed, though no write fails. A closed file counts as
        gone, also if its folder has returned.
        """
        try:
            found = self.path.lstat()
        except OSError as error:
            if error.errno not in _GONE:
                raise _failed(self.path, "found", error) from error
            found = None
        if found is None or self._number < 0 or not os.path.samestat(found, os.fstat(self._number)):
            raise _failed(self.path, "kept", OSError(errno.ESTALE, "removed, or hidden by a mount"))

    def close(self) -> None:
        """Let go of the file. Rows that were not synced may be there or not."""
        number, self._number = self._number, -1
        if number >= 0:
            with suppress(OSError):  # what was promised is on the disk already
                os.close(number)

    def _count(self, batch: pa.RecordBatch, length: int) -> None:
        """Take note of rows that are there."""
        self.bytes += length
        self.row_bytes += batch.nbytes
        self.rows += batch.num_rows

    def _take_back(self) -> None:
        """Cut off what was written in part."""
        try:
            os.ftruncate(self._number, self.bytes)
        except OSError:
            self.is_broken = True

    def _cut(self) -> None:
        """Try again to cut off what was written in part."""
        try:
            os.ftruncate(self._number, self.bytes)
        except OSError as error:
            raise _failed(self.path, "shortened", error) from error
        self.is_broken = False


def _write(number: int, content: bytes, offset: int) -> None:
    """Write all of something at a place in a file."""
    written = os.pwrite(number, content, offset)
    view = memoryview(content)
    while written < len(content):
        written += os.pwrite(number, view[written:], offset + written)


def _failed(path: Path, what: str, error: OSError) -> DiskError:
    return failed(f"the write-ahead file {path} cannot be {what}", error)
