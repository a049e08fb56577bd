"""The names and flags of the exchanges and queues where nodes meet, as Celery declares them."""

from typing import Final

from celeriac.config import Settings
from celeriac.model.message import Exchange, Queue

__all__ = [
    "ALL_EVENTS",
    "WORKER_EVENTS",
    "control_exchange",
    "event_exchange",
    "event_queue",
    "node_queue",
    "reply_exchange",
    "reply_queue",
    "task_queue",
]

#: What a monitor binds its queue with.
ALL_EVENTS: Final = "#"
#: What one binds with who only wants to know which nodes are there.
WORKER_EVENTS: Final = "worker.#"

#: Celery: on these, events go through a fanout, because their topics would need a queue that
#: outlives its reader.
_FANOUT_DRIVERS: Final = frozenset({"redis", "gcpubsub"})


def event_exchange(name: str, driver: str) -> Exchange:
    """Return the exchange of events, by the setting ``event_exchange`` and the broker's family."""
    return Exchange(name, "fanout" if driver in _FANOUT_DRIVERS else "topic", is_durable=True)


def event_queue(
    settings: Settings,
    exchange: Exchange,
    *,
    unique: str,
    routing_key: str = ALL_EVENTS,
    max_length: int | None = None,
) -> Queue:
    """Return a queue for one receiver of events. ``unique`` is a text that nobody else has."""
    return Queue(
        f"{settings.event_queue_prefix}.{unique}",
        exchange,
        routing_key,
        is_durable=settings.event_queue_durable,
        is_exclusive=settings.event_queue_exclusive,
        is_auto_deleted=not settings.event_queue_durable,
        message_ttl=settings.event_queue_ttl,
        expires=settings.event_queue_expires,
        max_length=max_length,
    )


def control_exchange(settings: Settings) -> Exchange:
    """Return the exchange that brings a request to every node."""
    return Exchange(f"{settings.control_exchange}.pidbox", "fanout")


def reply_exchange(settings: Settings) -> Exchange:
    """Return the exchange that brings a reply to the one who asked."""
    return Exchange(f"reply.{settings.control_exchange}.pidbox", "direct")


def node_queue(settings: Settings, hostname: str) -> Queue:
    """Return the queue where the requests to one node wait."""
    exchange = control_exchange(settings)
    return _control_queue(settings, Queue(f"{hostname}.{exchange.name}", exchange))


def reply_queue(settings: Settings, unique: str) -> Queue:
    """Return the queue where the replies to one asker wait. ``unique`` is also its routing key."""
    exchange = reply_exchange(settings)
    return _control_queue(settings, Queue(f"{unique}.{exchange.name}", exchange, unique))


def task_queue(settings: Settings, name: str) -> Queue:
    """Return a queue of tasks, as Celery declares it: bound by its own name to an exchange of that name."""
    return Queue(
        name,
        Exchange(name, "direct", is_durable=True),
        name,
        is_durable=True,
        is_exclusive=False,
        is_auto_deleted=False,
        max_bytes=settings.task_max_bytes,
        max_priority=settings.task_queue_max_priority,
        type=None if settings.task_default_queue_type == "classic" else settings.task_default_queue_type,
    )


def _control_queue(settings: Settings, queue: Queue) -> Queue:
    return queue._replace(
        is_durable=settings.control_queue_durable,
        is_exclusive=settings.control_queue_exclusive,
        is_auto_deleted=not settings.control_queue_durable,
        message_ttl=settings.control_queue_ttl,
        expires=settings.control_queue_expires,
    )
