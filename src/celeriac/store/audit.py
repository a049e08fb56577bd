"""Who did what: a line of JSON for each action, in a file that is only ever added to."""

import errno
import os
from pathlib import Path
from threading import Lock
from time import time
from typing import NamedTuple

import msgspec

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS, MODE

__all__ = ["Actor", "Audit"]


class Actor(NamedTuple):
    """Who does something, and what he may do."""

    name: str
    role: str


class Audit:
    """Notes actions before they are carried out, and how they ended. What cannot be noted is not done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = Lock()

    def check(self) -> None:
        """Raise DiskError if lines cannot be added: better when a program begins than when somebody acts."""
        self._write(b"", "actions are disabled")

    def note(self, actor: Actor, action: str, **fields: object) -> None:
        """Add a line for what is going to be done, and have it on the disk."""
        self._write(_line(actor, action, fields), "the action was not run")

    def note_end(self, actor: Actor, action: str, **fields: object) -> None:
        """Add a line for how it ended."""
        self._write(_line(actor, f"{action} done", fields), "the action was run")

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
                f"{self._path} cannot be written, {consequence}: {error.strerror}; free disk space, or "
                "name a writable file with --audit"
            ) from None


def _line(actor: Actor, action: str, fields: dict[str, object]) -> bytes:
    told = {"at": round(time(), 3), "user": actor.name, "role": actor.role, "action": action, **fields}
    return msgspec.json.encode(told) + b"\n"
