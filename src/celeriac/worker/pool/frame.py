"""What a worker and the processes of its pool say to each other: frames of msgpack over a socket."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from celeriac.errors import CallerError
from celeriac.model.outcome import Outcome
from celeriac.worker.pool.base import Job

__all__ = ["Assembly", "FromChild", "Setup", "ToChild", "decode", "frame"]

#: How many bytes follow, and what they are.
_HEAD: Final = Struct(">IB")


class ToChild(IntEnum):
    """What a worker says to a process of its pool."""

    #: What to load; the first frame.
    SETUP = 1
    #: A job to run.
    JOB = 2
    #: Give back what has not begun.
    TAKE_BACK = 3
    #: The job of this key takes too long.
    WARN = 4
    #: Give back what has not begun, and end when what runs has ended.
    LEAVE = 5


class FromChild(IntEnum):
    """What a process of a pool says to its worker."""

    #: The tasks are loaded.
    READY = 11
    #: They cannot be; why.
    BROKEN = 12
    #: A job has begun: its key, and when by the wall clock.
    STARTED = 13
    TOLD = 14
    PROGRESSED = 15
    ENDED = 16
    #: The keys of jobs that were taken back.
    RETURNED = 17


class Setup(NamedTuple):
    """What a process needs to know before it can run tasks."""

    #: Where the app is, as ``module:attribute``.
    app: str
    #: Where modules are looked for.
    path: list[str]
    log_level: int
    #: Settings that the app was given since it was made.
    overrides: dict[str, Any]


_TYPES: Final[Mapping[int, Any]] = {
    ToChild.SETUP: Setup,
    ToChild.JOB: Job,
    ToChild.TAKE_BACK: None,
    ToChild.WARN: int,
    ToChild.LEAVE: None,
    FromChild.READY: None,
    FromChild.BROKEN: str,
    FromChild.STARTED: tuple[int, float],
    FromChild.TOLD: tuple[int, str, dict[str, Any]],
    FromChild.PROGRESSED: tuple[int, str, bytes],
    FromChild.ENDED: tuple[int, Outcome],
    FromChild.RETURNED: list[int],
}
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(type_) for kind, type_ in _TYPES.items()}


def _plain(value: object) -> object:
    """Return what crosses in the place of something that msgpack has no spelling for."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value is a {type(value).__name__}; use strings, numbers, lists and dicts")


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def frame(kind: ToChild | FromChild, content: object = None) -> bytes:
    """Return a frame; raises CallerError for what cannot cross to another process."""
    try:
        body = _encode(content)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CallerError(f"cannot send it to another process: {error}") from None
    return _HEAD.pack(len(body), kind) + body


def decode(kind: int, body: bytes) -> Any:
    """Return what is in a frame."""
    return _DECODERS[kind].decode(body)


class Assembly:
    """Puts frames together again from the pieces that a socket gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def add(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Take a piece; yield the kind and body of each frame that is whole now."""
        buffer = self._buffer
        buffer += piece
        start, have = 0, len(buffer)
        while have - start >= _HEAD.size:
            length, kind = _HEAD.unpack_from(buffer, start)
            end = start + _HEAD.size + length
            if end > have:
                break
            yield kind, bytes(buffer[start + _HEAD.size : end])
            start = end
        del buffer[:start]
