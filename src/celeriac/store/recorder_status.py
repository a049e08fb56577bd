"""How a recorder is, in a file that supervisors read: replaced as a whole, and as often as need be."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import DecodeError, Struct, ValidationError

from celeriac.store.disk import FLAGS, MODE, failed

__all__ = ["RecorderStatus", "is_running", "read_status", "write_status"]

_NAME: Final = "status.json"
#: Of the one file that we write, many times over.
_MAX_BYTES: Final = 64 * 1024
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


def is_running(pid: int) -> bool:
    """Say whether there is a process of a number, whoever's it is."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True
