"""A message for RabbitMQ spelled out in one piece, so that one write sends it."""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from amqp.spec import Basic

from celeriac.errors import CallerError
from celeriac.transport.amqp_table import read_table, spell_table

__all__ = [
    "Properties",
    "cut_properties",
    "read_properties",
    "spell_accept",
    "spell_properties",
    "spell_publish",
    "spell_reject",
]

#: A frame: its type, channel and size, then the payload, then one byte that ends it.
_FRAME: Final = Struct(">BHI")
_END: Final = 0xCE
_FRAME_END: Final = bytes([_END])
#: What a frame takes beside its payload.
_FRAME_REST: Final = 8
_METHOD, _HEADER, _BODY = 1, 2, 3
#: The method, and a field that is reserved.
_PUBLISH: Final = Struct(">HHH").pack(*Basic.Publish, 0)
#: Whether the broker returns a message that no queue takes; never immediate.
_OPTIONAL, _MANDATORY = b"\0", b"\1"
#: Class, weight, and size of the body.
_CONTENT: Final = Struct(">HHQ")
#: Which properties there are, a bit for each, in the order of what follows.
_FLAGS: Final = Struct(">H")
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE, _PRIORITY = 0x8000, 0x4000, 0x2000, 0x1000, 0x0800
_CORRELATION_ID, _REPLY_TO, _EXPIRATION = 0x0400, 0x0200, 0x0100
#: Those before the two that differ from message to message.
_FIRST: Final = 0xF800
_MORE_FLAGS: Final = 0x0001
_TABLE: Final = Struct(">I")
#: What all our messages are, and whether they outlive a restart of the broker, and their priority.
_JSON: Final = b"\x10application/json\x05utf-8"
_OURS: Final = _CONTENT_TYPE | _CONTENT_ENCODING | _HEADERS | _DELIVERY_MODE | _PRIORITY
_MODES: Final = Struct(">BB")
#: A whole frame: the method, the number of a delivery, and a bit.
_SETTLEMENT: Final = Struct(">BHIHHQBB")
_SETTLEMENT_BYTES: Final = 13


class Properties(NamedTuple):
    """How a message is described."""

    content_type: str
    content_encoding: str
    headers: dict[str, Any]
    priority: int
    correlation_id: str
    reply_to: str


def spell_accept(channel: int, number: int, *, is_multiple: bool) -> bytes:
    """Return the frame that settles a delivery, and with ``is_multiple`` all before it."""
    return _SETTLEMENT.pack(_METHOD, channel, _SETTLEMENT_BYTES, *Basic.Ack, number, is_multiple, _END)


def spell_reject(channel: int, number: int, *, requeue: bool) -> bytes:
    """Return the frame that has a delivery put back, or dropped."""
    return _SETTLEMENT.pack(_METHOD, channel, _SETTLEMENT_BYTES, *Basic.Reject, number, requeue, _END)


def spell_publish(
    body: bytes,
    *,
    channel: int,
    exchange: str,
    routing_key: str,
    properties: bytes,
    frame_bytes: int,
    is_mandatory: bool = False,
) -> bytes:
    """Return the frames that publish a message; a mandatory one is returned if no queue takes it."""
    method = _spell_route(exchange, routing_key) + (_MANDATORY if is_mandatory else _OPTIONAL)
    header = _CONTENT.pack(Basic.Publish[0], 0, len(body)) + properties
    most = frame_bytes - _FRAME_REST
    if len(header) > most:
        raise CallerError(
            f"the message headers have {len(header)} bytes, more than the {most} that the broker accepts: "
            "shorten them"
        )
    parts = [body[at : at + most] for at in range(0, len(body), most)]
    frames = [(_METHOD, method), (_HEADER, header), *((_BODY, part) for part in parts)]
    return b"".join(
        [
            piece
            for kind, payload in frames
            for piece in (_FRAME.pack(kind, channel, len(payload)), payload, _FRAME_END)
        ]
    )


def spell_properties(
    headers: Mapping[str, object],
    *,
    is_persistent: bool,
    correlation_id: str = "",
    reply_to: str = "",
    priority: int = 0,
    expiration: str = "",
) -> bytes:
    """Return what describes a JSON message. The expiration is in milliseconds."""
    if not 0 <= priority <= 255:
        raise CallerError(f"invalid priority {priority}: use 0 to 255")
    flags = _OURS
    parts = [b"", _JSON, spell_table(headers), _MODES.pack(2 if is_persistent else 1, priority)]
    for flag, text in (
        (_CORRELATION_ID, correlation_id),
        (_REPLY_TO, reply_to),
        (_EXPIRATION, expiration),
    ):
        if text:
            flags |= flag
            parts.append(_short(text))
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def read_properties(described: bytes) -> Properties:
    """Return how a message is described, as far as that concerns us; ValueError if it is not spelled well."""
    try:
        (flags,) = _FLAGS.unpack_from(described)
        if flags & _MORE_FLAGS:
            raise ValueError("unknown message properties")
        at = _FLAGS.size
        texts = {}
        headers: dict[str, Any] = {}
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & flag:
                texts[flag], at = _read_short(described, at)
        if flags & _HEADERS:
            start, at = at + _TABLE.size, at + _TABLE.size + _TABLE.unpack_from(described, at)[0]
            headers = read_table(described, start, at)
        at += bool(flags & _DELIVERY_MODE)
        priority = described[at] if flags & _PRIORITY else 0
        at += bool(flags & _PRIORITY)
        for flag in (_CORRELATION_ID, _REPLY_TO):
            if flags & flag:
                texts[flag], at = _read_short(described, at)
    except (IndexError, struct_error) as error:
        raise ValueError("truncated message properties") from error
    if at > len(described):
        raise ValueError("truncated message properties")
    return Properties(
        # Where py-amqp reads, this is what becomes of a type that is not there.
        texts.get(_CONTENT_TYPE, "None"),
        texts.get(_CONTENT_ENCODING, "None"),
        headers,
        priority,
        texts.get(_CORRELATION_ID, ""),
        texts.get(_REPLY_TO, ""),
    )


def cut_properties(described: bytes) -> tuple[bytes, str, str]:
    """Return the first properties of a message, which many share, its correlation id and where to reply.

    What comes after these is left out. Properties that are not spelled well come back as they are.
    """
    try:
        (flags,) = _FLAGS.unpack_from(described)
        if flags & _MORE_FLAGS:
            return described, "", ""
        at = _FLAGS.size
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & flag:
                at += 1 + described[at]
        if flags & _HEADERS:
            at += _TABLE.size + _TABLE.unpack_from(described, at)[0]
        at += bool(flags & _DELIVERY_MODE) + bool(flags & _PRIORITY)
        first = _FLAGS.pack(flags & _FIRST) + described[_FLAGS.size : at]
        correlation_end = at + 1 + described[at] if flags & _CORRELATION_ID else at
        reply_end = correlation_end + 1 + described[correlation_end] if flags & _REPLY_TO else correlation_end
        correlation_id, reply_to = (
            described[at + 1 : correlation_end],
            described[correlation_end + 1 : reply_end],
        )
    except (IndexError, struct_error):
        return described, "", ""
    if reply_end > len(described):
        return described, "", ""
    return first, correlation_id.decode("utf-8", "replace"), reply_to.decode("utf-8", "replace")


def _read_short(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


@lru_cache(maxsize=256)
def _spell_route(exchange: str, routing_key: str) -> bytes:
    return _PUBLISH + _short(exchange) + _short(routing_key)


def _short(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > 255:
        raise CallerError(f"{text[:40]!r}... is too long for a name or an id: shorten it to 255 bytes")
    return bytes([len(data)]) + data
