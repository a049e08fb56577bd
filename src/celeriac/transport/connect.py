"""From settings to a link."""

from collections.abc import Callable

from celeriac.config import Settings
from celeriac.transport.amqp import AmqpConnection
from celeriac.transport.base import Connection
from celeriac.transport.kombu import KombuConnection
from celeriac.transport.redis import RedisConnection

__all__ = ["connect"]

_QUICKER_WAYS: dict[str, Callable[[Settings], Connection]] = {
    "amqp": AmqpConnection,
    "redis": RedisConnection,
}


def connect(settings: Settings) -> Connection:
    """Return a link to the broker that the settings name, not yet open."""
    general = KombuConnection(settings)
    quicker = _QUICKER_WAYS.get(general.driver)
    return general if quicker is None else quicker(settings)
