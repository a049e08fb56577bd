"""Who takes tasks from Redis, as kombu does and as we do, and what becomes of those that die."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from typing import Any

import kombu

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange
from celeriac.transport.base import Connection
from celeriac.transport.redis import RedisConnection
from celeriac.transport.redis_tasks import RedisTasks
from tests.contract_tasks import Taker, number_of, some_task_queue

__all__ = [
    "PATIENCE",
    "QUEUE",
    "SEPARATOR",
    "SHORT",
    "Connect",
    "KombuTaker",
    "age",
    "connecting",
    "held",
    "lose",
    "numbers",
    "tasks_of",
]

#: Far more than needed, for a busy machine.
PATIENCE = 60.0
QUEUE = some_task_queue()._replace(name="tasks", exchange=Exchange("tasks", "direct"), routing_key="tasks")
SEPARATOR = "\x06\x16"
#: So that kombu looks for what was held too long each time it finds nothing.
SHORT = {"visibility_timeout": 1, "unacked_restore_throttle": 1, "unacked_restore_interval": 1}

#: Makes links with options of the transport.
Connect = Callable[..., RedisConnection]


@contextmanager
def connecting(url: str) -> Iterator[Connect]:
    """Have a function that makes links; they are closed at the end."""
    with ExitStack() as stack:

        def new(**options: object) -> RedisConnection:
            settings = Settings(broker_url=url, broker_transport_options=options)
            return stack.enter_context(RedisConnection(settings))

        yield new


class KombuTaker:
    """A consumer as Celery is one; what it has it holds until told otherwise."""

    def __init__(self, url: str, *, prefetch: int = 100, **options: object) -> None:
        self.messages: list[Any] = []
        self.connection = kombu.Connection(url, transport_options=dict(options))
        queue = kombu.Queue("tasks", kombu.Exchange("tasks", "direct"), "tasks")
        consumer = kombu.Consumer(self.connection.channel(), [queue], on_message=self.messages.append)
        consumer.qos(prefetch_count=prefetch)
        consumer.consume()

    def drain(self) -> int:
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0.05)
        return len(self.messages)

    def accept(self) -> None:
        for message in self.messages:
            if not message.acknowledged:
                message.ack()

    @property
    def numbers(self) -> list[int]:
        return [message.payload["number"] for message in self.messages]

    def die(self) -> None:
        """Be gone, and leave what was taken where it is."""
        for channel in self.connection.transport.channels:
            channel.qos._delivered.clear()
        self.connection.release()


def numbers(taker: Taker) -> list[int]:
    """Return the numbers that were taken, in order."""
    return [number_of(delivery) for delivery in taker.deliveries]


def held(client: Any) -> tuple[int, int]:
    """Return how many entries there are of what is unsettled, and how many in their index."""
    return client.hlen("unacked"), client.zcard("unacked_index")


def age(client: Any, seconds: float = 7200.0) -> None:
    """Let what is held have been taken long ago, in the order it was."""
    for tag, score in client.zrange("unacked_index", 0, -1, withscores=True):
        client.zadd("unacked_index", {tag: score - seconds})


def lose(link: Connection, client: Any, *, kind: str = "normal") -> None:
    """End a link at the server, and let it notice."""
    client.client_kill_filter(_type=kind, skipme=True)
    deadline = monotonic() + PATIENCE
    with suppress(ConnectionLost):
        while monotonic() < deadline:
            link.drain(0.5)
        raise AssertionError("the link lives on")


def tasks_of(link: Connection) -> RedisTasks:
    """Return what takes tasks behind a link."""
    assert isinstance(link, RedisConnection)
    assert link._tasks is not None
    return link._tasks
