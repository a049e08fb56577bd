"""The arbiter in memory is one for all that share a broker; and who decides is chosen by the settings."""

from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import ConnectionLost, ImproperlyConfigured
from celeriac.model.election import Denied, Granted, Level, Mode
from celeriac.transport.arbiters import arbiter_for
from celeriac.transport.memory import MemoryBroker
from celeriac.transport.memory_arbiter import MemoryArbiter
from celeriac.transport.redis_arbiter import RedisArbiter
from tests.arbiter_contract import LONG, granted


def in_memory(broker: MemoryBroker, **settings: Any) -> MemoryArbiter:
    arbiter = arbiter_for(Settings(**settings), broker)
    assert isinstance(arbiter, MemoryArbiter)
    return arbiter


def test_all_apps_of_a_broker_have_one_arbiter_and_those_of_others_another() -> None:
    broker = MemoryBroker()
    granted(in_memory(broker), "key", "one")

    second = in_memory(broker).claim("key", "two", ttl=LONG, mode=Mode.LEASE)
    elsewhere = in_memory(MemoryBroker()).claim("key", "two", ttl=LONG, mode=Mode.LEASE)

    assert isinstance(second, Denied)
    assert isinstance(elsewhere, Granted)


def test_each_namespace_elects_for_itself() -> None:
    broker = MemoryBroker()
    shop, bank = (in_memory(broker, election_namespace=name) for name in ("shop", "bank"))

    granted(shop, "key", "one")
    granted(bank, "key", "two")

    assert [record.owner for arbiter in (shop, bank) for record in arbiter.leases()] == ["one", "two"]


def test_what_is_done_is_kept_for_as_long_as_the_settings_say() -> None:
    arbiter = in_memory(MemoryBroker(), election_retain=77.0)

    token = granted(arbiter, "key", "owner").token
    arbiter.finish("key", "owner", token)

    record = arbiter.read("key")
    assert record is not None
    assert 60 < record.remaining <= 77.0


def test_a_broker_that_is_away_decides_nothing_and_forgets_nothing() -> None:
    broker = MemoryBroker()
    arbiter = in_memory(broker)
    first = granted(arbiter, "key", "owner")
    broker.stop()

    for call in (
        arbiter.look,
        arbiter.leases,
        lambda: arbiter.read("key"),
        lambda: arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE),
        lambda: arbiter.renew("key", "owner", first.token, ttl=LONG),
        lambda: arbiter.finish("key", "owner", first.token),
        lambda: arbiter.release("key", "owner", first.token),
    ):
        with pytest.raises(ConnectionLost, match="is stopped"):
            call()

    broker.start()
    assert granted(arbiter, "key", "owner") == first
    assert arbiter.look() is Level.L3


# -- who decides


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"broker_url": "redis://web1/0"}, "RedisArbiter"),
        ({"broker_url": "rediss://web1/0"}, "RedisArbiter"),
        ({"broker_url": "sentinel://web1:1;sentinel://web2:1"}, "RedisArbiter"),
        ({"broker_url": "redis+socket:///run/redis.sock"}, "RedisArbiter"),
        ({"broker_url": "memory://", "election_url": "redis://web1/0"}, "RedisArbiter"),
        ({"broker_url": "memory://", "election_url": "redis://web1/0?socket_timeout=3"}, "RedisArbiter"),
        ({"broker_url": "amqp://web1//", "election_url": "sentinel://web1?master_name=m"}, "RedisArbiter"),
        ({"broker_url": "amqp://web1//"}, "AmqpArbiter"),
        ({"broker_url": "redis://web1/0", "election_url": "pyamqp://web1//"}, "AmqpArbiter"),
    ],
)
def test_who_decides_is_named_by_election_url_or_else_by_the_broker(
    settings: dict[str, Any], kind: str
) -> None:
    arbiter = arbiter_for(Settings(**settings))

    assert type(arbiter).__name__ == kind


def test_election_url_is_above_a_broker_in_memory() -> None:
    arbiter = arbiter_for(Settings(election_url="redis://web1/0"), MemoryBroker())

    assert isinstance(arbiter, RedisArbiter)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"broker_url": "memory://"}, "name a Redis or RabbitMQ in election_url"),
        (
            {"broker_url": "redis://web1", "election_url": "memory://"},
            "cannot decide elections: name a Redis or RabbitMQ in election_url",
        ),
        (
            {"broker_url": "redis://web1", "election_url": "nope://web1"},
            "election_url 'nope://web1' uses an unavailable transport",
        ),
        (
            {"broker_url": "redis://web1", "election_url": "redis://:hun/ter@web1:1"},
            "invalid election_url .*: check the port",
        ),
        ({"broker_url": "redis://web1", "election_url": "redis://web1?socket_timeout=long"}, "a number"),
        (
            {"broker_url": "redis://web1", "broker_transport_options": {"global_keyprefix": 7}},
            "global_keyprefix in broker_transport_options is a int; give a string",
        ),
    ],
)
def test_what_can_decide_nothing_is_a_mistake_in_the_settings(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=problem) as caught:
        arbiter_for(Settings(**settings))

    assert "hun" not in str(caught.value)
