"""Redis: kombu says how to reach it, and the sockets are used directly.

Fan-out is publish/subscribe, with nothing kept for who is away; a direct exchange is
a table of bindings and a few lists for each queue. Answers are parsed by hiredis, many from
one read, and a message is published without waiting for the one before it.
:mod:`celeriac.transport.redis_tasks` takes what is to be settled.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from celeriac.config import Settings
from celeriac.errors import ConnectionLost, NetworkError
from celeriac.model.message import Exchange, Message, Queue, topic_leads_to
from celeriac.transport.base import Deliver
from celeriac.transport.readiness import Wakeup
from celeriac.transport.redis_consuming import RedisConsuming
from celeriac.transport.redis_link import RedisLink, wait_for
from celeriac.transport.redis_names import RedisNames
from celeriac.transport.redis_tasks import RedisTasks
from celeriac.wire.envelope import MAX_ENVELOPE_BYTES, envelope_bytes, opened, wrap

__all__ = ["RedisConnection"]

#: How long one request waits for a list.
_LIST_WAIT: Final = 5
#: Messages published and not yet confirmed: beyond it their confirmations are read.
_MAX_ON_THE_WAY: Final = 128
#: How long a confirmation may take.
_PATIENCE: Final = 10.0
#: Messages remembered where each comes twice, a moment apart.
_MAX_SEEN: Final = 100
#: A link that was idle for so long is looked at before it is used.
_IDLE: Final = 1.0

_Delivery = tuple[Deliver, Message]


class _Topics:
    """A socket subscribed to any number of patterns."""

    def __init__(self, link: RedisLink, *, is_doubled: bool) -> None:
        self.link = link
        self._deliver: defaultdict[bytes, list[tuple[str, Deliver]]] = defaultdict(list)
        #: What came, and for whom, where each message comes by two names.
        self._seen: deque[tuple[Deliver, bytes]] | None = deque(maxlen=_MAX_SEEN) if is_doubled else None

    def add(self, pattern: str, routing_key: str, deliver: Deliver) -> list[_Delivery]:
        """Subscribe to a pattern, and wait until Redis has confirmed it; return what else came."""
        name = pattern.encode()
        self._deliver[name].append((routing_key, deliver))
        self.link.send("PSUBSCRIBE", pattern)
        others: list[Any] = []
        deadline = monotonic() + _PATIENCE
        while (left := deadline - monotonic()) > 0:
            replies = self.link.read(left)
            others += replies
            if any(reply[0] == b"psubscribe" and reply[1] == name for reply in replies):
                return self.receive(others)
        raise ConnectionLost(f"lost the broker at {self.link.address}: subscription not confirmed")

    def prepare(self) -> float:
        """Return how long the socket may stay silent."""
        return self.link.show_life()

    def receive(self, replies: list[Any]) -> list[_Delivery]:
        """Return the messages in what was read, each with who is to get it."""
        deliveries = []
        for reply in replies:
            if reply[0] != b"pmessage":  # the answer to a sign of life
                continue
            message = opened(reply[3])
            for routing_key, deliver in self._deliver[reply[1]]:
                # Where no key is in the channel, what was not asked for is sorted out here.
                if routing_key not in {"", "#"} and not topic_leads_to(routing_key, message.routing_key):
                    continue
                if not self._has_seen(deliver, reply[3]):
                    deliveries.append((deliver, message))
        return deliveries

    def _has_seen(self, deliver: Deliver, data: bytes) -> bool:
        """Say whether an envelope came before, by the other name; no two messages have the same."""
        if self._seen is None:
            return False
        if (deliver, data) in self._seen:
            return True
        self._seen.append((deliver, data))
        return False


class _List:
    """A socket that waits for one queue."""

    def __init__(self, link: RedisLink, keys: list[str], deliver: Deliver, *, max_bytes: int) -> None:
        self.link = link
        self.keys = keys
        self._deliver = deliver
        self._max_bytes = max_bytes
        self._asked_at: float | None = None

    def prepare(self) -> float:
        """Ask for the next message if none is asked for; return how long the answer may take."""
        now = monotonic()
        if self._asked_at is None:
            self.link.send("BRPOP", *self.keys, _LIST_WAIT)
            self._asked_at = now
        elif now - self._asked_at > _LIST_WAIT + _PATIENCE:
            raise ConnectionLost(f"lost the broker at {self.link.address}: silent for too long")
        return max(0.0, self._asked_at + _LIST_WAIT + _PATIENCE - now)

    def receive(self, replies: list[Any]) -> list[_Delivery]:
        """Return the messages in what was read, with who is to get them."""
        if replies:
            self._asked_at = None
        return [
            (self._deliver, opened(reply[1], max_bytes=self._max_bytes))
            for reply in replies
            if reply is not None
        ]


_Source = _Topics | _List | RedisTasks


class RedisConnection(RedisConsuming):
    """One link to Redis or Sentinel: a socket to publish and ask, and one for each way to listen."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._channel: Any = None
        self._topics: _Topics | None = None
        self._lists: list[_List] = []
        self._on_the_way = 0
        self._wakeup: Wakeup | None = None
        self._is_woken = False

    def open(self) -> None:
        """Connect now; any other call does so by itself."""
        self._opened_link()

    def prepare(self, exchange: Exchange) -> None:  # noqa: ARG002  (on Redis nothing is declared)
        """Connect now, so that the first message leaves at once."""
        self._opened_link()

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
        expiration: float | None = None,  # noqa: ARG002  (on Redis nothing drops a message)
    ) -> None:
        """Send one JSON message."""
        link = self._opened_link()
        if link.idle_for() > _IDLE:
            # It may be closed by now, and what is written to a closed link is lost without a word.
            self._on_the_way -= len(link.read())
        envelope = wrap(
            body,
            exchange=exchange.name,
            routing_key=routing_key,
            headers=headers or {},
            delivery_tag=uuid4().hex,
            is_persistent=is_persistent,
            correlation_id=correlation_id,
            reply_to=reply_to,
            priority=priority,
        )
        if exchange.type == "fanout":
            command, keys = "PUBLISH", self._names.topics(exchange, routing_key)
        else:
            queues = self._queues_of(exchange, routing_key)
            command, keys = "LPUSH", [self._names.list_of(name, priority) for name in queues]
        # Not waited for here: an event that the caller publishes next must not follow the worker's.
        for key in keys:
            self._on_the_way += 1
            link.send(command, key, envelope)
        if self._on_the_way >= _MAX_ON_THE_WAY:
            self.unconfirmed()

    def unconfirmed(self, timeout: float = 0.0) -> int:
        """Return how many of the last published messages the broker has not confirmed yet."""
        deadline = monotonic() + timeout
        while self._on_the_way and self._asking is not None:
            left = deadline - monotonic()
            with self._spent_if_lost():
                self._on_the_way -= len(self._asking.read(max(0.0, left)))
            if left <= 0:
                break
        return self._on_the_way

    def subscribe(self, queue: Queue, deliver: Deliver, *, acknowledges: bool = False) -> None:  # noqa: ARG002
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`.

        ``acknowledges`` changes nothing: Redis forgets a message when it gives it to us, so what
        was on its way when a link is lost is lost with it.
        """
        self._opened_link()
        names = self._names
        if queue.exchange.type == "fanout":
            patterns = names.topics(queue.exchange, queue.routing_key.replace("#", "*"))
            self._topics = self._topics or _Topics(self._new_link(), is_doubled=len(patterns) > 1)
            for pattern in patterns:
                key = "" if names.has_patterns else queue.routing_key
                self._waiting.extend(self._topics.add(pattern, key, deliver))
            return
        if queue.exchange.name:  # the default exchange leads to every queue by its name
            self._ask("SADD", names.bindings(queue.exchange), names.binding(queue))
        self._own_if_passing(queue)
        max_bytes = MAX_ENVELOPE_BYTES if queue.max_bytes is None else envelope_bytes(queue.max_bytes)
        self._lists.append(_List(self._new_link(), names.lists(queue.name), deliver, max_bytes=max_bytes))

    def wake(self) -> None:
        """Let :meth:`drain` return soon; from any thread."""
        # In this order: whoever drains has something to be rung by before it looks whether it is woken.
        self._is_woken = True
        if (wakeup := self._wakeup) is not None:
            wakeup.ring()

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it; what led to it otherwise than by its name is left."""
        self._opened_link()
        self._ask("DEL", *self._names.lists(name))

    def queue_length(self, name: str) -> int | None:
        """Return how many messages wait in a queue, or None if there is none: an empty list is no list."""
        self._opened_link()
        return sum(self._ask("LLEN", key) for key in self._names.lists(name)) or None

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = None if timeout is None else monotonic() + timeout
        if self._left_over:
            self._opened_tasks()
        sources = self._sources()
        if not sources:
            raise ConnectionLost("nothing to drain: subscribe to a queue first")
        with self._spent_if_lost():
            self._collect(sources, deadline)
        return self._deliver()

    def _collect(self, sources: list[_Source], deadline: float | None) -> None:
        """Wait until there is something to deliver."""
        if self._waiting and self._tasks is not None:
            self._tasks.prepare()  # what is settled is written, whatever else there is to do
            self._waiting.extend(self._tasks.arrived())
        self._wakeup = wakeup = self._wakeup or Wakeup()
        # An exception out of a callback leaves the messages after it waiting.
        while not self._waiting:
            wait = min(source.prepare() for source in sources)
            if self._tasks is not None and (arrived := self._tasks.arrived()):
                self._waiting.extend(arrived)
                wait = 0.0
            if is_woken := self._is_woken:
                self._is_woken, wait = False, 0.0
            if deadline is not None:
                wait = min(wait, max(0.0, deadline - monotonic()))
            files: list[RedisLink | Wakeup] = [wakeup, *(source.link for source in sources)]
            ready = wait_for(files, wait)
            if wakeup in ready:
                wakeup.clear()  # whoever rang has said so before: the next turn sees it
            for source in sources:
                if source.link in ready:
                    self._waiting.extend(source.receive(source.link.take()))
            if is_woken or (deadline is not None and monotonic() >= deadline):
                break

    def _sources(self) -> list[_Source]:
        sources: list[_Source] = [*self._lists]
        if self._topics is not None:
            sources.append(self._topics)
        if self._tasks is not None:
            sources.append(self._tasks)
        return sources

    def close(self) -> None:
        """End the link and give back what it holds; closing twice is fine, and no error comes out of it."""
        self._end_tasks()
        with suppress(NetworkError):
            self.unconfirmed(timeout=1.0)
            for queue in self._own:
                self._ask("SREM", self._names.bindings(queue.exchange), self._names.binding(queue))
                self.delete_queue(queue.name)
        self._own.clear()
        for link in self._links():
            link.close()
        self._asking, self._topics, self._lists = None, None, []
        self._waiting.clear()
        if self._wakeup is not None:
            self._wakeup.close()
        self._wakeup = None
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        super().close()

    # -- links

    def _queues_of(self, exchange: Exchange, routing_key: str) -> list[str]:
        """Return the queues that an exchange leads to; not a fan-out."""
        if not exchange.name:  # the default exchange
            return [routing_key]
        queues = []
        for member in self._ask("SMEMBERS", self._names.bindings(exchange)):
            if (bound := self._names.bound(member)) is None:
                continue
            key, pattern, queue = bound
            is_topic = exchange.type == "topic"
            if topic_leads_to(pattern or key, routing_key) if is_topic else key == routing_key:
                queues.append(queue)
        return queues

    def _opened_link(self) -> RedisLink:
        if self._asking is None:
            with self._translated():
                channel, asking = self._dial()
            try:
                self._names = RedisNames(channel)
            except (TypeError, ValueError):
                asking.close()
                channel.close()
                raise self._unusable() from None
            self._channel, self._asking = channel, asking
        return self._asking

    def _links(self) -> list[RedisLink]:
        asking = [] if self._asking is None else [self._asking]
        return [*asking, *(source.link for source in self._sources())]

    def _new_link(self) -> RedisLink:
        return self._link(self._channel)

    def _ask(self, *command: str | bytes) -> Any:
        link = self._opened_link()
        with self._spent_if_lost():
            if self.unconfirmed(timeout=_PATIENCE):
                raise ConnectionLost(f"lost the broker at {self.address}: no confirmation received")
            return link.ask(*command)
