"""A message for RabbitMQ spelled out in one piece, so that one write sends it."""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from amqp.basic_message import Message as AmqpMessage
from amqp.spec import Basic

__all__ = ["cut_properties", "spell_properties", "spell_publish"]

#: A frame: its type, channel and size, then the payload, then one byte that ends it.
_FRAME: Final = Struct(">BHI")
_FRAME_END: Final = b"\xce"
#: What a frame takes beside its payload.
_FRAME_REST: Final = 8
_METHOD, _HEADER, _BODY = 1, 2, 3
#: The method, and a field that is reserved.
_PUBLISH: Final = Struct(">HHH").pack(*Basic.Publish, 0)
#: Neither mandatory nor immediate.
_NO_FLAGS: Final = b"\0"
#: Class, weight, and size of the body.
_CONTENT: Final = Struct(">HHQ")
#: Which properties there are, a bit for each, in the order of what follows.
_FLAGS: Final = Struct(">H")
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE, _PRIORITY = 0x8000, 0x4000, 0x2000, 0x1000, 0x0800
_CORRELATION_ID, _REPLY_TO = 0x0400, 0x0200
#: Those before the two that differ from message to message.
_FIRST: Final = 0xF800
_MORE_FLAGS: Final = 0x0001
_TABLE: Final = Struct(">I")


def spell_publish(
    body: bytes, *, channel: int, exchange: str, routing_key: str, properties: bytes, frame_bytes: int
) -> bytes:
    """Return the frames that publish a message."""
    method = _PUBLISH + _short(exchange) + _short(routing_key) + _NO_FLAGS
    header = _CONTENT.pack(Basic.Publish[0], 0, len(body)) + properties
    most = frame_bytes - _FRAME_REST
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
    headers: Mapping[str, object], *, is_persistent: bool, correlation_id: str = "", reply_to: str = ""
) -> bytes:
    """Return what describes a JSON message."""
    try:
        spelled = _remembered(tuple(headers.items()), is_persistent=is_persistent)
    except TypeError:  # a header that cannot be remembered, such as a list
        spelled = _properties(headers, is_persistent=is_persistent)
    if not correlation_id and not reply_to:
        return spelled
    # These two come next in the order that AMQP gives them, so that the rest can be remembered.
    (flags,) = _FLAGS.unpack_from(spelled)
    parts = [spelled[_FLAGS.size :]]
    for flag, text in ((_CORRELATION_ID, correlation_id), (_REPLY_TO, reply_to)):
        if text:
            flags |= flag
            parts.append(_short(text))
    return b"".join([_FLAGS.pack(flags), *parts])


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


@lru_cache(maxsize=64)
def _remembered(headers: tuple[tuple[str, Any], ...], *, is_persistent: bool) -> bytes:
    return _properties(dict(headers), is_persistent=is_persistent)


def _properties(headers: Mapping[str, object], *, is_persistent: bool) -> bytes:
    message = AmqpMessage(
        content_type="application/json",
        content_encoding="utf-8",
        application_headers=dict(headers),
        delivery_mode=2 if is_persistent else 1,
        priority=0,
    )
    spelled: bytes = message._serialize_properties()  # noqa: SLF001
    return spelled


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data
