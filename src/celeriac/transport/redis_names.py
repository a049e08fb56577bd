"""The keys and channels of Redis that kombu uses, by the options of its transport."""

from bisect import bisect
from typing import Any

from celeriac.model.message import Exchange, Queue

__all__ = ["RedisNames"]


class RedisNames:
    """Names as a channel of kombu has them, with the prefix that the options may ask for."""

    def __init__(self, channel: Any) -> None:
        self._prefix: str = channel.global_keyprefix
        self._separator: str = channel.sep
        #: Celery: a queue is a list for each step of priority; the lowest is served first.
        self._steps = tuple(int(step) for step in channel.priority_steps)
        #: Whether the routing key is a part of a channel's name.
        self.has_patterns = bool(channel.fanout_patterns)
        prefixes = [channel.keyprefix_fanout]
        # Celery: through Sentinel, kombu before 5.4 left the placeholder in its prefix as it was.
        if getattr(channel, "sentinel_fanout_compat", False) and channel.fanout_prefix is True:
            prefixes.append("/{db}.")
        self._topic_prefixes = prefixes
        #: What is taken and not settled: a hash, and by when it was taken a sorted set.
        self.unacked = self.key(channel.unacked_key)
        self.unacked_index = self.key(channel.unacked_index_key)
        #: How many seconds something may be held before others put it back, as the options have it.
        self.visibility_timeout: Any = channel.visibility_timeout

    def key(self, name: str) -> str:
        """Return a key by its plain name."""
        return f"{self._prefix}{name}"

    def list_of(self, queue: str, priority: int) -> str:
        """Return the list that a message of a priority waits in."""
        return self._list(queue, self._steps[bisect(self._steps, min(max(priority, 0), 9)) - 1])

    def lists(self, queue: str) -> list[str]:
        """Return the lists that a queue is made of, the one that is served first in front."""
        return [self._list(queue, step) for step in self._steps]

    def aside_of(self, queue: str, priority: int) -> str:
        """Return the sorted set of messages of a priority that were set aside, by the time they return."""
        return self._aside(self.list_of(queue, priority))

    def asides(self, queue: str) -> list[str]:
        """Return the sorted sets of messages that were set aside, one for each list of a queue."""
        return [self._aside(list_name) for list_name in self.lists(queue)]

    def topics(self, exchange: Exchange, routing_key: str) -> list[str]:
        """Return the channels that a fan-out goes through."""
        name = f"{exchange.name}/{routing_key}" if routing_key and self.has_patterns else exchange.name
        return [self.key(f"{prefix}{name}") for prefix in self._topic_prefixes]

    def bindings(self, exchange: Exchange) -> str:
        """Return the set of what is bound to an exchange."""
        return self.key(f"_kombu.binding.{exchange.name}")

    def lasting_bindings(self, exchange: Exchange) -> str:
        """Return the set of what is bound to an exchange for good: without it kombu 5.7 sweeps the other."""
        return self.key(f"_kombu.binding_permanent.{exchange.name}")

    def binding(self, queue: Queue) -> str:
        """Return how a queue is written down among what is bound to its exchange."""
        # Celery: key, pattern (only for topics), queue.
        pattern = queue.routing_key if queue.exchange.type == "topic" else ""
        return self._separator.join((queue.routing_key, pattern, queue.name))

    def bound(self, member: bytes) -> tuple[str, str, str] | None:
        """Return the key, the pattern and the queue of a binding; None for what is none."""
        parts = member.decode("utf-8", "replace").split(self._separator)
        return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None  # anyone may write there

    def _aside(self, list_name: str) -> str:
        return self.key(f"celeriac.aside.{list_name.removeprefix(self._prefix)}")

    def _list(self, queue: str, step: int) -> str:
        return self.key(f"{queue}{self._separator}{step}" if step else queue)
