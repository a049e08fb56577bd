"""RabbitMQ: py-amqp makes the link, and its socket is read in batches.

py-amqp asks the kernel nine times for one message and builds a dozen objects from
it. Here one read takes as much as there is; deliveries are cut out of it, and every
other frame goes to py-amqp as it would have by itself.
"""

import logging
import struct
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from struct import Struct
from time import monotonic
from typing import Any, Final

from amqp.basic_message import Message as AmqpMessage
from amqp.spec import Basic

from celeriac.config import MIB, Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Message, Queue
from celeriac.transport.amqp_consumer import AmqpConsumer
from celeriac.transport.amqp_frames import cut_properties, spell_properties, spell_publish
from celeriac.transport.base import Deliver
from celeriac.transport.kombu import KombuConnection

__all__ = ["AmqpConnection"]

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024
#: A frame: its type, channel and size, the payload, and one byte that ends it.
_FRAME: Final = Struct(">BHI")
_FRAME_START, _FRAME_REST = 7, 8
_METHOD, _BODY = 1, 3
#: The method, then the length of the consumer tag.
_DELIVER: Final = Struct(">HH").pack(*Basic.Deliver)
_ACK: Final = Struct(">HH").pack(*Basic.Ack)
#: The number of a published message, and whether all before it are meant too.
_CONFIRMED: Final = Struct(">QB")
#: The number of a delivered message, and whether it is not the first try.
_NUMBER: Final = Struct(">QB")
#: In the header of a message: class and weight, then the size of its body, then the properties.
_BODY_SIZE: Final = Struct(">4xQ")
#: How messages are described, remembered: those of one node are all described alike.
_MAX_DESCRIPTIONS: Final = 1024
_MAX_DESCRIPTION_BYTES: Final = 1024
#: In the first byte of how a message is described: it names what it answers to, or where to reply.
_IS_REPLY: Final = 0x06
#: Longer ones are thrown away as they come, unless a queue says otherwise: no other limit of ours
#: allows a fraction of it.
_MAX_BODY_BYTES: Final = 8 * MIB
#: What is this much short of a whole message is put together before it is looked at again.
_LONG_BYTES: Final = MIB
#: Messages published before answers are looked for: they must not fill the socket.
_LOOK_AFTER: Final = 128

_NO_BODY: Final = Struct(">HHQ").pack(Basic.Deliver[0], 0, 0)
#: How long the broker may take to read what we write, and to answer what we ask.
_PATIENCE: Final = 10.0
#: How long we wait for it to say goodbye.
_FAREWELL: Final = 1.0

#: Content type, encoding and headers, and why they could not be read.
_Description = tuple[str, str, dict[str, object], str]


class AmqpConnection(KombuConnection):
    """One link to RabbitMQ; what it publishes is confirmed by the broker."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._consumers: dict[tuple[int, bytes], AmqpConsumer] = {}
        self._descriptions: OrderedDict[bytes, _Description] = OrderedDict()
        self._publisher_id = 0
        self._published = 0
        self._confirmed = 0
        self._confirmed_early: set[int] = set()
        #: Bytes of a body that is too long, and still to be thrown away.
        self._unwanted = 0
        #: The beginning of a long message, and how much of it there must be to go on.
        self._growing: bytearray | None = None
        self._needed = 0
        # py-amqp stumbles over properties that a peer spelled badly, if it is the one who reads them.
        odd = (ValueError, LookupError, ArithmeticError, TypeError, RecursionError, struct.error)
        self._errors = (*self._errors, *odd)

    def open(self) -> None:
        """Connect now; any other call does so by itself."""
        super().open()
        link = self._kombu.connection
        link.on_blocked = self._on_blocked
        link.on_unblocked = self._on_unblocked

    def publish(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        routing_key: str = "",
        headers: Mapping[str, object] | None = None,
        is_persistent: bool = False,
        correlation_id: str = "",
        reply_to: str = "",
    ) -> None:
        """Send one JSON message."""
        with self._translated():
            channel = self._publishing_channel(exchange)
            link = self._kombu.connection
            frames = spell_publish(
                body,
                channel=channel.channel_id,
                exchange=exchange.name,
                routing_key=routing_key,
                properties=spell_properties(
                    headers or {},
                    is_persistent=is_persistent,
                    correlation_id=correlation_id,
                    reply_to=reply_to,
                ),
                frame_bytes=link.frame_max,
            )
            self._published += 1
            link.transport.write(frames)
            # A sign of life for py-amqp, which sends a heartbeat when nothing else was sent.
            link.bytes_sent += 1
        if self._published % _LOOK_AFTER == 0:
            self._read(0.0)

    def unconfirmed(self, timeout: float = 0.0) -> int:
        """Return how many of the last published messages the broker has not confirmed yet."""
        deadline = monotonic() + timeout
        while self._confirmed < self._published:
            left = deadline - monotonic()
            self._read(max(0.0, left))
            if left <= 0:
                break
        return self._published - self._confirmed

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        # Goodbye is said and answered, but a broker that hangs must not keep us.
        link = self._kombu._connection  # noqa: SLF001 - the property would connect
        transport = None if link is None else link._transport  # noqa: SLF001
        if transport is not None and transport.sock is not None:
            transport.sock.settimeout(_FAREWELL)
        super().close()
        if link is not None:
            link.collect()  # what went wrong may have left the socket open

    def _tls(self) -> bool | Mapping[str, object]:
        # Without the name that the certificate must bear, py-amqp takes anybody's. kombu fills it in.
        options = super()._tls()
        if not isinstance(options, Mapping):
            is_secure = options or self.settings.broker_url.startswith("amqps:")
            return {"server_hostname": None} if is_secure else False
        return {"server_hostname": None, **options}

    def _options(self) -> dict[str, object]:
        return {"read_timeout": _PATIENCE, "write_timeout": _PATIENCE}

    def _publishing_channel(self, exchange: Exchange) -> Any:
        is_new = self._publisher is None
        channel = super()._publishing_channel(exchange)
        if is_new:
            channel.confirm_select()
            self._publisher_id = channel.channel_id
            channel.events["basic_ack"].add(self._on_confirmed)
            channel.events["basic_nack"].add(self._on_refused)
        return channel

    def _on_confirmed(self, tag: int, is_multiple: bool) -> None:
        if is_multiple:
            self._confirmed = max(self._confirmed, tag)
            self._confirmed_early = {early for early in self._confirmed_early if early > tag}
        else:
            self._confirmed_early.add(tag)
        # Only what lies before the first gap is surely there in order.
        while self._confirmed + 1 in self._confirmed_early:
            self._confirmed += 1
            self._confirmed_early.remove(self._confirmed)

    def _on_blocked(self, reason: str) -> None:
        logger.warning("The broker at %s takes no messages for now: %s", self.address, reason)
        self.is_blocked = True

    def _on_unblocked(self) -> None:
        self.is_blocked = False

    def _on_refused(self, tag: int, is_multiple: bool) -> None:  # noqa: ARG002
        raise ConnectionLost(f"the broker at {self.address} could not keep message {tag}")

    def _consume(
        self, channel: Any, bound: Any, queue: Queue, deliver: Deliver, *, acknowledges: bool
    ) -> None:
        max_bytes = _MAX_BODY_BYTES if queue.max_bytes is None else queue.max_bytes
        consumer = AmqpConsumer(channel, deliver, max_bytes=max_bytes, acknowledges=acknowledges)

        def receive(message: AmqpMessage) -> None:
            key = str(message.delivery_info["routing_key"])
            body = message.body
            body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
            replies = [_text(message.properties.get(name)) for name in ("correlation_id", "reply_to")]
            ours = _message(body, _description(message), key, *replies)
            self._waiting.append((consumer.receiver(message.delivery_info["delivery_tag"]), ours))

        tag = f"celeriac.{queue.name}"
        self._consumers[channel.channel_id, tag.encode()] = consumer
        # py-amqp takes by itself what comes while it waits for an answer of the broker.
        bound.consume(tag, receive, no_ack=not acknowledges)

    def _deliver(self) -> int:
        try:
            return super()._deliver()
        finally:
            # If the link is lost the next call says so, and the messages come again.
            with suppress(ConnectionLost), self._translated():
                for consumer in self._consumers.values():
                    consumer.acknowledge()

    def _read(self, timeout: float | None) -> None:
        """Take what the socket has, waiting for the first bytes."""
        with self._translated():
            link = self._kombu.connection
            transport = link.transport
            try:
                with transport.having_timeout(timeout):
                    data = transport.sock.recv(_READ_BYTES)
            except (TimeoutError, BlockingIOError):
                return
            if not data:
                raise ConnectionLost(f"lost the broker at {self.address}: it closed the link")
            # A sign of life for py-amqp, which does not see what is cut out here.
            link.bytes_recv += 1
            # What is incomplete waits where py-amqp looks for it, in case it reads next.
            growing, self._growing = self._growing, None
            if growing is transport._read_buffer and growing is not None:  # noqa: SLF001
                growing += data
                if len(growing) < self._needed:
                    self._growing = growing
                    return
                data = b""
            self._needed = 0
            rest = self._take(bytes(transport._read_buffer) + data)  # noqa: SLF001
            # Of a long message each piece would otherwise copy all those before it.
            self._growing = bytearray(rest) if self._needed - len(rest) > _LONG_BYTES else None
            transport._read_buffer = rest if self._growing is None else self._growing  # noqa: SLF001

    def _take(self, data: bytes) -> bytes:
        """Cut out every message that is complete, and return the rest."""
        start, size = 0, len(data)
        link = self._kombu.connection
        while size - start >= _FRAME_REST:
            kind, channel, length = _FRAME.unpack_from(data, start)
            end = start + _FRAME_REST + length
            if end > size:
                break
            begin = start + _FRAME_START
            if kind == _BODY and self._unwanted > 0:
                self._unwanted -= length
                start = end
            elif kind == _METHOD and data.startswith(_ACK, begin) and channel == self._publisher_id:
                tag, is_multiple = _CONFIRMED.unpack_from(data, begin + len(_ACK))
                self._on_confirmed(tag, bool(is_multiple))
                start = end
            elif kind == _METHOD and data.startswith(_DELIVER, begin):
                delivery = self._delivery(data, start, end, channel)
                if delivery is None:
                    break
                deliver, message, start = delivery
                self._waiting.append((deliver, message))
            else:
                # py-amqp may read on by itself, so it gets to see what is there.
                payload = data[begin : end - 1]
                link.transport._read_buffer = data[end:]  # noqa: SLF001
                link.on_inbound_frame((kind, channel, payload))
                data = bytes(link.transport._read_buffer)  # noqa: SLF001
                start, size = 0, len(data)
        return data[start:]

    def _delivery(
        self, data: bytes, start: int, end: int, channel: int
    ) -> tuple[Deliver, Message, int] | None:
        """Return one message with its receiver and where it ends; None if it is not all there.

        Its first frame is from ``start`` to ``end``.
        """
        begin = start + _FRAME_START
        # RabbitMQ writes the frames of one message in one go, so nothing stands between them.
        try:
            _, _, length = _FRAME.unpack_from(data, end)
            header, end = end + _FRAME_START, end + _FRAME_REST + length
            if end > len(data):
                return None
            (missing,) = _BODY_SIZE.unpack_from(data, header)
            described = data[header + _BODY_SIZE.size : end - 1]
            tag_at = begin + len(_DELIVER)
            tag_end = tag_at + 1 + data[tag_at]
            consumer = self._consumers[channel, data[tag_at + 1 : tag_end]]
            is_too_long = missing > consumer.max_bytes
            if is_too_long:
                self._unwanted, missing = missing, 0
            if end + missing > len(data):
                self._needed = end + missing - start
                return None
            parts = []
            while missing > 0:
                kind, _, length = _FRAME.unpack_from(data, end)
                if kind != _BODY:
                    raise ConnectionLost(f"the broker at {self.address} sent a frame out of order")
                part = data[end + _FRAME_START : end + _FRAME_START + length]
                end += _FRAME_REST + length
                missing -= length
                parts.append(part)
        except struct.error:
            return None
        if end > len(data):
            return None
        number, _ = _NUMBER.unpack_from(data, tag_end)
        exchange_at = tag_end + _NUMBER.size
        key_at = exchange_at + 1 + data[exchange_at]
        routing_key = data[key_at + 1 : key_at + 1 + data[key_at]].decode("utf-8", "replace")
        correlation_id = reply_to = ""
        if described and described[0] & _IS_REPLY:
            described, correlation_id, reply_to = cut_properties(described)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        message = _message(body, self._describe(described), routing_key, correlation_id, reply_to)
        if is_too_long:
            message = message._replace(fault="body-size")
        return consumer.receiver(number), message, end

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
            description = _description(message)
        if len(described) <= _MAX_DESCRIPTION_BYTES:
            self._descriptions[described] = description
        if len(self._descriptions) > _MAX_DESCRIPTIONS:
            self._descriptions.popitem(last=False)
        return description


def _description(message: AmqpMessage) -> _Description:
    headers = message.properties.get("application_headers")
    return (
        str(message.properties.get("content_type")),
        str(message.properties.get("content_encoding")),
        headers if isinstance(headers, dict) else {},
        "",
    )


def _message(
    body: bytes, description: _Description, routing_key: str, correlation_id: str, reply_to: str
) -> Message:
    content_type, content_encoding, headers, fault = description
    return Message(
        body, content_type, content_encoding, headers, routing_key, fault, correlation_id, reply_to
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
