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

from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Message, Queue, topic_leads_to
from celeriac.transport.base import Deliver

__all__ = ["MemoryBroker", "MemoryConnection"]


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
        self._changed = Condition()
        self._queues: dict[str, tuple[Queue, deque[Message]]] = {}
        #: By queue, what somebody has taken and not yet acknowledged.
        self._held: dict[str, list[Message]] = {}
        #: Connections opened before the last cut are lost, as with a real broker.
        self._epoch = 0

    def connect(self) -> "MemoryConnection":
        """Return a new link, not yet open."""
        return MemoryConnection(self)

    def cut(self) -> None:
        """Lose every link and every queue that is not durable; new links can be made at once."""
        with self._changed:
            self._epoch += 1
            self._queues = {name: queue for name, queue in self._queues.items() if queue[0].is_durable}
            for name in self._held:
                self._give_back(name)
            self._held.clear()
            self._changed.notify_all()

    def stop(self) -> None:
        """Go away: lose every link, and refuse new ones until :meth:`start`."""
        self.is_up = False
        self.cut()

    def start(self) -> None:
        """Come back."""
        self.is_up = True

    def wait_for_subscriber(self, exchange: str = "celeryev", timeout: float | None = 10.0) -> bool:
        """Wait until a queue is bound to an exchange: what is published from then on arrives there."""

        def is_bound() -> bool:
            return any(queue.exchange.name == exchange for queue, _ in self._queues.values())

        with self._changed:
            return self._changed.wait_for(is_bound, timeout)

    # -- for connections

    def join(self) -> int:
        """Return the epoch a link opened now belongs to."""
        with self._changed:
            return self._check(self._epoch)

    def declare(self, queue: Queue, epoch: int) -> None:
        """Make a queue and bind it, if it is not there yet."""
        with self._changed:
            self._check(epoch)
            self._queues.setdefault(queue.name, (queue, deque(maxlen=queue.max_length)))
            self._changed.notify_all()

    def delete(self, name: str) -> None:
        """Remove a queue and what waits in it."""
        with self._changed:
            self._queues.pop(name, None)
            self._held.pop(name, None)

    def send(self, exchange: Exchange, message: Message, epoch: int) -> None:
        """Put a message into every queue that its exchange and key lead to."""
        with self._changed:
            self._check(epoch)
            self.published.append((exchange.name, message))
            for queue, waiting in self._queues.values():
                if _leads_to(exchange, message, queue):
                    waiting.append(message)
            self._changed.notify_all()

    def take(
        self, names: list[str], epoch: int, timeout: float | None, *, held: Collection[str] = ()
    ) -> list[tuple[str, Message]]:
        """Return what waits in some queues, waiting up to ``timeout`` seconds for the first message.

        What was in those of them that are ``held`` goes back there, unless it is acknowledged.
        """
        deadline = None if timeout is None else monotonic() + timeout
        with self._changed:
            while True:
                self._check(epoch)
                taken = [(name, message) for name in names for message in self._empty(name)]
                left = None if deadline is None else deadline - monotonic()
                if taken or (left is not None and left <= 0):
                    for name, message in taken:
                        if name in held:
                            self._held.setdefault(name, []).append(message)
                    return taken
                self._changed.wait(left)

    def acknowledge(self, name: str, message: Message, epoch: int) -> None:
        """Forget a message that was held."""
        with self._changed:
            self._check(epoch)
            # By identity: another that says the same is another.
            self._held[name] = [each for each in self._held.get(name, ()) if each is not message]

    def give_back(self, names: list[str], epoch: int) -> None:
        """Put what is held of some queues back into them, in front of all else."""
        with self._changed:
            if epoch == self._epoch:
                for name in names:
                    self._give_back(name)
                self._changed.notify_all()

    def _give_back(self, name: str) -> None:
        if name in self._queues:
            self._queues[name][1].extendleft(reversed(self._held.get(name, [])))
        self._held[name] = []

    def _empty(self, name: str) -> list[Message]:
        _, waiting = self._queues.get(name, (None, deque[Message]()))
        messages = list(waiting)
        waiting.clear()
        return messages

    def _check(self, epoch: int) -> int:
        if not self.is_up or epoch != self._epoch:
            raise ConnectionLost(f"the link to memory broker {self.name!r} is cut")
        return epoch


class MemoryConnection:
    """One link to a :class:`MemoryBroker`."""

    driver = "memory"
    is_blocked = False

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self._epoch: int | None = None
        self._subscriptions: dict[str, tuple[Queue, Deliver]] = {}
        #: The queues whose messages are acknowledged.
        self._acknowledged: set[str] = set()
        self._waiting: deque[tuple[str, Message]] = deque()

    @property
    def address(self) -> str:
        """Where it leads, for people."""
        return f"in-memory://{self.broker.name}"

    def open(self) -> None:
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
    ) -> None:
        """Put one message into the queues it leads to."""
        message = Message(
            body,
            headers=dict(headers or {}),
            routing_key=routing_key,
            correlation_id=correlation_id,
            reply_to=reply_to,
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

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it."""
        self._joined()
        self.broker.delete(name)

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        # An exception out of a callback leaves the messages after it here.
        if not self._waiting:
            names = list(self._subscriptions)
            taken = self.broker.take(names, self._joined(), timeout, held=self._acknowledged)
            self._waiting.extend(taken)
        delivered = len(self._waiting)
        for _ in range(delivered):
            name, message = self._waiting.popleft()
            self._subscriptions[name][1](message)
            if name in self._acknowledged:
                self.broker.acknowledge(name, message, self._joined())
        return delivered

    def close(self) -> None:
        """Leave, and take our own queues along."""
        if self._epoch is not None:
            self.broker.give_back(list(self._acknowledged), self._epoch)
        for queue, _ in self._subscriptions.values():
            if queue.is_auto_deleted or queue.is_exclusive:
                self.broker.delete(queue.name)
        self._subscriptions.clear()
        self._acknowledged.clear()
        self._waiting.clear()

    def clone(self) -> Self:
        """Return a new link to the same broker."""
        return type(self)(self.broker)

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


def _leads_to(exchange: Exchange, message: Message, queue: Queue) -> bool:
    if not exchange.name:  # the default exchange: every queue is bound by its own name
        return queue.name == message.routing_key
    if queue.exchange.name != exchange.name:
        return False
    match exchange.type:
        case "fanout":
            return True
        case "direct":
            return queue.routing_key == message.routing_key
        case "topic":
            return topic_leads_to(queue.routing_key, message.routing_key)
