"""How a recorder is, in a file that supervisors read: replaced as a whole, and as often as need be."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import DecodeError, Struct, ValidationError

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS, MODE, failed

__all__ = ["RecorderStatus", "ailment_of", "is_running", "read_status", "read_statuses", "write_status"]

_NAME: Final = "status.json"
#: Of the one file that we write, many times over.
_MAX_BYTES: Final = 64 * 1024
#: Recorders of one log that are told of: one or two run, and each name that was ever used leaves a folder.
_MOST: Final = 20
#: A recorder that has not written for so long hangs, or its disk does.
_STALE: Final = 15.0
_TROUBLES: Final = {
    "disk": "disk full or read-only",
    "dropping": "disk full or read-only, dropping events",
    "link": "disconnected from the broker",
    "failed": "stopped with an error",
    "stopped": "stopped by request",
}
_encode: Final = msgspec.json.Encoder().encode


class RecorderStatus(Struct, kw_only=True, omit_defaults=False):
    """What is told of a recorder."""

    #: Of this file.
    version: int = 1
    name: str
    recorder: str
    log: str
    pid: int
    started_at: float
    updated_at: float
    #: See :class:`~celeriac.node.recorder.Progress`, and ``failed`` for one that ended with an error.
    state: str
    recorded: int = 0
    pending: int = 0
    dropped: int = 0
    refused: int = 0
    gaps: int = 0
    segments: int = 0
    pending_seals: int = 0
    #: Of the log, where it is on this machine; else of what is not sealed yet.
    bytes: int | None = None
    last_event_at: float | None = None
    lag: float | None = None
    last_error: str = ""


_decode: Final = msgspec.json.Decoder(RecorderStatus).decode


def write_status(folder: Path, status: RecorderStatus) -> None:
    """Replace the status in the folder of a recorder. It need not outlive a crash: nothing does that it says.

    Raises DiskError; the one that was there is then still there.
    """
    path = folder / _NAME
    draft = path.with_name(f".{_NAME}.{secrets.token_hex(4)}.new")
    try:
        try:
            number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, MODE)
            with os.fdopen(number, "wb") as file:
                file.write(_encode(status) + b"\n")
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        raise failed(f"{path} cannot be written", error) from error


def read_status(folder: Path) -> RecorderStatus | None:
    """Return the status in the folder of a recorder; None if there is none, or it cannot be understood.

    Raises DiskError if it cannot be read.
    """
    path = folder / _NAME
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | FLAGS), "rb") as file:
            content = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed(f"{path} cannot be read", error) from error
    try:
        return _decode(content)
    except (DecodeError, ValidationError, UnicodeError):
        return None


def read_statuses(spool: Path) -> list[RecorderStatus]:
    """Return what the recorders with folders in a spool tell, the last first; not what cannot be read."""
    found = []
    with suppress(OSError):
        for folder in spool.iterdir():
            with suppress(DiskError):
                status = read_status(folder)
                if status is not None:
                    found.append(status)
    return sorted(found, key=lambda each: each.updated_at, reverse=True)[:_MOST]


def ailment_of(status: RecorderStatus, *, now: float, is_alive: Callable[[int], bool]) -> str:
    """Return what is wrong with a recorder that told this; nothing if it is alive and well."""
    trouble = _TROUBLES.get(status.state, "")
    because = f": {status.last_error}" if status.last_error else ""
    if status.state in ("stopped", "failed"):
        return f"{trouble}{because}"
    if not is_alive(status.pid):
        return f"process {status.pid} is not running"
    age = now - status.updated_at
    if age > _STALE:
        return f"no status update for {age:.0f} seconds{because}"
    return f"{trouble}{because}" if trouble else ""


def is_running(pid: int) -> bool:
    """Say whether there is a process of a number, whoever's it is."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True
