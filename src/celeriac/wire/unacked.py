"""What Redis holds of a message that somebody took and did not settle yet, as kombu writes it.

In the hash ``unacked`` is, by a tag, a JSON list: the envelope, and the exchange and key that
lead back to its queue. Whoever finds an entry grown old puts its message back.
"""

import json
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import DecodeError, ValidationError

from celeriac.errors import PeerError
from celeriac.wire.envelope import MAX_ENVELOPE_BYTES, wrap

__all__ = ["Unacked", "priority_of", "read_unacked", "returned", "sheltered", "unacked_ending"]

#: Celery: kombu knows no higher priority on Redis.
_MAX_PRIORITY: Final = 9

_skip: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Unacked(NamedTuple):
    """One entry, read."""

    envelope: dict[str, Any]
    exchange: str
    routing_key: str


def unacked_ending(queue: str) -> bytes:
    """Return what follows ``[`` and an envelope in an entry, for a message that goes back to a queue."""
    # Celery: the default exchange, with the queue's name as the key, leads back to that queue alone.
    return b', "", ' + msgspec.json.encode(queue) + b"]"


def read_unacked(data: bytes) -> Unacked:
    """Read one entry; raise PeerError for what is none."""
    try:
        # As tolerant as kombu is, who wrote it perhaps: with NaN, and with halves of characters.
        match json.loads(data.decode("utf-8", "replace")):
            case [dict() as envelope, str() | None as exchange, str() | None as routing_key]:
                return Unacked(envelope, exchange or "", routing_key or "")
            case _:
                pass
    except (ValueError, RecursionError):
        pass
    raise PeerError("unacked")


def returned(envelope: dict[str, Any]) -> bytes:
    """Return an envelope that goes back to its queue, marked as redelivered; raise PeerError if it cannot."""
    headers = envelope.setdefault("headers", {})
    if isinstance(headers, dict):
        headers["redelivered"] = True
    properties = envelope.get("properties")
    info = properties.setdefault("delivery_info", {}) if isinstance(properties, dict) else None
    if isinstance(info, dict):
        info["redelivered"] = True
    try:
        return json.dumps(envelope).encode()
    except RecursionError:
        raise PeerError("unacked") from None


def priority_of(envelope: dict[str, Any]) -> int:
    """Return the priority of an envelope, as kombu reads it: from 0 to 9, and 0 for what is no number."""
    try:
        priority = int(envelope["properties"]["priority"])
    except (LookupError, TypeError, ValueError, OverflowError):
        return 0
    return min(max(priority, 0), _MAX_PRIORITY)


def sheltered(data: bytes, *, queue: str, tag: str) -> bytes | None:
    """Return an entry for what was in a queue and is no JSON, in an envelope; None for JSON.

    Celery: an entry that cannot be read ends the worker that finds it, and then the next one.
    """
    try:
        _skip(data)
    except (DecodeError, ValidationError, RecursionError):
        body = data[:MAX_ENVELOPE_BYTES]
        kind = "application/data"
        envelope = wrap(body, exchange="", routing_key=queue, headers={}, delivery_tag=tag, content_type=kind)
        return b"[" + envelope + unacked_ending(queue)
    return None
