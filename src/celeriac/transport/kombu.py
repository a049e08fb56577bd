"""Any broker that kombu speaks to, by the URLs Celery takes.

Only what all of kombu's transports share is used here. RabbitMQ and Redis have
quicker ways of their own: :mod:`celeriac.transport.amqp`, :mod:`celeriac.transport.redis`.
"""

import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final

import kombu
import kombu.transport.virtual

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Delivery, Exchange, Message, Queue
from celeriac.transport.base import Deliver, Take
from celeriac.transport.kombu_link import KombuLink, Peer, error_text, translated
from celeriac.transport.kombu_messages import kombu_exchange, kombu_queue, to_message
from celeriac.transport.kombu_tasks import KombuTaskConsumer, TaskConsumer, Ticket

__all__ = ["KombuConnection", "Peer", "milliseconds", "translated"]

logger = logging.getLogger(__name__)

#: Messages that may be on their way to us before we acknowledge the first of them.
_PREFETCH: Final = 1000
#: How long we wait at a time, to see whether somebody woke us: kombu's own waiting cannot be ended.
_LOOK_EVERY: Final = 0.1
#: The same where nothing is consumed: kombu looks for messages no more often either.
_LOOK_SELDOM: Final = 1.0
#: What a broker answers to who asks for a queue that is not there.
_NOT_FOUND: Final = "404"


class KombuConnection(KombuLink):
    """One link to a broker through kombu."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._publisher: Any = None
        self._declared: set[str] = set()
        self._subscribers: list[Deliver] = []
        #: What came and was not delivered yet.
        self._waiting: deque[tuple[Deliver, Message]] = deque()
        #: By queue, those whose deliveries are settled by hand.
        self._tasks: dict[str, TaskConsumer] = {}
        self._is_woken = False

    def prepare(self, exchange: Exchange) -> None:
        """Connect and declare an exchange now, so that the first message to it leaves at once."""
        with self._translated():
            self._publishing_channel(exchange)

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
        replies = {"correlation_id": correlation_id, "reply_to": reply_to}
        if expiration is not None:
            replies["expiration"] = milliseconds(expiration)
        with self._translated():
            channel = self._publishing_channel(exchange)
            message = channel.prepare_message(
                body.decode(),
                priority=priority,
                content_type="application/json",
                content_encoding="utf-8",
                headers=dict(headers or {}),
                properties={
                    **{name: value for name, value in replies.items() if value},
                    "delivery_mode": 2 if is_persistent else 1,
                },
            )
            self._send(channel, message, exchange, routing_key)

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        """Return 0: here a message has arrived when publishing returns."""
        return 0

    def subscribe(self, queue: Queue, deliver: Deliver, *, acknowledges: bool = False) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`.

        With ``acknowledges``, no more than a thousand messages may lie about that ``deliver``
        failed on: the broker then waits for what becomes of them.
        """
        with self._translated():
            # Celery: kombu's virtual transports know one queue for each exchange and channel,
            # so every subscription has a channel of its own.
            channel = self._new_channel()
            bound = kombu_queue(queue)(channel)
            bound.declare()
            if acknowledges:
                channel.basic_qos(0, _PREFETCH, False)
            self._consume(channel, bound, queue, deliver, acknowledges=acknowledges)

    def declare(self, queue: Queue) -> None:
        """Make a queue and bind it, unless it is there."""
        with self._translated():
            channel = self._new_channel()
            self._declare(channel, queue)
            channel.close()

    def consume(self, queue: Queue, take: Take, *, prefetch: int) -> None:
        """Declare a queue and hand what comes to ``take``, within :meth:`drain`, to be settled.

        ``prefetch`` counts for each queue.
        """
        with self._translated():
            if queue.name not in self._tasks:
                channel = self._new_channel()
                bound = self._declare(channel, queue)
                self._tasks[queue.name] = self._new_task_consumer(channel, bound, queue)
            self._tasks[queue.name].begin(take, prefetch)

    def stop_consuming(self, queue: str) -> None:
        """Take no more from a queue. What was delivered is still to be settled."""
        consumer = self._tasks.get(queue)
        if consumer is None:
            return
        with self._translated():
            consumer.stop()
            for number in reversed(self._forget_waiting(consumer)):
                consumer.reject(number, requeue=True)

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many deliveries may be unsettled at a time, where the broker allows."""
        with self._translated():
            for consumer in self._tasks.values():
                consumer.set_prefetch(prefetch)

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery: the broker forgets it. Of a lost link, it changes nothing."""
        tag = delivery.tag
        if isinstance(tag, Ticket) and self._tasks.get(delivery.queue) is tag.consumer:
            # If the link is lost the next call says so, and the message comes again.
            with suppress(ConnectionLost), self._translated():
                tag.consumer.accept(tag.number)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Settle a delivery: the broker puts it back, or drops it. Of a lost link, it changes nothing."""
        tag = delivery.tag
        if isinstance(tag, Ticket) and self._tasks.get(delivery.queue) is tag.consumer:
            with suppress(ConnectionLost), self._translated():
                tag.consumer.reject(tag.number, requeue=requeue)

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:  # noqa: ARG002
        """Return False: kombu's transports have no way to that in common."""
        return False

    def keep(self, delivery: Delivery) -> bool:  # noqa: ARG002
        """Return False: the broker gives out again what a lost link had."""
        return False

    def wake(self) -> None:
        """Let :meth:`drain` return soon; from any thread."""
        self._is_woken = True

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it."""
        with self._translated():
            channel = self._new_channel()
            # Celery: kombu's virtual transports leave a queue alone that is bound by its name only.
            if isinstance(channel, kombu.transport.virtual.Channel):
                channel.queue_purge(name)
            channel.queue_delete(name)
            channel.close()

    def queue_length(self, name: str) -> int | None:
        """Return how many messages wait in a queue, or None if there is none of that name."""
        with self._translated():
            channel = self._new_channel()
            length: int | None = None
            try:
                length = channel.queue_declare(name, passive=True).message_count
            except self._errors as error:
                # Celery: kombu's virtual transports spell the code as a text.
                if str(getattr(error, "reply_code", "")) != _NOT_FOUND:
                    raise
            channel.close()
        return length

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = None if timeout is None else monotonic() + timeout
        # An exception out of a callback leaves the messages after it here.
        while not self._waiting:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            patience = self._show_life()
            is_woken = self._take_note()
            if is_woken:
                left = 0.0
            try:
                self._await(min((span for span in (left, patience) if span is not None), default=None))
            except ConnectionLost:
                # What came before the loss is delivered first; the next call says that it is lost.
                if not self._waiting:
                    raise
            if is_woken or (deadline is not None and monotonic() >= deadline):
                break
        return self._deliver()

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        if self._lost is None:
            for consumer in self._tasks.values():
                with suppress(*self._errors):
                    consumer.end()
        for consumer in self._tasks.values():
            self._forget_waiting(consumer)
        self._tasks.clear()
        super().close()

    # -- what the quicker ways do otherwise

    def _consume(
        self,
        channel: Any,  # noqa: ARG002
        bound: Any,
        queue: Queue,
        deliver: Deliver,
        *,
        acknowledges: bool,
    ) -> None:
        self._subscribers.append(deliver)

        def receive(message: Any) -> None:
            # Delivered later, by ourselves: what a callback raises is no word of the broker's library.
            ours = to_message(message)
            self._waiting.append((partial(settle, message) if acknowledges else deliver, ours))

        def settle(theirs: Any, message: Message) -> None:
            deliver(message)
            # If the link is lost the next call says so, and the message comes again.
            with suppress(ConnectionLost), self._translated():
                theirs.ack()

        bound.consume(f"celeriac.{queue.name}", receive, no_ack=not acknowledges)

    def _new_task_consumer(self, channel: Any, bound: Any, queue: Queue) -> TaskConsumer:
        """Return a queue that is not yet consumed from."""
        return KombuTaskConsumer(channel, bound, queue, self._put_in_line)

    def _take_note(self) -> bool:
        """Say whether somebody woke us since we were last asked."""
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def _await(self, timeout: float | None) -> None:
        """Take what comes, waiting up to ``timeout`` seconds for it, or less; not much longer once woken."""
        look_every = _LOOK_EVERY if self._tasks else _LOOK_SELDOM
        self._read(look_every if timeout is None else min(timeout, look_every))

    def _send(self, channel: Any, message: Any, exchange: Exchange, routing_key: str) -> None:
        channel.basic_publish(message, exchange.name, routing_key)

    def _read(self, timeout: float | None) -> None:
        """Take one message; none when the time passed."""
        try:
            with self._translated(), suppress(TimeoutError):
                self._kombu.drain_events(timeout=timeout)
        except (LookupError, TypeError, AttributeError, ValueError):
            # kombu stumbles over an envelope that a peer spelled badly. Whose it was is not known.
            if not self._subscribers and self._tasks:
                logger.warning("broker: cannot decode a message at %s, dropped", self.address)
                return
            if not self._subscribers:
                raise
            self._waiting.append((self._subscribers[0], Message(b"", fault="envelope")))

    # -- shared

    def _publishing_channel(self, exchange: Exchange) -> Any:
        if self._publisher is None:
            self._publisher = self._new_channel()
        if exchange.name and exchange.name not in self._declared:
            kombu_exchange(exchange)(self._publisher).declare()
            self._declared.add(exchange.name)
        return self._publisher

    def _deliver(self) -> int:
        """Deliver what came; return how many messages that were."""
        # No more than these: a callback may publish, and then more can come.
        delivered = 0
        for _ in range(len(self._waiting)):
            if not self._waiting:  # a callback stopped consuming, and what came from there went back
                break
            deliver, message = self._waiting.popleft()
            delivered += 1
            deliver(message)
        return delivered

    def _put_in_line(self, deliver: Deliver, message: Message) -> None:
        # Delivered later, by ourselves: what a callback raises is no word of the broker's library.
        self._waiting.append((deliver, message))

    def _forget_waiting(self, consumer: TaskConsumer) -> list[int]:
        """Deliver nothing more of a consumer; return the numbers of what came and was not delivered."""
        kept: deque[tuple[Deliver, Message]] = deque()
        numbers = []
        for deliver, message in self._waiting:
            if isinstance(deliver, Ticket) and deliver.consumer is consumer:
                numbers.append(deliver.number)
            else:
                kept.append((deliver, message))
        self._waiting = kept
        return numbers

    def _declare(self, channel: Any, queue: Queue) -> Any:
        bound = kombu_queue(queue)(channel)
        try:
            bound.declare()
        except self._errors as error:
            if type(error).__name__ != "PreconditionFailed":
                raise
            raise AccessRefused(
                f"the {self.peer.name} at {self.address} has a queue {queue.name!r} with other arguments "
                f"({error_text(error)}): restore task_queue_max_priority and task_default_queue_type, or "
                "delete the queue"
            ) from error
        return bound


def milliseconds(span: float) -> str:
    """Return a span of seconds as AMQP has it."""
    return str(max(0, int(span * 1000)))
