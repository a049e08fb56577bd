"""Redis: kombu says how to reach it, and the sockets are used directly.

Fan-out is publish/subscribe, with nothing kept for who is away; a direct exchange is
a table of bindings and a list for each queue. Answers are parsed by hiredis, many from
one read, and a message is published without waiting for the one before it.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from celeriac.config import Settings
from celeriac.errors import ConnectionLost, NetworkError, PeerError
from celeriac.model.message import Exchange, Message, Queue, topic_leads_to
from celeriac.transport.base import Deliver
from celeriac.transport.redis_dial import RedisDialer
from celeriac.transport.redis_link import RedisLink, wait_for
from celeriac.wire.envelope import MAX_ENVELOPE_BYTES, correlation_of, envelope_bytes, unwrap, wrap

__all__ = ["RedisConnection"]

#: Between the name of a queue and a priority, and between the parts of a binding.
_SEPARATOR: Final = "\x06\x16"
#: Celery: a queue is four lists, one for each step of priority.
_PRIORITIES: Final = ("", f"{_SEPARATOR}3", f"{_SEPARATOR}6", f"{_SEPARATOR}9")
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
        raise ConnectionLost(f"lost the broker at {self.link.address}: it did not confirm a subscription")

    def prepare(self) -> float:
        """Return how long the socket may stay silent."""
        return self.link.show_life()

    def receive(self, replies: list[Any]) -> list[_Delivery]:
        """Return the messages in what was read, each with who is to get it."""
        deliveries = []
        for reply in replies:
            if reply[0] != b"pmessage":  # the answer to a sign of life
                continue
            message = _opened(reply[3])
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
            raise ConnectionLost(f"lost the broker at {self.link.address}: it has been silent")
        return max(0.0, self._asked_at + _LIST_WAIT + _PATIENCE - now)

    def receive(self, replies: list[Any]) -> list[_Delivery]:
        """Return the messages in what was read, with who is to get them."""
        if replies:
            self._asked_at = None
        return [
            (self._deliver, _opened(reply[1], max_bytes=self._max_bytes))
            for reply in replies
            if reply is not None
        ]


class RedisConnection(RedisDialer):
    """One link to Redis or Sentinel: a socket to publish and ask, and one for each way to listen."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._channel: Any = None
        self._asking: RedisLink | None = None
        self._topics: _Topics | None = None
        self._lists: list[_List] = []
        #: The queues that end with us.
        self._own: list[Queue] = []
        self._on_the_way = 0

    def open(self) -> None:
        """Connect now; any other call does so by itself."""
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
        )
        if exchange.type != "fanout":
            for name in self._queues_of(exchange, routing_key):
                self._ask("LPUSH", self._key(name), envelope)
            return
        for topic in self._topic_names(exchange, routing_key):
            self._on_the_way += 1
            link.send("PUBLISH", topic, envelope)
        if self._on_the_way >= _MAX_ON_THE_WAY:
            self.unconfirmed()

    def unconfirmed(self, timeout: float = 0.0) -> int:
        """Return how many of the last published messages the broker has not confirmed yet."""
        deadline = monotonic() + timeout
        while self._on_the_way and self._asking is not None:
            left = deadline - monotonic()
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
        if queue.exchange.type == "fanout":
            patterns = self._topic_names(queue.exchange, queue.routing_key.replace("#", "*"))
            self._topics = self._topics or _Topics(self._new_link(), is_doubled=len(patterns) > 1)
            has_patterns = bool(self._channel.fanout_patterns)
            for pattern in patterns:
                key = "" if has_patterns else queue.routing_key
                self._waiting.extend(self._topics.add(pattern, key, deliver))
            return
        if queue.exchange.name:  # the default exchange leads to every queue by its name
            self._ask("SADD", self._binding_key(queue.exchange), _binding(queue))
        if queue.is_auto_deleted or queue.is_exclusive:
            self._own.append(queue)
        max_bytes = MAX_ENVELOPE_BYTES if queue.max_bytes is None else envelope_bytes(queue.max_bytes)
        self._lists.append(_List(self._new_link(), self._keys(queue.name), deliver, max_bytes=max_bytes))

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it; what led to it otherwise than by its name is left."""
        self._opened_link()
        self._ask("DEL", *self._keys(name))

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = None if timeout is None else monotonic() + timeout
        sources: list[_Topics | _List] = [*self._lists]
        if self._topics is not None:
            sources.append(self._topics)
        if not sources:
            raise ConnectionLost("nothing to drain: subscribe to a queue first")
        # An exception out of a callback leaves the messages after it waiting.
        while not self._waiting:
            wait = min(source.prepare() for source in sources)
            if deadline is not None:
                wait = min(wait, max(0.0, deadline - monotonic()))
            ready = wait_for([source.link for source in sources], wait)
            for source in sources:
                if source.link in ready:
                    self._waiting.extend(source.receive(source.link.take()))
            if deadline is not None and monotonic() >= deadline:
                break
        return self._deliver()

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        with suppress(NetworkError):
            self.unconfirmed(timeout=1.0)
            for queue in self._own:
                self._ask("SREM", self._binding_key(queue.exchange), _binding(queue))
                self.delete_queue(queue.name)
        self._own.clear()
        topics = [self._topics.link] if self._topics is not None else []
        for link in (self._asking, *topics, *(source.link for source in self._lists)):
            if link is not None:
                link.close()
        self._asking, self._topics, self._lists = None, None, []
        self._waiting.clear()
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        super().close()

    # -- names, as kombu has them

    def _topic_names(self, exchange: Exchange, routing_key: str) -> list[str]:
        channel = self._channel
        name = exchange.name
        if routing_key and channel.fanout_patterns:
            name = f"{name}/{routing_key}"
        prefixes = [channel.keyprefix_fanout]
        # Celery: through Sentinel, kombu before 5.4 left the placeholder in its prefix as it was.
        if getattr(channel, "sentinel_fanout_compat", False) and channel.fanout_prefix is True:
            prefixes.append("/{db}.")
        return [f"{channel.global_keyprefix}{prefix}{name}" for prefix in prefixes]

    def _key(self, name: str) -> str:
        return f"{self._channel.global_keyprefix}{name}"

    def _keys(self, queue: str) -> list[str]:
        return [self._key(queue) + priority for priority in _PRIORITIES]

    def _binding_key(self, exchange: Exchange) -> str:
        return self._key(f"_kombu.binding.{exchange.name}")

    def _queues_of(self, exchange: Exchange, routing_key: str) -> list[str]:
        """Return the queues that an exchange other than a fan-out leads to."""
        if not exchange.name:  # the default exchange: every queue is bound by its own name
            return [routing_key]
        queues = []
        for member in self._ask("SMEMBERS", self._binding_key(exchange)):
            parts = member.decode("utf-8", "replace").split(_SEPARATOR)
            if len(parts) != 3:  # anyone may write there
                continue
            key, pattern, queue = parts
            is_topic = exchange.type == "topic"
            if topic_leads_to(pattern or key, routing_key) if is_topic else key == routing_key:
                queues.append(queue)
        return queues

    # -- links

    def _opened_link(self) -> RedisLink:
        if self._asking is None:
            with self._translated():
                self._channel, self._asking = self._dial()
        return self._asking

    def _new_link(self) -> RedisLink:
        return self._link(self._channel)

    def _ask(self, *command: str | bytes) -> Any:
        link = self._opened_link()
        if self.unconfirmed(timeout=_PATIENCE):
            raise ConnectionLost(f"lost the broker at {self.address}: it confirms nothing")
        return link.ask(*command)


def _binding(queue: Queue) -> str:
    # Celery: key, pattern (only for topics), queue.
    pattern = queue.routing_key if queue.exchange.type == "topic" else ""
    return _SEPARATOR.join((queue.routing_key, pattern, queue.name))


def _opened(data: bytes, *, max_bytes: int = MAX_ENVELOPE_BYTES) -> Message:
    try:
        return unwrap(data, max_bytes=max_bytes)
    except PeerError as error:
        return Message(data, fault=str(error), correlation_id=correlation_of(data))
