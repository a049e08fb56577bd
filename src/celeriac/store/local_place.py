"""A folder of this machine as the place of a log.

Every folder on the way to a file is opened by its number, and none through a link: no name, and nobody
who swaps a folder for a link meanwhile, leads out of it. A file is written as a draft in ``.new/`` and
renamed. What a crash leaves there is never listed, and is swept by a later write.
"""

import errno
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final

from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.store.disk import FLAGS, FOLDER_MODE, At, failed, make_folders, pass_by, write_new

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DAMAGED", "LocalPlace", "parts_of"]

#: Where files are that were set aside.
DAMAGED: Final = "damaged"
_DRAFTS: Final = ".new"
#: Seconds after which nobody writes a draft any more. One that is taken from a writer that was stopped all
#: that time costs nothing: its write fails, and is tried again.
_DRAFT_AGE: Final = 3600.0
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Of most file systems, and of object stores.
_MAX_PART_BYTES, _MAX_BYTES = 255, 1000
_ROOM: Final = "free disk space, or lower the retention with log_keep or log_max_bytes"
#: Somebody who removes the last file of a folder takes the folder along, perhaps just now.
_TRIES: Final = 20


def parts_of(name: str) -> list[str]:
    """Return the parts of a name; CallerError for one that could lead elsewhere, or is too long."""
    parts = name.split("/")
    sizes = [len(part.encode(errors="surrogateescape")) for part in parts]
    is_good = all(part and part[0] != "." and "\0" not in part for part in parts)
    if not is_good or max(sizes) > _MAX_PART_BYTES or sum(sizes) + len(sizes) > _MAX_BYTES:
        raise CallerError(
            f"invalid file name {name[:100]!r}: use parts separated by slashes, none empty or starting "
            f"with a dot, of at most {_MAX_PART_BYTES} bytes each and {_MAX_BYTES} in total"
        )
    return parts


class LocalPlace:
    """Files in a folder, which is made when the first of them is written."""

    is_local = True

    def __init__(self, folder: Path, *, at: At = pass_by) -> None:
        if "\0" in str(folder):
            raise ImproperlyConfigured(f"invalid folder {str(folder)!r}: remove the null character")
        #: Absolute, so that it stays the same when the process goes elsewhere.
        self.folder = folder.absolute()
        self.url = str(self.folder)
        self._at = at

    def names(self, under: str) -> list[str]:
        """Return the names of all files under a folder; what a link leads to is not among them."""
        return sorted(name for name, _ in self._entries(under))

    def sizes(self, under: str) -> dict[str, int]:
        """Return the same names, and the bytes of each."""
        sizes: dict[str, int] = {}
        for name, entry in self._entries(under):
            # Of one that somebody removes meanwhile there is nothing to tell.
            with suppress(FileNotFoundError):
                sizes[name] = entry.stat(follow_symlinks=False).st_size
        return dict(sorted(sizes.items()))

    def read(self, name: str) -> bytes:
        """Return all of a file."""
        with self._told(name, "read"), self._opened(name) as number, os.fdopen(os.dup(number), "rb") as file:
            return file.read()

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        with self._told(name, "read"), self._opened(name) as number:
            return os.fstat(number).st_size

    def write(self, name: str, content: "bytes | memoryview | pa.Buffer") -> None:
        """Make or replace a file: a draft, on the disk, which then takes its name, on the disk."""
        parts = parts_of(name)
        with self._told(name, "written"):
            for tries_left in reversed(range(_TRIES)):
                try:
                    self._write(parts, content)
                    break
                except FileNotFoundError:  # another writer has tidied up
                    if not tries_left:
                        raise
            # Nothing but what was asked for is left; drafts of others keep their folder.
            with suppress(OSError), self._within([]) as folder:
                os.rmdir(_DRAFTS, dir_fd=folder)

    def _write(self, parts: list[str], content: "bytes | memoryview | pa.Buffer") -> None:
        draft = f"{secrets.token_hex(8)}.new"
        with self._within([_DRAFTS], is_made=True) as drafts:
            _sweep(drafts)
            try:
                write_new(draft, content, within=drafts, at=self._at)
                self._move(drafts, draft, parts)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=drafts)
                raise

    def remove(self, name: str) -> None:
        """Remove a file, and the folders that it was the last one in."""
        *folders, last = parts_of(name)
        with self._told(name, "removed"):
            try:
                with self._within(folders) as folder:
                    os.unlink(last, dir_fd=folder)
            except FileNotFoundError:
                return
            while folders:
                *folders, last = folders
                try:
                    with self._within(folders) as folder:
                        os.rmdir(last, dir_fd=folder)
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                        return
                    raise

    def set_aside(self, name: str) -> str:
        """Move a file to ``damaged/``; a number is added to a name that is taken there."""
        *folders, last = parts_of(name)
        with self._told(name, "set aside"), self._within(folders) as folder:
            for number in count():
                aside = f"{DAMAGED}/{name}" + (f".{number}" if number else "")
                if not self._is_taken(aside):
                    break
            self._move(folder, last, parts_of(aside))
            os.fsync(folder)
        return aside

    def _move(self, source: int, old: str, parts: list[str]) -> None:
        """Have a file under its name, and have every folder on the way to it on the disk."""
        *folders, last = parts
        for tries_left in reversed(range(_TRIES)):
            try:
                with self._within(folders, is_made=True) as folder:
                    self._at("before-rename")
                    os.rename(old, last, src_dir_fd=source, dst_dir_fd=folder)
                    self._at("after-rename")
                    os.fsync(folder)
            except FileNotFoundError:
                if not tries_left:
                    raise
            else:
                return

    @contextmanager
    def _within(self, parts: Sequence[str], *, is_made: bool = False) -> Iterator[int]:
        """Open a folder in ours; one that is made is on the disk, whoever made it."""
        if is_made:
            make_folders(self.folder)
        # The folder itself may be a link: it is what somebody named.
        number = os.open(self.folder, _FOLDER)
        try:
            for part in parts:
                if is_made:
                    with suppress(FileExistsError):
                        os.mkdir(part, FOLDER_MODE, dir_fd=number)
                    os.fsync(number)
                inner = os.open(part, _FOLDER | FLAGS, dir_fd=number)
                os.close(number)
                number = inner
            yield number
        finally:
            os.close(number)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        *folders, last = parts_of(name)
        with self._within(folders) as folder:
            # To open a pipe would wait for somebody at its other end.
            number = os.open(last, os.O_RDONLY | os.O_NONBLOCK | FLAGS, dir_fd=folder)
        try:
            if not S_ISREG(os.fstat(number).st_mode):
                raise OSError(errno.EINVAL, "not a regular file: move it away")
            yield number
        finally:
            os.close(number)

    def _is_taken(self, name: str) -> bool:
        *folders, last = parts_of(name)
        try:
            with self._within(folders) as folder:
                os.stat(last, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _entries(self, under: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        parts = parts_of(under) if under else []
        with self._told(under or ".", "listed"), ExitStack() as stack:
            try:
                folder = stack.enter_context(self._within(parts))
            except FileNotFoundError:
                return
            yield from _entries(folder, f"{under}/" if under else "")

    @contextmanager
    def _told(self, name: str, what: str) -> Iterator[None]:
        try:
            yield
        except DiskError:
            raise
        except OSError as error:
            raise failed(f"{self.folder / name} cannot be {what}", error, room=_ROOM) from None


def _entries(folder: int, prefix: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield all that is no folder, at any depth."""
    with os.scandir(folder) as found:
        entries = [entry for entry in found if entry.name[0] != "."]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield f"{prefix}{entry.name}", entry
            continue
        try:
            inner = os.open(entry.name, _FOLDER | FLAGS, dir_fd=folder)
        except FileNotFoundError:
            continue
        try:
            yield from _entries(inner, f"{prefix}{entry.name}/")
        finally:
            os.close(inner)


def _sweep(drafts: int) -> None:
    """Remove the drafts that a crash left; another writer's, under way at this moment, stay."""
    now = time.time()
    with os.scandir(drafts) as entries:
        for entry in entries:
            # One that stays takes some room, and that is all; what is to be written matters more.
            with suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > _DRAFT_AGE:
                    os.unlink(entry.name, dir_fd=drafts)
