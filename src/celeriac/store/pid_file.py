"""A pid file: it names the one process that runs under it.

Every reader that may replace or remove the file holds its lock meanwhile. So of two processes that start at
the same time, one takes the file and the other one reads its pid.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from celeriac.errors import CallerError
from celeriac.store.disk import FLAGS, failed
from celeriac.store.recorder_status import is_running

__all__ = ["pid_file"]

#: A pid file is public: monitoring programs of other users read it.
_MODE: Final = 0o644
#: A pid and a line break are shorter.
_MAX_BYTES: Final = 64


@contextmanager
def pid_file(path: Path | str) -> Iterator[None]:
    """Hold a pid file for the duration of the context.

    A file that a process left behind is replaced. Raises CallerError if the process it names is running or if
    it names none, DiskError if the file cannot be written.
    """
    path = Path(path)
    own = f"{os.getpid()}\n".encode()
    try:
        with _locked(path) as number:
            _check_free(path, os.pread(number, _MAX_BYTES, 0))
            os.ftruncate(number, 0)
            os.pwrite(number, own, 0)
    except OSError as error:
        raise failed(f"Cannot write pid file {path}", error) from error
    try:
        yield
    finally:
        # A file that cannot be removed is replaced at the next start. An empty one was just made here.
        with suppress(OSError), _locked(path) as number:
            if os.pread(number, _MAX_BYTES, 0) in {own, b""}:
                path.unlink()


def _check_free(path: Path, content: bytes) -> None:
    """Raise CallerError unless the file is empty or its process has ended."""
    if not content.strip():
        return
    try:
        pid = int(content)
    except ValueError:
        pid = 0
    if pid <= 0:
        raise CallerError(f"pid file {path} has no pid: remove it, or name another pid file")
    # Our own pid is that of an earlier process: a container starts again with the same pid.
    if pid != os.getpid() and is_running(pid):
        raise CallerError(f"pid file {path}: process {pid} is running; stop it, or name another pid file")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file, create it if it is missing, and hold its lock."""
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | FLAGS, _MODE)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            # Another process may have removed the file before the lock was granted.
            if _is_at(path, number):
                yield number
                return
        finally:
            os.close(number)


def _is_at(path: Path, number: int) -> bool:
    try:
        return os.path.samestat(os.stat(number), path.lstat())
    except FileNotFoundError:
        return False
