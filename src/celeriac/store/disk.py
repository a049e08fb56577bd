"""Files on a disk: made for their owner alone, never through a link, and there to stay once we say so."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from celeriac.errors import DiskError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FLAGS",
    "FOLDER_MODE",
    "MODE",
    "At",
    "failed",
    "make_folders",
    "pass_by",
    "sync_folder",
    "write_new",
]

#: For the owner alone: what tasks were given, and their ids, can tell whose they are.
MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
#: Is told of each point that a write passes; tests end the process there.
At = Callable[[str], object]

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_RIGHTS: Final = "give the user that runs Celeriac read and write permission"
_FIXES: Final = {
    errno.EFBIG: "raise the file size limit",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount it read-write, or use another folder",
    errno.ELOOP: "symbolic links are not followed: replace the link by its target",
    errno.ENOTDIR: "a file or a symbolic link is in the place of a folder: move it away",
    errno.EISDIR: "a folder is in the place of a file: move it away",
    errno.EXDEV: "use one file system for all of it",
    errno.EMFILE: "raise the open files limit",
    errno.EIO: "the disk reported an I/O error: check the kernel log",
}


def pass_by(_point: str) -> None:
    """Take no notice, as in production."""


def write_new(
    path: Path | str,
    content: "bytes | memoryview | pa.Buffer",
    *,
    within: int | None = None,
    at: At = pass_by,
) -> None:
    """Make a new file, and have it on the disk; ``within`` is the folder that its path is relative to."""
    at("before-write")
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, MODE, dir_fd=within)
    with os.fdopen(number, "wb") as file:
        file.write(content)
        file.flush()
        at("after-write")
        at("before-fsync")
        os.fsync(number)
    at("after-fsync")


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_folders(path: Path) -> None:
    """Make a folder, and those above it that are missing, and have their names on the disk."""
    if path.is_dir():
        return
    make_folders(path.parent)
    # Somebody else may make it at this moment; a file that is there is told of by who opens the folder.
    if not path.exists():
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
        sync_folder(path.parent)


def failed(what: str, error: OSError, *, room: str = "free disk space, or use a larger disk") -> DiskError:
    """Return what to raise where the system refused: what cannot be, why, and what helps.

    Its ``errno`` is that of the system: ENOENT for a file that is not there, ENOSPC for a full disk.
    ``room`` is what helps against that.
    """
    fix = room if error.errno in _FULL else _FIXES.get(error.errno or 0)
    made = DiskError(f"{what}: {error.strerror or error}" + (f"; {fix}" if fix else ""))
    made.errno = error.errno
    return made
