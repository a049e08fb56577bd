"""Messages on Redis, as kombu wraps them, and what a message body may be.

Redis carries bytes alone, so kombu puts what AMQP has properties for into a JSON
document around the body.
"""

import bz2
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import DecodeError, Struct, ValidationError

from celeriac.config import KIB, MIB
from celeriac.errors import PeerError
from celeriac.model.message import Message

__all__ = ["MAX_ENVELOPE_BYTES", "body_of", "correlation_of", "envelope_bytes", "opened", "unwrap", "wrap"]

#: A body of the largest size, spelled in base 64, and room for headers.
MAX_ENVELOPE_BYTES: Final = 8 * MIB
#: What a compressed body may grow to.
MAX_BODY_BYTES: Final = 4 * MIB
#: What an envelope holds beside its body.
_MAX_REST_BYTES: Final = 64 * KIB
#: AMQP has one byte for it.
_MAX_PRIORITY: Final = 255


class _DeliveryInfo(Struct, gc=False):
    routing_key: str = ""
    exchange: Any = None
    redelivered: Any = None


class _Properties(Struct, gc=False):
    body_encoding: str | None = None
    delivery_info: _DeliveryInfo | None = None
    # Whatever a peer puts there: of no use if it is no text, but no reason to refuse the rest.
    correlation_id: Any = None
    reply_to: Any = None
    priority: Any = None


class _Wrapped(Struct, rename="kebab", gc=False):
    properties: _Properties
    content_type: str = ""
    content_encoding: str = ""
    headers: dict[str, Any] = {}


class _Base64(_Wrapped, gc=False):
    body: bytes = b""  # msgspec reads base 64 into bytes by itself, four times quicker than Python


class _Text(_Wrapped, gc=False):
    body: str = ""


_decode_base64: Final = msgspec.json.Decoder(_Base64).decode
_decode_wrapping: Final = msgspec.json.Decoder(_Wrapped).decode
_decode_text: Final = msgspec.json.Decoder(_Text).decode
_TOO_ODD: Final = (DecodeError, ValidationError, UnicodeError, RecursionError)


def envelope_bytes(body_bytes: int) -> int:
    """Return how long the envelope of a body can be: it is spelled in base 64, and there are headers."""
    return body_bytes * 4 // 3 + _MAX_REST_BYTES


def unwrap(data: bytes, *, max_bytes: int = MAX_ENVELOPE_BYTES) -> Message:
    """Read one envelope; raise PeerError for what is none."""
    if len(data) > max_bytes:
        raise PeerError("envelope-size")
    envelope: _Base64 | _Text
    try:
        envelope = _decode_base64(data)
        body = envelope.body
        if envelope.properties.body_encoding != "base64":
            raise DecodeError  # by chance the text reads like base 64
    except _TOO_ODD:
        envelope, body = _unwrap_text(data)
    properties = envelope.properties
    info = properties.delivery_info
    return Message(
        body,
        envelope.content_type,
        envelope.content_encoding,
        envelope.headers,
        "" if info is None else info.routing_key,
        "",
        _text(properties.correlation_id),
        _text(properties.reply_to),
        "" if info is None else _text(info.exchange),
        _priority(properties.priority),
        # Celery: kombu writes both when it puts a message back.
        (info is not None and info.redelivered is True) or envelope.headers.get("redelivered") is True,
    )


def opened(data: bytes, *, max_bytes: int = MAX_ENVELOPE_BYTES) -> Message:
    """Read one envelope; what is none becomes a message that tells why."""
    try:
        return unwrap(data, max_bytes=max_bytes)
    except PeerError as error:
        return Message(data, fault=str(error), correlation_id=correlation_of(data))


def correlation_of(data: bytes) -> str:
    """Return what a message answers to whose envelope was refused, if that can be read."""
    try:
        return _text(_decode_wrapping(data).properties.correlation_id)
    except _TOO_ODD:
        return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _priority(value: object) -> int:
    return value if type(value) is int and 0 <= value <= _MAX_PRIORITY else 0


def _unwrap_text(data: bytes) -> tuple[_Text, bytes]:
    """Read an envelope that spells its body in another way, as kombu may be told to."""
    try:
        envelope = _decode_text(data)
        if envelope.properties.body_encoding == "base64":
            return envelope, a2b_base64(envelope.body)  # with line breaks in it
        return envelope, envelope.body.encode("utf-8", "surrogatepass")
    except (*_TOO_ODD, ValueError):  # the last for what is not base 64
        raise PeerError("envelope") from None


def wrap(
    body: bytes,
    *,
    exchange: str,
    routing_key: str,
    headers: Mapping[str, object],
    delivery_tag: str,
    is_persistent: bool = False,
    correlation_id: str = "",
    reply_to: str = "",
    priority: int = 0,
    content_type: str = "application/json",
) -> bytes:
    """Return a body in its envelope: JSON, unless it is said to be something else."""
    # Celery: without these two, kombu writes neither.
    replies = {"correlation_id": correlation_id, "reply_to": reply_to}
    return msgspec.json.encode(
        {
            "body": b2a_base64(body, newline=False).decode("ascii"),
            "content-encoding": "utf-8" if content_type == "application/json" else "binary",
            "content-type": content_type,
            "headers": headers,
            "properties": {
                **{name: value for name, value in replies.items() if value},
                "delivery_mode": 2 if is_persistent else 1,
                "delivery_info": {"exchange": exchange, "routing_key": routing_key},
                "priority": priority,
                "body_encoding": "base64",
                "delivery_tag": delivery_tag,
            },
        }
    )


#: What unpacks a body, by the name in its header ``compression``.
_UNPACKERS: Final[Mapping[str, Callable[[], Any]]] = {
    "application/x-gzip": zlib.decompressobj,  # Celery: named after gzip, but it is plain zlib
    "application/x-bz2": bz2.BZ2Decompressor,
}


def body_of(message: Message, *, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the JSON text of a message, unpacked; raise PeerError if it may not be read.

    JSON is the only language: pickle runs code, and the others have no use here.
    """
    if message.fault:
        raise PeerError(message.fault)
    if message.content_type != "application/json":
        raise PeerError("content-type")
    if message.content_encoding.lower() not in {"utf-8", "utf8", "us-ascii"}:
        raise PeerError("content-encoding")
    compression = message.headers.get("compression")
    return message.body if compression is None else _unpack(message.body, compression, max_bytes)


def _unpack(packed: bytes, compression: object, max_bytes: int) -> bytes:
    """Unpack step by step, so that a small message cannot become a huge one."""
    unpacker = _UNPACKERS.get(compression) if isinstance(compression, str) else None
    if unpacker is None:
        raise PeerError("compression")
    stream = unpacker()
    try:
        body: bytes = stream.decompress(packed, max_bytes + 1)
    except (zlib.error, OSError, EOFError, ValueError):
        raise PeerError("compression") from None
    if len(body) > max_bytes:
        raise PeerError("body-size")
    if not stream.eof:
        raise PeerError("compression")
    return body
