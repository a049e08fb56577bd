"""From settings to who decides elections."""

from dataclasses import replace
from importlib import import_module
from typing import Final

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.transport.arbiter import Arbiter
from celeriac.transport.kombu_link import KombuLink, Peer
from celeriac.transport.memory import MemoryBroker

__all__ = ["arbiter_for"]

#: By the library that speaks to the broker; loaded when they are needed.
_ARBITERS: Final = {
    "py-amqp": ("celeriac.transport.amqp_arbiter", "AmqpArbiter"),
    "redis": ("celeriac.transport.redis_arbiter", "RedisArbiter"),
}


class _OtherBroker(KombuLink):
    """What ``election_url`` names, as kombu reads it."""

    peer = Peer("arbiter", "election_url")


def arbiter_for(settings: Settings, memory: MemoryBroker | None = None) -> Arbiter:
    """Return who decides elections, by ``election_url`` or else by the broker; nobody is asked yet.

    ``memory`` is the broker where that is one in memory.
    """
    if settings.election_url is None:
        if memory is not None:
            return memory.arbiter.seen_by(
                namespace=settings.election_namespace, retain=settings.election_retain
            )
        link = KombuLink(settings)
    else:
        # None of the broker's options: they may be of another family.
        link = _OtherBroker(
            replace(settings, broker_url=_place(settings.election_url), broker_transport_options={})
        )
    if link.library not in _ARBITERS:
        raise ImproperlyConfigured(
            f"the {link.peer.name} at {link.address} cannot decide elections: name a Redis or RabbitMQ in "
            "election_url"
        )
    module, name = _ARBITERS[link.library]
    arbiter: Arbiter = getattr(import_module(module), name)(settings)
    return arbiter


def _place(url: str) -> str:
    """Return a URL without its query: kombu knows the family without it."""
    return url.partition("?")[0]
