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
from math import inf
from struct import Struct
from time import monotonic
from typing import Any, Final

from amqp.basic_message import Message as AmqpMessage
from amqp.spec import Basic

from celeriac.config import MIB, Settings
from celeriac.errors import ConnectionLost, NetworkError
from celeriac.model.message import Delivery, Exchange, Queue
from celeriac.transport.amqp_aside import AsideQueues, properties_aside
from celeriac.transport.amqp_consumer import AmqpConsumer
from celeriac.transport.amqp_frames import spell_properties, spell_publish
from celeriac.transport.amqp_reader import (
    BODY,
    DELIVER,
    FRAME,
    FRAME_REST,
    FRAME_START,
    METHOD,
    AmqpReader,
    Descriptions,
    read_by_amqp,
)
from celeriac.transport.amqp_tasks import AmqpTaskConsumer
from celeriac.transport.base import Deliver
from celeriac.transport.kombu import KombuConnection, milliseconds
from celeriac.transport.kombu_tasks import TaskConsumer, Ticket
from celeriac.transport.readiness import File, Wakeup, wait_readable

__all__ = ["AmqpConnection"]

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024
_ACK: Final = Struct(">HH").pack(*Basic.Ack)
#: The number of a published message, and whether all before it are meant too.
_CONFIRMED: Final = Struct(">QB")
#: Longer ones are thrown away as they come, unless a queue says otherwise: no other limit of ours
#: allows a fraction of it.
_MAX_BODY_BYTES: Final = 8 * MIB
#: What is this much short of a whole message is put together before it is looked at again.
_LONG_BYTES: Final = MIB
#: Messages published before answers are looked for: they must not fill the socket.
_LOOK_AFTER: Final = 128
#: How long the broker may take to read what we write, and to answer what we ask.
_PATIENCE: Final = 10.0
#: How long we wait for it to say goodbye.
_FAREWELL: Final = 1.0
#: Leads to every queue by its name.
_DEFAULT_EXCHANGE: Final = Exchange("", "direct")


class AmqpConnection(KombuConnection):
    """One link to RabbitMQ; what it publishes is confirmed by the broker."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._descriptions: Descriptions = OrderedDict()
        self._reader = AmqpReader(self.address, self._descriptions)
        self._acknowledging: list[AmqpConsumer] = []
        self._settling: list[AmqpTaskConsumer] = []
        self._aside = AsideQueues(self._new_channel, self._translated)
        #: Made when somebody first waits for it.
        self._wakeup: Wakeup | None = None
        self._publisher_id = 0
        self._published = 0
        self._confirmed = 0
        self._confirmed_early: set[int] = set()
        #: The beginning of a long message.
        self._growing: bytearray | None = None
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
        priority: int = 0,
        expiration: float | None = None,
    ) -> None:
        """Send one JSON message."""
        properties = spell_properties(
            headers or {},
            is_persistent=is_persistent,
            correlation_id=correlation_id,
            reply_to=reply_to,
            priority=priority,
            expiration="" if expiration is None else milliseconds(expiration),
        )
        self._publish(exchange, routing_key, properties, body)

    def _publish(
        self,
        exchange: Exchange,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *,
        is_mandatory: bool = False,
    ) -> None:
        with self._translated():
            channel = self._publishing_channel(exchange)
            link = self._kombu.connection
            frames = spell_publish(
                body,
                channel=channel.channel_id,
                exchange=exchange.name,
                routing_key=routing_key,
                properties=properties,
                frame_bytes=link.frame_max,
                is_mandatory=is_mandatory,
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

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery: the broker forgets it, from the next :meth:`drain` on."""
        tag = delivery.tag
        if isinstance(tag, Ticket) and self._tasks.get(delivery.queue) is tag.consumer:
            tag.consumer.accept(tag.number)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Settle a delivery: the broker puts it back, or drops it, from the next :meth:`drain` on."""
        tag = delivery.tag
        if isinstance(tag, Ticket) and self._tasks.get(delivery.queue) is tag.consumer:
            tag.consumer.reject(tag.number, requeue=requeue)

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:
        """Move a delivery out of the way: it is settled once the broker has confirmed its copy."""
        tag, message = delivery.tag, delivery.message
        consumer = self._tasks.get(delivery.queue)
        if self.is_blocked or not isinstance(tag, Ticket) or consumer is not tag.consumer:
            return False
        name = self._aside.name_of(consumer.queue, seconds)
        if name is None:
            return False
        # If somebody deleted the queue, the link is lost by this, and the next one declares the queue again.
        self._publish(_DEFAULT_EXCHANGE, name, properties_aside(message), message.body, is_mandatory=True)
        self._aside.move(self._published, tag)
        return True

    def stop_consuming(self, queue: str) -> None:
        """Take no more from a queue. What was delivered is still to be settled."""
        super().stop_consuming(queue)
        self._write_settlements()

    def wake(self) -> None:
        """Let :meth:`drain` return soon; from any thread."""
        if self._is_woken:  # and whoever noted that rings, if it has not yet
            return
        # In this order: whoever has made no wakeup yet looks at the note once it is made.
        self._is_woken = True
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup.ring()

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        self._write_settlements()
        return super().drain(timeout)

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup.close()
        # Goodbye is said and answered, but a broker that hangs must not keep us.
        link = self._kombu._connection  # noqa: SLF001 - the property would connect
        transport = None if link is None else link._transport  # noqa: SLF001
        if transport is not None and transport.sock is not None:
            transport.sock.settimeout(_FAREWELL)
            with suppress(NetworkError):
                if self._aside.is_moving:
                    self.unconfirmed(_FAREWELL)
            self._write_settlements()
        super().close()
        self._settling.clear()
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
        logger.warning("broker %s: publishing blocked: %s", self.address, reason)
        self.is_blocked = True

    def _on_unblocked(self) -> None:
        self.is_blocked = False

    def _on_refused(self, tag: int, is_multiple: bool) -> None:  # noqa: ARG002
        raise ConnectionLost(f"the broker at {self.address} did not store message {tag}")

    def _consume(
        self, channel: Any, bound: Any, queue: Queue, deliver: Deliver, *, acknowledges: bool
    ) -> None:
        consumer = AmqpConsumer(channel, deliver, max_bytes=_max_bytes(queue), acknowledges=acknowledges)

        def receive(message: AmqpMessage) -> None:
            number = message.delivery_info["delivery_tag"]
            self._waiting.append((consumer.receiver(number), read_by_amqp(message)))

        tag = f"celeriac.{queue.name}"
        self._reader.consumers[channel.channel_id, tag.encode()] = consumer
        self._acknowledging.append(consumer)
        # py-amqp takes by itself what comes while it waits for an answer of the broker.
        bound.consume(tag, receive, no_ack=not acknowledges)

    def _new_task_consumer(self, channel: Any, bound: Any, queue: Queue) -> TaskConsumer:
        consumer = AmqpTaskConsumer(channel, bound, queue, self._put_in_line, max_bytes=_max_bytes(queue))
        self._reader.consumers[channel.channel_id, consumer.tag.encode()] = consumer
        self._settling.append(consumer)
        return consumer

    def _deliver(self) -> int:
        try:
            return super()._deliver()
        finally:
            # If the link is lost the next call says so, and the messages come again.
            with suppress(ConnectionLost), self._translated():
                for consumer in self._acknowledging:
                    consumer.acknowledge()

    def _write_settlements(self) -> None:
        """Tell the broker what was settled, in one piece."""
        self._aside.settle(self._confirmed)
        frames = b"".join([consumer.settlements() for consumer in self._settling])
        if frames:
            # If the link is lost the next call says so, and the messages come again.
            with suppress(ConnectionLost), self._translated():
                link = self._kombu.connection
                link.transport.write(frames)
                link.bytes_sent += 1

    def _await(self, timeout: float | None) -> None:
        if timeout != 0 and not self._has_come(inf if timeout is None else timeout):
            return
        self._read(0.0)
        self._write_settlements()  # of what is aside by now: the broker may send no more before

    def _take_note(self) -> bool:
        is_woken = super()._take_note()
        if is_woken and self._wakeup is not None:
            self._wakeup.clear()
        return is_woken

    def _has_come(self, timeout: float) -> bool:
        """Say whether there is something to read, waiting for it until somebody wakes us."""
        if self._wakeup is None:
            self._wakeup = Wakeup()
        # Not before there is a wakeup: whoever wakes us from now on rings it.
        if self._is_woken:
            return False
        with self._translated():
            sock = self._kombu.connection.transport.sock
            # What TLS has read ahead the system knows nothing of.
            if hasattr(sock, "pending") and sock.pending() > 0:
                return True
            files: list[File] = [sock, self._wakeup]
            ready = wait_readable(files, timeout)
        if self._wakeup in ready:
            self._wakeup.clear()
            self._is_woken = True
        return sock in ready

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
                raise ConnectionLost(f"lost the broker at {self.address}: connection closed by the broker")
            # A sign of life for py-amqp, which does not see what is cut out here.
            link.bytes_recv += 1
            # What is incomplete waits where py-amqp looks for it, in case it reads next.
            growing, self._growing = self._growing, None
            if growing is transport._read_buffer and growing is not None:  # noqa: SLF001
                growing += data
                if len(growing) < self._reader.needed:
                    self._growing = growing
                    return
                data = b""
            self._reader.needed = 0
            rest = self._take(bytes(transport._read_buffer) + data)  # noqa: SLF001
            # Of a long message each piece would otherwise copy all those before it.
            self._growing = bytearray(rest) if self._reader.needed - len(rest) > _LONG_BYTES else None
            transport._read_buffer = rest if self._growing is None else self._growing  # noqa: SLF001

    def _take(self, data: bytes) -> bytes:
        """Cut out every message that is complete, and return the rest."""
        start, size = 0, len(data)
        link = self._kombu.connection
        while size - start >= FRAME_REST:
            kind, channel, length = FRAME.unpack_from(data, start)
            end = start + FRAME_REST + length
            if end > size:
                break
            begin = start + FRAME_START
            if kind == BODY and self._reader.unwanted > 0:
                self._reader.unwanted -= length
                start = end
            elif kind == METHOD and data.startswith(_ACK, begin) and channel == self._publisher_id:
                tag, is_multiple = _CONFIRMED.unpack_from(data, begin + len(_ACK))
                self._on_confirmed(tag, bool(is_multiple))
                start = end
            elif kind == METHOD and data.startswith(DELIVER, begin):
                delivery = self._reader.cut(data, start, end, channel)
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


def _max_bytes(queue: Queue) -> int:
    return _MAX_BODY_BYTES if queue.max_bytes is None else queue.max_bytes
