"""What travels over a broker, and what it travels through."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

__all__ = ["Delivery", "Exchange", "ExchangeType", "Message", "Queue", "topic_leads_to"]

ExchangeType = Literal["direct", "fanout", "topic"]


class Message(NamedTuple):
    """One message as it came off a broker, not yet looked at."""

    body: bytes
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    headers: Mapping[str, object] = {}
    routing_key: str = ""
    #: Why the transport could not open it, if it could not; ``body`` is then what came.
    fault: str = ""
    #: What a reply answers to: of a result, its task.
    correlation_id: str = ""
    #: The queue where a reply is awaited.
    reply_to: str = ""
    #: Where it was published; empty for the default exchange.
    exchange: str = ""
    priority: int = 0
    #: Whether somebody was given it before, and did not settle it.
    is_redelivered: bool = False


class Delivery(NamedTuple):
    """A message that is ours to settle: until then the broker keeps it for us."""

    message: Message
    #: The queue it waited in.
    queue: str
    #: By what the link knows it; of no meaning to anybody else.
    tag: object


class Exchange(NamedTuple):
    """Where messages are published: a name and the way it finds its queues."""

    name: str
    type: ExchangeType
    #: Whether it outlives a restart of the broker.
    is_durable: bool = False


class Queue(NamedTuple):
    """Where one subscriber's messages wait. Times are in seconds, None for no limit."""

    name: str
    exchange: Exchange
    #: For a topic, words and the wildcards ``*`` and ``#``; for a direct exchange the exact key.
    routing_key: str = ""
    is_durable: bool = False
    is_exclusive: bool = True
    is_auto_deleted: bool = True
    #: How long a message may wait.
    message_ttl: float | None = None
    #: How long the queue stays with no one consuming from it.
    expires: float | None = None
    #: How many messages may wait; beyond it the oldest are dropped.
    max_length: int | None = None
    #: How long a message may be, in bytes: a longer one comes without its body, with a fault. None
    #: leaves it to the transport.
    max_bytes: int | None = None
    #: The highest priority it sorts by, where a broker must be told; None for none.
    max_priority: int | None = None
    #: How RabbitMQ makes it: ``quorum``, or None for its own default.
    type: str | None = None


def topic_leads_to(pattern: str, routing_key: str) -> bool:
    """Say whether a topic binding takes a key: ``*`` stands for one word, ``#`` for any number."""
    return _topic(pattern).fullmatch(routing_key) is not None


@lru_cache(maxsize=256)
def _topic(pattern: str) -> re.Pattern[str]:
    text = ""
    previous = ""
    for word in pattern.split("."):
        # Words are parted by dots, but a ``#`` that stands for none brings no dot along.
        if text and previous != "#":
            text += r"(?:\.|$)" if word == "#" else r"\."
        text += {"*": r"[^.]+", "#": r"(?:[^.]+(?:\.|$))*"}.get(word) or re.escape(word)
        previous = word
    return re.compile(text)
