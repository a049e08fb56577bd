"""One queue whose deliveries are settled by hand, through kombu."""

import logging
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from celeriac.model.message import Delivery, Message, Queue
from celeriac.transport.base import Deliver, Take
from celeriac.transport.kombu_messages import to_task_message

__all__ = ["Arrive", "KombuTaskConsumer", "TaskConsumer", "Ticket"]

logger = logging.getLogger(__name__)

#: What is done with a message that came: it waits there until it is delivered.
Arrive = Callable[[Deliver, Message], object]


class TaskConsumer(Protocol):
    """A queue on a channel of its own; it is made once for each link and queue."""

    queue: Queue
    take: Take

    def begin(self, take: Take, prefetch: int) -> None:
        """Consume, so that ``take`` gets no more than ``prefetch`` before some are settled."""

    def stop(self) -> None:
        """Consume no more."""

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many may be unsettled, where the broker allows."""

    def accept(self, number: int) -> None:
        """Settle a delivery, unless it is settled."""

    def reject(self, number: int, *, requeue: bool) -> None:
        """Settle a delivery, unless it is settled."""

    def end(self) -> None:
        """Have all that is settled written, and the rest given back, because the link is about to end."""


class Ticket:
    """By what a link knows a delivery: as no two links share a consumer, no other takes it for its own."""

    __slots__ = ("consumer", "number")

    def __init__(self, consumer: TaskConsumer, number: int) -> None:
        self.consumer = consumer
        self.number = number

    def __call__(self, message: Message) -> None:
        """Deliver the message that it belongs to."""
        consumer = self.consumer
        consumer.take(Delivery(message, consumer.queue.name, self))


class KombuTaskConsumer:
    """A queue that any broker of kombu's has."""

    def __init__(self, channel: Any, bound: Any, queue: Queue, arrive: Arrive) -> None:
        self.queue = queue
        self.take: Take = self._give_back
        self._channel = channel
        self._bound = bound
        self._arrive = arrive
        self._tag = f"celeriac.{queue.name}"
        self._is_consuming = False
        self._numbers = count()
        self._unsettled: dict[int, Any] = {}

    def begin(self, take: Take, prefetch: int) -> None:
        """Consume, so that ``take`` gets no more than ``prefetch`` before some are settled."""
        self.take = take
        self.set_prefetch(prefetch)
        if not self._is_consuming:
            self._is_consuming = True
            self._bound.consume(self._tag, self._receive, no_ack=False)

    def stop(self) -> None:
        """Consume no more."""
        if self._is_consuming:
            self._is_consuming = False
            self._channel.basic_cancel(self._tag)
        self.take = self._give_back

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many may be unsettled."""
        self._channel.basic_qos(0, max(1, prefetch), False)

    def accept(self, number: int) -> None:
        """Settle a delivery, unless it is settled."""
        theirs = self._unsettled.pop(number, None)
        if theirs is not None:
            theirs.ack()

    def reject(self, number: int, *, requeue: bool) -> None:
        """Settle a delivery, unless it is settled."""
        theirs = self._unsettled.pop(number, None)
        if theirs is None:
            return
        try:
            theirs.reject(requeue=requeue)
        except (LookupError, TypeError, AttributeError, ValueError):
            # A peer spelled badly where it comes from, so that kombu cannot put it back.
            logger.warning("broker: cannot return a message to queue %s, dropped", self.queue.name)
            theirs.reject(requeue=False)

    def end(self) -> None:
        """Give back what is not settled: kombu's memory would not do so by itself."""
        for number in list(self._unsettled):
            self.reject(number, requeue=True)

    def _give_back(self, delivery: Delivery) -> None:
        """Do this with what comes while nobody consumes."""
        if isinstance(delivery.tag, Ticket):
            self.reject(delivery.tag.number, requeue=True)

    def _receive(self, message: Any) -> None:
        number = next(self._numbers)
        self._unsettled[number] = message
        self._arrive(Ticket(self, number), to_task_message(message, max_bytes=self.queue.max_bytes))
