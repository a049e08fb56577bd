"""The protocol every way to a broker implements.

A connection is one link. It opens itself at its first use, and once it has
raised :class:`~celeriac.errors.ConnectionLost` it is spent: ``clone()`` gives a
fresh one to the same broker. Foreign exceptions are translated here and
nowhere else.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, runtime_checkable

from celeriac.model.message import Delivery, Exchange, Message, Queue

if TYPE_CHECKING:
    import kombu

    from celeriac.config import Settings

__all__ = ["AnyConnection", "Connection", "Deliver", "Take"]

#: What a subscription does with each message.
Deliver = Callable[[Message], object]
#: What a consumer does with each message that it is to settle.
Take = Callable[[Delivery], object]
#: What programs may pass as a connection; see :mod:`celeriac.transport.accept`.
AnyConnection: TypeAlias = "Connection | kombu.Connection"


@runtime_checkable
class Connection(Protocol):
    """One link to a broker, for one thread at a time."""

    @property
    def settings(self) -> "Settings":
        """The settings that it was made with."""

    @property
    def driver(self) -> str:
        """The family of the broker, as kombu names it: ``amqp``, ``redis``, ``memory``."""

    @property
    def address(self) -> str:
        """Where it leads, for people: a URL without its password."""

    @property
    def is_blocked(self) -> bool:
        """Whether the broker asked us to publish nothing for now: RabbitMQ does when memory is short."""

    def open(self) -> None:
        """Connect now; any other call does so by itself."""

    def prepare(self, exchange: Exchange) -> None:
        """Connect and declare an exchange now, so that the first message to it leaves at once."""

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
        """Send one JSON message. It has arrived once :meth:`unconfirmed` no longer counts it.

        After ``expiration`` seconds the broker may drop it, where brokers do such things.
        """

    def unconfirmed(self, timeout: float = 0.0) -> int:
        """Return how many of the last published messages the broker has not confirmed yet.

        Waits up to ``timeout`` seconds for none to be left. If the link is lost, that
        many messages may or may not have arrived.
        """

    def subscribe(self, queue: Queue, deliver: Deliver, *, acknowledges: bool = False) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`.

        On return the broker has confirmed: what is published from now on arrives. With
        ``acknowledges`` a message counts as taken once ``deliver`` has returned; one that was
        not taken comes again, after the link is lost or closed, if the queue outlives it.
        """

    def declare(self, queue: Queue) -> None:
        """Make a queue and bind it, unless it is there; what is published to it from now on is kept."""

    def consume(self, queue: Queue, take: Take, *, prefetch: int) -> None:
        """Declare a queue and hand what comes to ``take``, within :meth:`drain`, to be settled.

        A delivery is ours until :meth:`accept` or :meth:`reject`; no more than ``prefetch`` of them at
        a time, over all queues where the broker can count so, and for each queue where it cannot.
        What is not settled when the link is lost or closed goes back to its queue.
        """

    def stop_consuming(self, queue: str) -> None:
        """Take no more from a queue. What was delivered is still to be settled."""

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many deliveries may be unsettled at a time, where the broker allows."""

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery: the broker forgets it. Written at the latest with the next :meth:`drain`."""

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Settle a delivery: the broker puts it back into its queue, marked as redelivered, or drops it."""

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:
        """Move a delivery out of the way: after so many seconds its message is the last of its queue.

        Return False where that cannot be; the delivery is then still ours. Until it returns, the message is
        in no queue that somebody consumes from. A broker may need a queue for each length of time.
        """

    def keep(self, delivery: Delivery) -> bool:
        """Go on holding, over this link, a delivery of one that was lost; say whether that can be.

        Where it cannot, the broker gives the message out again, to us or to another.
        """

    def wake(self) -> None:
        """Let :meth:`drain` return soon. The one call that any thread may make, at any time."""

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it; who subscribed to it may lose the link."""

    def queue_length(self, name: str) -> int | None:
        """Return how many messages wait in a queue, or None if there is none of that name.

        What somebody was given and has not settled does not count. On Redis an empty queue is not there.
        """

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message.

        Returns how many messages were delivered, 0 when the time passed or somebody called
        :meth:`wake`. An exception from a ``deliver`` passes through and spoils nothing else.
        """

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""

    def clone(self) -> Self:
        """Return a new link to the same broker, not yet open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
