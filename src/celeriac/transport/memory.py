"""A broker in this process: no sockets, and one order that every subscriber sees.

It is a real transport, with exchanges, queues and bindings, that a test can cut,
heal and look into. For Celery in the same process use kombu's ``memory://``.
"""

from collections import deque
from collections.abc import Collection, Mapping
from threading import Condition
from time import monotonic
from types import TracebackType
from typing import Self

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Delivery, Exchange, Message, Queue
from celeriac.transport.base import Deliver, Take
from celeriac.transport.memory_arbiter import MemoryArbiter
from celeriac.transport.memory_lent import Borrower, Lendings, Lent
from celeriac.transport.memory_route import leads_to

__all__ = ["MemoryBroker", "MemoryConnection"]

#: A message with the queue it was in, and by what it is settled, where it is to be settled.
_Arrival = tuple[str, Message, Lent | None]


class MemoryBroker:
    """Exchanges and queues for any number of connections and threads.

    All messages pass one lock, so that there is one order of publishing, and each
    queue holds its messages in that order.
    """

    def __init__(self, name: str = "default") -> None:
        self.name = name
        #: False while the broker is away: every use of a connection then raises.
        self.is_up = True
        #: Every message published, with the name of its exchange, in order.
        self.published: list[tuple[str, Message]] = []
        #: Who decides the elections of all that are connected.
        self.arbiter = MemoryArbiter(is_up=lambda: self.is_up)
        self._changed = Condition()
        self._queues: dict[str, tuple[Queue, deque[Message]]] = {}
        #: By queue, what somebody has taken and not yet acknowledged.
        self._held: dict[str, list[Message]] = {}
        self._lendings = Lendings()
        #: Connections opened before the last cut are lost, as with a real broker.
        self._epoch = 0

    def connect(self, settings: Settings | None = None) -> "MemoryConnection":
        """Return a new connection, not yet open."""
        return MemoryConnection(self, settings)

    def cut(self) -> None:
        """Close every connection and delete every queue that is not durable; new connections are accepted."""
        with self._changed:
            self._epoch += 1
            self._queues = {name: queue for name, queue in self._queues.items() if queue[0].is_durable}
            for name in self._held:
                self._give_back(name)
            self._held.clear()
            self._put_back(self._lendings.clear())
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the broker: close every connection, and refuse new ones until :meth:`start`."""
        self.is_up = False
        self.cut()

    def start(self) -> None:
        """Come back."""
        self.is_up = True

    def wait_for_subscriber(self, exchange: str = "celeryev", timeout: float | None = 10.0) -> bool:
        """Wait until a queue is bound to an exchange; messages published afterwards arrive there."""

        def is_bound() -> bool:
            return any(queue.exchange.name == exchange for queue, _ in self._queues.values())

        with self._changed:
            return self._changed.wait_for(is_bound, timeout)

    # -- for connections

    def join(self) -> int:
        """Return the epoch of a connection opened now."""
        with self._changed:
            return self._check(self._epoch)

    def declare(self, queue: Queue, epoch: int) -> None:
        """Make a queue and bind it, if it is not there yet."""
        with self._changed:
            self._check(epoch)
            self._queues.setdefault(queue.name, (queue, deque(maxlen=queue.max_length)))
            self._changed.notify_all()

    def delete(self, name: str) -> None:
        """Delete a queue and its messages."""
        with self._changed:
            self._queues.pop(name, None)
            self._held.pop(name, None)

    def length(self, name: str, epoch: int) -> int | None:
        """Return how many messages wait in a queue, or None if there is none."""
        with self._changed:
            self._check(epoch)
            return len(self._queues[name][1]) if name in self._queues else None

    def send(self, exchange: Exchange, message: Message, epoch: int) -> None:
        """Put a message into every queue that its exchange and key lead to."""
        with self._changed:
            self._check(epoch)
            self.published.append((exchange.name, message))
            sent = message._replace(exchange=exchange.name)
            for queue, waiting in self._queues.values():
                if leads_to(exchange, message, queue):
                    waiting.append(sent)
            self._changed.notify_all()

    def take(
        self,
        names: list[str],
        epoch: int,
        timeout: float | None,
        *,
        borrower: Borrower,
        held: Collection[str] = (),
    ) -> list[_Arrival]:
        """Return the messages of some queues, waiting up to ``timeout`` seconds for the first message.

        Messages of ``held`` queues go back to their queues unless they are acknowledged; their settlements
        are returned too. A woken waiter returns early.
        """
        deadline = None if timeout is None else monotonic() + timeout
        with self._changed:
            while True:
                self._check(epoch)
                taken: list[_Arrival] = [
                    (name, message, None) for name in names for message in self._empty(name)
                ]
                for name, message, _ in taken:
                    if name in held:
                        self._held.setdefault(name, []).append(message)
                taken += [(lent.queue, lent.message, lent) for lent in self._lend(borrower)]
                left = None if deadline is None else deadline - monotonic()
                if taken or borrower.is_woken or (left is not None and left <= 0):
                    borrower.is_woken = False
                    return taken
                self._changed.wait(left)

    def settle(self, borrower: Borrower, number: int, *, requeue: bool) -> None:
        """Forget a message that was lent, or put it back; if it is lent no longer nothing happens."""
        with self._changed:
            lent = self._lendings.settle(borrower, number)
            if lent is not None and requeue:
                self._put_back([lent])
            self._changed.notify_all()

    def set_aside(self, borrower: Borrower, number: int, seconds: float) -> bool:
        """Move an unacknowledged message aside; it returns while its queue has a consumer."""
        with self._changed:
            return self._lendings.set_aside(borrower, number, monotonic() + seconds)

    def end(self, borrower: Borrower) -> None:
        """Put back all that a borrower has."""
        with self._changed:
            self._put_back(self._lendings.end(borrower))
            self._changed.notify_all()

    def wake(self, borrower: Borrower) -> None:
        """Let a borrower wait no longer, now or the next time it would."""
        with self._changed:
            borrower.is_woken = True
            self._changed.notify_all()

    def acknowledge(self, name: str, message: Message, epoch: int) -> None:
        """Forget a message that was held."""
        with self._changed:
            self._check(epoch)
            # By identity: another that says the same is another.
            self._held[name] = [each for each in self._held.get(name, ()) if each is not message]

    def give_back(self, names: list[str], epoch: int) -> None:
        """Return the unacknowledged messages of some queues to the front of these queues."""
        with self._changed:
            if epoch == self._epoch:
                for name in names:
                    self._give_back(name)
                self._changed.notify_all()

    def _give_back(self, name: str) -> None:
        if name in self._queues:
            self._queues[name][1].extendleft(reversed(self._held.get(name, [])))
        self._held[name] = []

    def _lend(self, borrower: Borrower) -> list[Lent]:
        self._lendings.return_due(self._queues, monotonic())
        lent: list[Lent] = []
        for name in borrower.takes:
            _, waiting = self._queues.get(name, (None, deque[Message]()))
            while waiting and self._lendings.room(borrower) > 0:
                lent.append(self._lendings.lend(borrower, name, waiting.popleft()))
        return lent

    def _put_back(self, lent: list[Lent]) -> None:
        """Put messages in front of all else, in the order they were there."""
        for _, name, message in reversed(lent):
            if name in self._queues:
                self._queues[name][1].appendleft(message._replace(is_redelivered=True))

    def _empty(self, name: str) -> list[Message]:
        _, waiting = self._queues.get(name, (None, deque[Message]()))
        messages = list(waiting)
        waiting.clear()
        return messages

    def _check(self, epoch: int) -> int:
        if not self.is_up or epoch != self._epoch:
            raise ConnectionLost(f"the connection to memory broker {self.name!r} is cut")
        return epoch


class MemoryConnection:
    """One link to a :class:`MemoryBroker`."""

    driver = "memory"
    is_blocked = False

    def __init__(self, broker: MemoryBroker, settings: Settings | None = None) -> None:
        self.broker, self.settings = broker, settings or Settings()
        self._epoch: int | None = None
        self._subscriptions: dict[str, tuple[Queue, Deliver]] = {}
        #: The queues whose messages are acknowledged.
        self._acknowledged: set[str] = set()
        self._waiting: deque[_Arrival] = deque()
        self._borrower = Borrower()

    @property
    def address(self) -> str:
        """Where it leads, for people."""
        return f"in-memory://{self.broker.name}"

    def open(self) -> None:
        """Join the broker as it is now."""
        self._joined()

    def prepare(self, exchange: Exchange) -> None:  # noqa: ARG002  (nothing is declared here)
        """Join the broker as it is now."""
        self._joined()

    def publish(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        routing_key: str = "",
        headers: Mapping[str, object] | None = None,
        is_persistent: bool = False,  # noqa: ARG002  (nothing here outlives the process)
        correlation_id: str = "",
        reply_to: str = "",
        priority: int = 0,
        expiration: float | None = None,  # noqa: ARG002
    ) -> None:
        """Put one message into the queues it leads to.

        They keep the order of publishing, whatever the priority, and drop nothing for its age.
        """
        message = Message(
            body,
            headers=dict(headers or {}),
            routing_key=routing_key,
            correlation_id=correlation_id,
            reply_to=reply_to,
            priority=priority,
        )
        self.broker.send(exchange, message, self._joined())

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        """Return 0: what is published has arrived."""
        return 0

    def subscribe(self, queue: Queue, deliver: Deliver, *, acknowledges: bool = False) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`.

        Of one queue that is acknowledged there may be one subscriber at a time.
        """
        self.broker.declare(queue, self._joined())
        self._subscriptions[queue.name] = (queue, deliver)
        if acknowledges:
            self._acknowledged.add(queue.name)

    def declare(self, queue: Queue) -> None:
        """Make a queue and bind it, unless it is there."""
        self.broker.declare(queue, self._joined())

    def consume(self, queue: Queue, take: Take, *, prefetch: int) -> None:
        """Declare a queue and hand what comes to ``take``, within :meth:`drain`, to be settled.

        ``prefetch`` counts over all queues of the link.
        """
        self.broker.declare(queue, self._joined())
        self._borrower.takes[queue.name] = (queue, take)
        self._borrower.prefetch = prefetch

    def stop_consuming(self, queue: str) -> None:
        """Take no more from a queue. What was delivered is still to be settled."""
        self._borrower.takes.pop(queue, None)
        for name, _, lent in reversed(self._waiting):
            if lent is not None and name == queue:
                self.broker.settle(self._borrower, lent.number, requeue=True)
        self._waiting = deque(each for each in self._waiting if each[2] is None or each[0] != queue)

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many deliveries may be unsettled at a time."""
        self._borrower.prefetch = prefetch

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery: the broker forgets it."""
        self.reject(delivery, requeue=False)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Settle a delivery: the broker puts it back in front of its queue, or drops it."""
        # Of another link, or of none: the broker does not have it lent to us.
        if isinstance(delivery.tag, Lent):
            self.broker.settle(self._borrower, delivery.tag.number, requeue=requeue)

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:
        """Move a delivery out of the way for so many seconds."""
        tag = delivery.tag
        return isinstance(tag, Lent) and self.broker.set_aside(self._borrower, tag.number, seconds)

    def keep(self, delivery: Delivery) -> bool:  # noqa: ARG002
        """Return False: the broker gives out again what a lost link had."""
        return False

    def wake(self) -> None:
        """Let :meth:`drain` return soon; from any thread."""
        self.broker.wake(self._borrower)

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it."""
        self._joined()
        self.broker.delete(name)

    def queue_length(self, name: str) -> int | None:
        """Return how many messages wait in a queue, or None if there is none of that name."""
        return self.broker.length(name, self._joined())

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        # An exception out of a callback leaves the messages after it here.
        if not self._waiting:
            names, held = list(self._subscriptions), self._acknowledged
            taken = self.broker.take(names, self._joined(), timeout, borrower=self._borrower, held=held)
            self._waiting.extend(taken)
        delivered = 0
        for _ in range(len(self._waiting)):
            if not self._waiting:  # a callback stopped consuming, and what came from there went back
                break
            name, message, lent = self._waiting.popleft()
            delivered += 1
            if lent is not None:
                self._borrower.hand_over(lent)
                continue
            self._subscriptions[name][1](message._replace(exchange="", is_redelivered=False))
            if name in self._acknowledged:
                self.broker.acknowledge(name, message, self._joined())
        return delivered

    def close(self) -> None:
        """Leave, and take our own queues along."""
        if self._epoch is not None:
            self.broker.give_back(list(self._acknowledged), self._epoch)
        self.broker.end(self._borrower)
        for queue, _ in (*self._subscriptions.values(), *self._borrower.takes.values()):
            if queue.is_auto_deleted or queue.is_exclusive:
                self.broker.delete(queue.name)
        self._borrower.takes.clear()
        self._subscriptions.clear()
        self._acknowledged.clear()
        self._waiting.clear()

    def clone(self) -> Self:
        """Return a new link to the same broker."""
        return type(self)(self.broker, self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _joined(self) -> int:
        if self._epoch is None:
            self._epoch = self.broker.join()
        return self._epoch
