"""Who did what: a line of JSON for each action, in a file that is only ever added to."""

import os
from pathlib import Path
from threading import Lock
from time import time

import msgspec

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS
from celeriac.web.access import User

__all__ = ["Audit"]


class Audit:
    """Notes actions before they are carried out, and how they ended. What cannot be noted is not done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = Lock()

    def note(self, user: User, action: str, **fields: object) -> None:
        """Add a line, and have it on the disk."""
        told = {
            "at": round(time(), 3),
            "user": user.name,
            "role": user.role.value,
            "action": action,
            **fields,
        }
        line = msgspec.json.encode(told) + b"\n"
        try:
            with self._mutex:
                number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | FLAGS, 0o600)
                try:
                    os.write(number, line)
                    os.fsync(number)
                finally:
                    os.close(number)
        except OSError as error:
            raise DiskError(
                f"{self._path} cannot be written, so nothing was done: {error.strerror}; make room, or name "
                "another file with --audit"
            ) from None
