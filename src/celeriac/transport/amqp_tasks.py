"""One queue at RabbitMQ whose deliveries are settled by hand, and written about in batches."""

from typing import Any, Final

from amqp.exceptions import AMQPNotImplementedError

from celeriac.errors import AccessRefused
from celeriac.model.message import Delivery, Queue
from celeriac.transport.amqp_frames import spell_accept, spell_reject
from celeriac.transport.amqp_reader import read_by_amqp
from celeriac.transport.base import Take
from celeriac.transport.kombu_tasks import Arrive, Ticket

__all__ = ["AmqpTaskConsumer"]

#: The broker counts with 16 bits, and takes 0 for no limit at all.
_MAX_PREFETCH: Final = 65_535


class AmqpTaskConsumer:
    """A queue on a channel of its own, that numbers what it delivers in order.

    What is settled is collected until :meth:`settlements`.
    """

    is_for_tasks = True

    def __init__(self, channel: Any, bound: Any, queue: Queue, arrive: Arrive, *, max_bytes: int) -> None:
        self.queue = queue
        self.take: Take = self._give_back
        self.max_bytes = max_bytes
        self.tag = f"celeriac.{queue.name}"
        self._channel = channel
        self._channel_id: int = channel.channel_id
        self._bound = bound
        self._arrive = arrive
        self._is_consuming = False
        #: Whether the limit is that of the channel: of a quorum queue it can only be that of the consumer.
        self._is_shared = queue.type != "quorum"
        #: The numbers of what came, in order; a dictionary, because a set has none.
        self._unsettled: dict[int, None] = {}
        self._accepted: list[int] = []
        self._rejected: list[bytes] = []

    def begin(self, take: Take, prefetch: int) -> None:
        """Consume, so that ``take`` gets no more than ``prefetch`` before some are settled."""
        self.take = take
        self._limit(prefetch)
        if not self._is_consuming:
            self._is_consuming = True
            try:
                # py-amqp takes by itself what comes while it waits for an answer of the broker.
                self._bound.consume(self.tag, self._receive, no_ack=False)
            except AMQPNotImplementedError as error:
                # A virtual host may make quorum queues of those that ask for nothing.
                raise AccessRefused(
                    f"RabbitMQ cannot limit the classic queue {self.queue.name!r} ({error}): set "
                    "task_default_queue_type to quorum"
                ) from error

    def stop(self) -> None:
        """Consume no more."""
        if self._is_consuming:
            self._is_consuming = False
            self._channel.basic_cancel(self.tag)
        self.take = self._give_back

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many may be unsettled; of a quorum queue that is so from the next beginning on."""
        if self._is_shared:
            self._limit(prefetch)

    def accept(self, number: int) -> None:
        """Settle a delivery, unless it is settled."""
        if number in self._unsettled:
            del self._unsettled[number]
            self._accepted.append(number)

    def reject(self, number: int, *, requeue: bool) -> None:
        """Settle a delivery, unless it is settled."""
        if number in self._unsettled:
            del self._unsettled[number]
            self._rejected.append(spell_reject(self._channel_id, number, requeue=requeue))

    def settlements(self) -> bytes:
        """Return what to write to the broker about what was settled since the last time."""
        if not self._accepted and not self._rejected:
            return b""
        # What is rejected comes first, so that it cannot be meant by all that comes before another.
        frames, self._rejected = self._rejected, []
        accepted, self._accepted = sorted(self._accepted), []
        first_unsettled = next(iter(self._unsettled), None)
        together = [number for number in accepted if first_unsettled is None or number < first_unsettled]
        if together:
            frames.append(spell_accept(self._channel_id, together[-1], is_multiple=True))
        frames += [
            spell_accept(self._channel_id, number, is_multiple=False) for number in accepted[len(together) :]
        ]
        return b"".join(frames)

    def end(self) -> None:
        """Do nothing: what is not settled the broker gives out again by itself."""

    def receiver(self, number: int) -> Ticket:
        """Return what is to be done with a message of a number, which is ours from now on."""
        self._unsettled[number] = None
        return Ticket(self, number)

    def _give_back(self, delivery: Delivery) -> None:
        """Do this with what the broker was about to send when it was told to stop."""
        if isinstance(delivery.tag, Ticket):
            self.reject(delivery.tag.number, requeue=True)

    def _limit(self, prefetch: int) -> None:
        self._channel.basic_qos(0, min(max(1, prefetch), _MAX_PREFETCH), self._is_shared)

    def _receive(self, message: Any) -> None:
        info = message.delivery_info
        ours = read_by_amqp(message)._replace(
            exchange=str(info["exchange"]),
            priority=int(message.properties.get("priority", 0)),
            is_redelivered=bool(info["redelivered"]),
        )
        if len(ours.body) > self.max_bytes:
            ours = ours._replace(body=b"", fault="body-size")
        self._arrive(self.receiver(info["delivery_tag"]), ours)
