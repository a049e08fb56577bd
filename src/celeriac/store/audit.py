"""Who did what: a line of JSON for each action, in a file that is only ever added to."""

import errno
import os
from pathlib import Path
from threading import Lock
from time import time

import msgspec

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS, MODE

__all__ = ["Audit"]


class Audit:
    """Notes actions before they are carried out, and how they ended. What cannot be noted is not done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = Lock()

    def check(self) -> None:
        """Raise DiskError if lines cannot be added: better when a program begins than when somebody acts."""
        self._write(b"", "so nobody could act")

    def note(self, action: str, *, user: str, role: str, **fields: object) -> None:
        """Add a line for what is going to be done, and have it on the disk."""
        self._write(_line(action, user=user, role=role, **fields), "so nothing was done")

    def note_end(self, action: str, *, user: str, role: str, **fields: object) -> None:
        """Add a line for how it ended."""
        self._write(_line(f"{action} done", user=user, role=role, **fields), "though it was done")

    def _write(self, line: bytes, consequence: str) -> None:
        try:
            with self._mutex:
                number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | FLAGS, MODE)
                try:
                    if os.write(number, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(number)
                finally:
                    os.close(number)
        except OSError as error:
            raise DiskError(
                f"{self._path} cannot be written, {consequence}: {error.strerror}; make room, or name "
                "a file that can be written with --audit"
            ) from None


def _line(action: str, *, user: str, role: str, **fields: object) -> bytes:
    told = {"at": round(time(), 3), "user": user, "role": role, "action": action, **fields}
    return msgspec.json.encode(told) + b"\n"
