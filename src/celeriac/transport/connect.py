"""From settings to a link."""

from importlib import import_module
from typing import Final

from celeriac.config import Settings
from celeriac.transport.base import Connection
from celeriac.transport.kombu import KombuConnection

__all__ = ["connect"]

#: Loaded when a broker needs them: the libraries behind them take a third of a second to import.
_QUICKER_WAYS: Final = {
    "py-amqp": ("celeriac.transport.amqp", "AmqpConnection"),
    "redis": ("celeriac.transport.redis", "RedisConnection"),
}


def connect(settings: Settings) -> Connection:
    """Return a link to the broker that the settings name, not yet open."""
    general = KombuConnection(settings)
    # By library, not by family: librabbitmq speaks AMQP too, and has other insides.
    if general.library not in _QUICKER_WAYS:
        return general
    module, name = _QUICKER_WAYS[general.library]
    quicker: type[KombuConnection] = getattr(import_module(module), name)
    return quicker(settings)
