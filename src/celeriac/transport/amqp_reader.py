"""Messages of RabbitMQ cut out of what a socket gave."""

import struct
from collections import OrderedDict
from struct import Struct
from typing import Any, Final, Protocol

from amqp.basic_message import Message as AmqpMessage
from amqp.spec import Basic

from celeriac.errors import ConnectionLost
from celeriac.model.message import Message
from celeriac.transport.amqp_frames import cut_properties, read_properties
from celeriac.transport.base import Deliver

__all__ = [
    "BODY",
    "DELIVER",
    "FRAME",
    "FRAME_REST",
    "FRAME_START",
    "METHOD",
    "AmqpReader",
    "Descriptions",
    "Reading",
    "read_by_amqp",
]

#: A frame: its type, channel and size, the payload, and one byte that ends it.
FRAME: Final = Struct(">BHI")
FRAME_START, FRAME_REST = 7, 8
METHOD, BODY = 1, 3
#: The method, then the length of the consumer tag.
DELIVER: Final = Struct(">HH").pack(*Basic.Deliver)
#: The number of a delivered message, and whether it is not the first try.
_NUMBER: Final = Struct(">QB")
#: In the header of a message: class and weight, then the size of its body, then the properties.
_BODY_SIZE: Final = Struct(">4xQ")
#: How messages are described, remembered: those of one node are all described alike.
_MAX_DESCRIPTIONS: Final = 1024
_MAX_DESCRIPTION_BYTES: Final = 1024
#: In the first byte of how a message is described: it names what it answers to, or where to reply.
_IS_REPLY: Final = 0x06
_NO_BODY: Final = Struct(">HHQ").pack(Basic.Deliver[0], 0, 0)

#: Content type, encoding and headers, and why they could not be read.
_Description = tuple[str, str, dict[str, object], str]
#: Those that were read, by their bytes.
Descriptions = OrderedDict[bytes, _Description]


class Reading(Protocol):
    """Somebody that messages come for, by the tag of a consumer."""

    @property
    def max_bytes(self) -> int:
        """How long a message may be."""

    @property
    def is_for_tasks(self) -> bool:
        """Whether no two messages are described alike, and all that is known of them is wanted."""

    def receiver(self, number: int) -> Deliver:
        """Return what is to be done with a message of a number."""


class AmqpReader:
    """Cuts out the messages of one link, for whom they are."""

    def __init__(self, address: str, descriptions: Descriptions) -> None:
        self._address = address
        #: By channel and consumer tag.
        self.consumers: dict[tuple[int, bytes], Reading] = {}
        #: Bytes of a body that is too long, and still to be thrown away.
        self.unwanted = 0
        #: How much there must be of a message to go on.
        self.needed = 0
        self._descriptions = descriptions

    def cut(self, data: bytes, start: int, end: int, channel: int) -> tuple[Deliver, Message, int] | None:
        """Return one message with its receiver and where it ends; None if it is not all there.

        Its first frame is from ``start`` to ``end``.
        """
        begin = start + FRAME_START
        # RabbitMQ writes the frames of one message in one go, so nothing stands between them.
        try:
            _, _, length = FRAME.unpack_from(data, end)
            header, end = end + FRAME_START, end + FRAME_REST + length
            if end > len(data):
                return None
            (missing,) = _BODY_SIZE.unpack_from(data, header)
            described = data[header + _BODY_SIZE.size : end - 1]
            tag_at = begin + len(DELIVER)
            tag_end = tag_at + 1 + data[tag_at]
            consumer = self.consumers[channel, data[tag_at + 1 : tag_end]]
            is_too_long = missing > consumer.max_bytes
            if is_too_long:
                self.unwanted, missing = missing, 0
            if end + missing > len(data):
                self.needed = end + missing - start
                return None
            parts = []
            while missing > 0:
                kind, _, length = FRAME.unpack_from(data, end)
                if kind != BODY:
                    raise ConnectionLost(f"the broker at {self._address} sent a frame out of order")
                part = data[end + FRAME_START : end + FRAME_START + length]
                end += FRAME_REST + length
                missing -= length
                parts.append(part)
        except struct.error:
            return None
        if end > len(data):
            return None
        number, is_redelivered = _NUMBER.unpack_from(data, tag_end)
        exchange_at = tag_end + _NUMBER.size
        key_at = exchange_at + 1 + data[exchange_at]
        routing_key = data[key_at + 1 : key_at + 1 + data[key_at]].decode("utf-8", "replace")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if consumer.is_for_tasks:
            exchange = data[exchange_at + 1 : key_at].decode("utf-8", "replace")
            message = _task(body, described, routing_key, exchange, is_redelivered=bool(is_redelivered))
        else:
            message = self._known(body, described, routing_key)
        if is_too_long:
            message = message._replace(fault="body-size")
        return consumer.receiver(number), message, end

    def _known(self, body: bytes, described: bytes, routing_key: str) -> Message:
        """Return a message that many others are described like."""
        correlation_id = reply_to = ""
        if described and described[0] & _IS_REPLY:
            described, correlation_id, reply_to = cut_properties(described)
        content_type, content_encoding, headers, fault = self._describe(described)
        return Message(
            body, content_type, content_encoding, headers, routing_key, fault, correlation_id, reply_to
        )

    def _describe(self, described: bytes) -> _Description:
        """Return content type, encoding and headers out of the properties of a message.

        What differs from message to message is not in ``described``, so that it can be remembered.
        """
        try:
            return self._descriptions[described]
        except KeyError:
            pass
        message = AmqpMessage()
        try:
            message.inbound_header(_NO_BODY + described)
        except Exception:  # noqa: BLE001 - a peer wrote this, and py-amqp says in many ways that it is wrong
            description: _Description = ("", "", {}, "properties")
        else:
            read = read_by_amqp(message)
            description = (read.content_type, read.content_encoding, dict(read.headers), "")
        if len(described) <= _MAX_DESCRIPTION_BYTES:
            self._descriptions[described] = description
        if len(self._descriptions) > _MAX_DESCRIPTIONS:
            self._descriptions.popitem(last=False)
        return description


def read_by_amqp(message: Any) -> Message:
    """Return what py-amqp read, with all that every message has."""
    body = message.body
    headers = message.properties.get("application_headers")
    return Message(
        body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body),
        str(message.properties.get("content_type")),
        str(message.properties.get("content_encoding")),
        headers if isinstance(headers, dict) else {},
        str((message.delivery_info or {}).get("routing_key", "")),
        "",
        _text(message.properties.get("correlation_id")),
        _text(message.properties.get("reply_to")),
    )


def _task(body: bytes, described: bytes, routing_key: str, exchange: str, *, is_redelivered: bool) -> Message:
    """Return a message that is described like no other."""
    try:
        content_type, content_encoding, headers, priority, correlation_id, reply_to = read_properties(
            described
        )
    except ValueError:
        fault = "properties"
        return Message(body, "", "", {}, routing_key, fault, exchange=exchange, is_redelivered=is_redelivered)
    return Message(
        body,
        content_type,
        content_encoding,
        headers,
        routing_key,
        "",
        correlation_id,
        reply_to,
        exchange,
        priority,
        is_redelivered,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
