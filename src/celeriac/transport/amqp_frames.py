"""A message for RabbitMQ spelled out in one piece, so that one write sends it."""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from amqp.basic_message import Message as AmqpMessage
from amqp.spec import Basic

__all__ = ["spell_properties", "spell_publish"]

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


def spell_properties(headers: Mapping[str, object], *, is_persistent: bool) -> bytes:
    """Return what describes a JSON message."""
    try:
        return _remembered(tuple(headers.items()), is_persistent=is_persistent)
    except TypeError:  # a header that cannot be remembered, such as a list
        return _properties(headers, is_persistent=is_persistent)


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
