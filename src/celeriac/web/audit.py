"""Who did what: a line of JSON for each action, in a file that is only ever added to."""

import errno
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
        """Add a line for what is going to be done, and have it on the disk."""
        self._add(user, action, fields, "so nothing was done")

    def note_end(self, user: User, action: str, **fields: object) -> None:
        """Add a line for how it ended."""
        self._add(user, f"{action} done", fields, "though it was done")

    def _add(self, user: User, action: str, fields: dict[str, object], consequence: str) -> None:
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
                    if os.write(number, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(number)
                finally:
                    os.close(number)
        except OSError as error:
            raise DiskError(
                f"{self._path} cannot be written, {consequence}: {error.strerror}; make room, or name "
                "another file with --audit"
            ) from None
