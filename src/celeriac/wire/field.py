"""The fields of control messages, each checked by itself.

What cannot be taken raises :class:`~celeriac.errors.PeerError` with the reason.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Final, TypeGuard

from celeriac.errors import PeerError
from celeriac.model.clock import NO_CLOCK, clock_value

__all__ = [
    "MAX_NAME_BYTES",
    "is_name",
    "read_arguments",
    "read_clock",
    "read_destination",
    "read_expiry",
    "read_method",
    "read_text",
    "read_ticket",
]

#: Node names, tickets and routing keys. AMQP has no room for more, and closes the channel of whoever tries.
MAX_NAME_BYTES: Final = 255

_METHOD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def is_name(value: object) -> TypeGuard[str]:
    """Tell whether a value can name a node, a ticket or a routing key."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_NAME_BYTES
        and value.isprintable()  # also no half of a surrogate pair, so that it can be encoded
        and len(value.encode()) <= MAX_NAME_BYTES
    )


def read_method(value: object) -> str:
    """Return the name of a command."""
    if not isinstance(value, str) or not _METHOD.fullmatch(value):
        raise PeerError("method")
    return value


def read_arguments(value: object) -> dict[str, object]:
    """Return the arguments of a command, by name."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PeerError("arguments")
    return value


def read_destination(value: object) -> tuple[str, ...]:
    """Return the nodes that a request names; none of them for all nodes."""
    if value is None:
        return ()
    # Celery: takes a text too, and then any node whose name is a part of it feels addressed.
    if not isinstance(value, list) or not all(map(is_name, value)):
        raise PeerError("destination")
    return tuple(value)


def read_text(value: object, reason: str, *, most: int) -> str | None:
    """Return a text of at most so many characters, None for none."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > most:
        raise PeerError(reason)
    return value


def read_ticket(value: object) -> str | None:
    """Return what tells the replies to one request from others."""
    if value is not None and not is_name(value):
        raise PeerError("ticket")
    return value


def read_clock(headers: Mapping[str, object]) -> int | None:
    """Return the sender's clock; 0 when it sent none, None when it sent what is no clock."""
    raw = headers.get("clock")
    return NO_CLOCK if raw is None else clock_value(raw)


def read_expiry(headers: Mapping[str, object]) -> float:
    """Return when the sender stops waiting, by its wall clock; 0 for never, and for what is no moment."""
    raw = headers.get("expires")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return 0.0
    try:
        return max(0.0, float(raw)) if isfinite(raw) else 0.0
    except OverflowError:  # an integer that no float holds
        return 0.0
