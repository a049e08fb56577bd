"""The half of a link to Redis that takes tasks, and settles them."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured, NetworkError
from celeriac.model.message import Delivery, Exchange, Queue
from celeriac.transport.base import Take
from celeriac.transport.redis_clock import RedisClock
from celeriac.transport.redis_dial import RedisDialer
from celeriac.transport.redis_link import RedisLink
from celeriac.transport.redis_names import RedisNames
from celeriac.transport.redis_tasks import RedisTasks, is_own_tag

__all__ = ["RedisConsuming"]

#: How long giving back may take when the link is closed.
_PATIENCE: Final = 5.0


class RedisConsuming(RedisDialer, ABC):
    """Takes what is to be settled; how a socket is opened and asked is up to its heir.

    Redis keeps what is taken until it is settled, over any link: one that is lost is no reason to
    give up what came over it.
    """

    _names: RedisNames

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        #: The socket to ask by; None while nothing is open.
        self._asking: RedisLink | None = None
        self._tasks: RedisTasks | None = None
        #: The queues that end with us.
        self._own: list[Queue] = []
        #: What came and was not delivered yet: messages and deliveries, each with who is to get it.
        self._waiting: deque[tuple[Callable[[Any], object], Any]] = deque()
        #: Whether somebody was told that the link is lost.
        self._is_spent = False
        #: What is to be settled once there is a socket for it, by tag, and whether it goes back.
        self._left_over: dict[str, bool] = {}

    def declare(self, queue: Queue) -> None:
        """Bind a queue, so that what is published to it is kept; its lists begin with their first message."""
        self._opened_link()
        if queue.exchange.type == "fanout":
            raise ImproperlyConfigured(
                f"cannot persist queue {queue.name!r}: a Redis fanout has subscribers, and no list"
            )
        if not queue.exchange.name:  # the default exchange leads to every queue by its name
            return
        member = self._names.binding(queue)
        self._ask("SADD", self._names.bindings(queue.exchange), member)
        if queue.expires is None:
            self._ask("SADD", self._names.lasting_bindings(queue.exchange), member)

    def consume(self, queue: Queue, take: Take, *, prefetch: int) -> None:
        """Declare a queue and hand what comes to ``take``, within :meth:`drain`, to be settled.

        ``prefetch`` counts over all queues of the link. What a lost link held goes back once the
        transport's option ``visibility_timeout`` has passed, unless another link keeps it.
        """
        self.declare(queue)
        self._own_if_passing(queue)
        tasks = self._opened_tasks()
        tasks.consume(queue, take)
        tasks.prefetch = prefetch

    def stop_consuming(self, queue: str) -> None:
        """Take no more from a queue. What was delivered is still to be settled."""
        if self._tasks is None:
            return
        self._tasks.stop(queue)
        waiting, self._waiting = self._waiting, deque()
        for deliver, message in waiting:
            if isinstance(message, Delivery) and message.queue == queue:
                self.reject(message, requeue=True)
            else:
                self._waiting.append((deliver, message))

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many deliveries may be unsettled at a time."""
        if self._tasks is not None:
            self._tasks.prefetch = prefetch

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery, also one of a lost link: Redis forgets it, with the next :meth:`drain`."""
        self.reject(delivery, requeue=False)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Settle a delivery, also one of a lost link: it is the next to be taken again, or dropped."""
        tag = delivery.tag
        if not is_own_tag(tag):
            return
        if self._tasks is None:
            self._left_over.setdefault(tag, requeue)
        else:
            self._tasks.unsettled.settle(tag, goes_back=requeue)

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:
        """Move a delivery out of the way, with the next :meth:`drain`; links that consume move it back."""
        tag = delivery.tag
        if not is_own_tag(tag) or self._tasks is None:
            return False
        self._tasks.set_aside(tag, queue=delivery.queue, priority=delivery.message.priority, seconds=seconds)
        return True

    def keep(self, delivery: Delivery) -> bool:
        """Go on holding, over this link, a delivery of one that was lost; say whether that can be."""
        tag = delivery.tag
        if not is_own_tag(tag):
            return False
        tasks = self._opened_tasks()
        # Renewed first: what is then still there nobody else puts back.
        self._ask("ZADD", self._names.unacked_index, "XX", repr(tasks.clock.now()), tag)
        is_there = bool(self._ask("HEXISTS", self._names.unacked, tag))
        if is_there:
            tasks.unsettled.hold(tag)
        return is_there

    def clone(self) -> Self:
        """Return a new link to the same broker, not yet open; it settles what a lost one could not."""
        clone = super().clone()
        # One that never came to be open, because the server was still away, hands on what it was given.
        if self._tasks is None or self._is_lost():
            clone._left_over = dict(self._unfinished())  # noqa: SLF001
        return clone

    # -- for the heir

    @abstractmethod
    def _links(self) -> list[RedisLink]:
        """Return the sockets that are open."""

    @abstractmethod
    def _opened_link(self) -> RedisLink:
        """Return the socket to ask by, opened if need be; ``_names`` are then known."""

    @abstractmethod
    def _new_link(self) -> RedisLink:
        """Return another socket."""

    @abstractmethod
    def _ask(self, *command: str | bytes) -> Any:
        """Write one command and return its answer."""

    @abstractmethod
    def _queues_of(self, exchange: Exchange, routing_key: str) -> list[str]:
        """Return the queues that an exchange leads to."""

    def _own_if_passing(self, queue: Queue) -> None:
        if queue.is_auto_deleted or queue.is_exclusive:
            self._own.append(queue)

    def _deliver(self) -> int:
        """Deliver what came; return how many messages that were."""
        delivered = 0
        # No more than these: a callback may publish, and then more can come.
        for _ in range(len(self._waiting)):
            if not self._waiting:  # a callback stopped consuming, and what came from there goes back
                break
            deliver, message = self._waiting.popleft()
            delivered += 1
            deliver(message)
        return delivered

    def _end_tasks(self) -> None:
        """Settle what is settled, give back the rest unless the link is lost, and close the socket."""
        if not self._is_lost():
            with suppress(NetworkError), self._spent_if_lost():
                if self._asking is not None and self._left_over:
                    self._opened_tasks()
                if self._tasks is not None:
                    self._tasks.finish(_PATIENCE)
        self._left_over = self._unfinished()
        if self._tasks is not None:
            self._tasks.link.close()
        self._tasks = None

    def _is_lost(self) -> bool:
        """Say whether a part of the link was lost: what it holds may then be kept by the next one."""
        self._is_spent = self._is_spent or any(link.is_lost for link in self._links())
        return self._is_spent

    @contextmanager
    def _spent_if_lost(self) -> Iterator[None]:
        """Take note of a loss, and of a refusal: what was asked after it is never answered in order."""
        try:
            yield
        except NetworkError:
            self._is_spent = True
            raise

    def _opened_tasks(self) -> RedisTasks:
        if self._tasks is None:
            self._opened_link()
            timeout = self._visibility_timeout()
            link = self._new_link()
            try:
                self._tasks = RedisTasks(
                    link,
                    self._names,
                    queues_of=self._queues_behind,
                    visibility_timeout=timeout,
                    clock=RedisClock.of(link),
                    left_over=self._left_over,
                )
            except NetworkError:
                link.close()
                raise
            self._left_over = {}
        return self._tasks

    def _queues_behind(self, exchange: str, routing_key: str) -> list[str]:
        """Return the queues that an exchange leads to, whose kind is not told."""
        direct, topic = Exchange(exchange, "direct"), Exchange(exchange, "topic")
        # Who took the message says which exchange it was: it may be none.
        if self._ask("TYPE", self._names.bindings(direct)) != b"set":
            return []
        return self._queues_of(direct, routing_key) or self._queues_of(topic, routing_key)

    def _visibility_timeout(self) -> float:
        given = self._names.visibility_timeout
        with suppress(TypeError, ValueError):
            if (timeout := float(given)) > 0:
                return timeout
        raise ImproperlyConfigured(f"visibility_timeout in {self.peer.options} is {given!r}; give seconds")

    def _unfinished(self) -> dict[str, bool]:
        """Return what is settled and not confirmed, or not delivered, and whether it goes back."""
        if self._tasks is None:
            return self._left_over
        arrived = [message for _, message in self._waiting if isinstance(message, Delivery)]
        return {str(delivery.tag): True for delivery in arrived} | self._tasks.unfinished()
