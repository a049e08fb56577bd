"""Tasks on Redis: what was taken outlives the link it came over."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Delivery, Message
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.transport import redis_pipe
from celeriac.transport.redis import RedisConnection
from tests.contract import queue_of, some_exchange
from tests.contract_tasks import Taker, send
from tests.links import frozen
from tests.redis_tasks import (
    PATIENCE,
    QUEUE,
    Connect,
    age,
    connecting,
    held,
    lose,
    tasks_of,
)


@pytest.fixture
def connect(redis_url: str) -> Iterator[Connect]:
    """A function that makes links with options of the transport."""
    with connecting(redis_url) as connect:
        yield connect


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """A client of the database that the links use."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_what_a_lost_link_delivered_is_kept_and_settled_over_the_next(connect: Connect, client: Any) -> None:
    first = Taker(connect(), QUEUE)
    send(connect(), QUEUE, *range(4))
    first.drain(4)
    lose(first.link, client)
    first.link.close()
    second = Taker(first.link.clone(), QUEUE, prefetch=3)

    is_kept = [second.link.keep(first.of(number)) for number in (0, 1)]
    second.link.accept(first.of(0))
    second.link.accept(first.of(2))  # without keeping it first
    second.link.reject(first.of(3), requeue=True)
    second.drain(1)

    assert is_kept == [True, True]
    assert second.numbers == [3]
    second.link.close()
    assert (client.llen("tasks"), held(client)) == (2, (0, 0))  # 1 and 3, which were held


def test_what_is_kept_counts_among_what_may_be_unsettled(connect: Connect, client: Any) -> None:
    first = Taker(connect(), QUEUE, prefetch=2)
    send(connect(), QUEUE, *range(5))
    first.drain(2)
    lose(first.link, client)
    second = Taker(first.link.clone(), QUEUE, prefetch=3)

    for delivery in first.deliveries:
        second.link.keep(delivery)

    assert second.drain(1) == [2]
    assert second.link.drain(0.05) == 0
    second.link.close()


def test_what_another_has_by_now_cannot_be_kept(connect: Connect, client: Any) -> None:
    first = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    first.drain(1)
    lose(first.link, client)
    age(client)
    assert Taker(connect(), QUEUE).drain(1) == [1]

    is_kept = connect().keep(first.deliveries[0])

    assert is_kept is False


@pytest.mark.parametrize("tag", [None, 7, "somebody else's", object()])
def test_a_delivery_of_no_link_to_redis_is_neither_kept_nor_settled(connect: Connect, tag: object) -> None:
    link = connect()
    delivery = Delivery(Message(b""), "tasks", tag)
    Taker(link, QUEUE)

    link.accept(delivery)
    link.reject(delivery, requeue=True)

    assert link.keep(delivery) is False
    assert link.drain(0) == 0


def test_what_was_settled_as_the_link_was_lost_is_settled_by_its_clone(connect: Connect, client: Any) -> None:
    first = Taker(connect(), QUEUE)
    send(connect(), QUEUE, *range(3))
    first.drain(3)
    client.client_kill_filter(_type="normal", skipme=True)
    first.accept(0, 1)
    first.link.reject(first.of(2), requeue=True)
    lose(first.link, client)
    assert held(client) == (3, 3)
    first.link.close()

    second = Taker(first.link.clone(), QUEUE)

    assert second.drain(1) == [2]
    assert held(client) == (1, 1)
    second.link.close()


@pytest.fixture
def keeping() -> Iterator[RedisServer]:
    """A Redis that keeps what it has, from its start: one that is told later may not end when asked to."""
    with RedisServer({"appendonly": "yes"}) as server:
        yield server


def test_what_is_to_be_settled_outlives_clones_that_found_no_server(keeping: RedisServer) -> None:
    first = Taker(RedisConnection(Settings(broker_url=keeping.url)), QUEUE)
    with RedisConnection(Settings(broker_url=keeping.url)) as sender:
        send(sender, QUEUE, *range(2))
    first.drain(2)
    keeping.stop()
    first.accept(0)
    first.link.reject(first.of(1), requeue=True)
    with pytest.raises(ConnectionLost):
        first.link.drain(PATIENCE)
    first.link.close()
    second = first.link.clone()
    with pytest.raises(ConnectionLost):
        second.open()
    second.close()
    keeping.start()

    third = Taker(second.clone(), QUEUE)

    assert third.drain(1) == [1]
    with keeping.client() as client:
        assert held(client) == (1, 1)
    third.link.close()


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_what_was_taken_and_never_reached_us_is_put_back_by_the_next_link(
    own_redis: RedisServer, is_closed_first: bool
) -> None:
    settings = Settings(broker_url=own_redis.url)
    link = RedisConnection(settings)
    taker = Taker(link, QUEUE, prefetch=5)
    link.drain(0.05)
    with RedisConnection(settings) as sender, own_redis.client() as client:
        send(sender, QUEUE, *range(8))
        tasks = tasks_of(link)
        with frozen(own_redis):
            link.drain(0)  # is told, perhaps
            tasks._notice()
            link.drain(0)
            tasks.link._socket.shutdown(socket.SHUT_RD)
            with pytest.raises(ConnectionLost):
                link.drain(PATIENCE)
        assert wait_until(lambda: client.hlen("unacked") == 5, patience=PATIENCE)
        if is_closed_first:
            link.close()

        again = Taker(link.clone(), QUEUE, prefetch=8)
        again.drain(8)

        assert taker.numbers == []
        assert again.numbers == list(range(8))
        assert client.hlen("unacked") == 8
        again.link.close()
    link.close()


def test_what_is_settled_over_a_link_that_consumes_nothing_is_settled_too(
    connect: Connect, client: Any
) -> None:
    first = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1, 2)
    first.drain(2)
    lose(first.link, client)
    second = connect()

    second.accept(first.of(1))
    second.drain(0.05)
    second.accept(first.of(2))
    second.close()

    assert held(client) == (0, 0)


def test_a_link_that_drained_before_it_had_anything_to_drain_gives_back_all_the_same(
    connect: Connect, client: Any
) -> None:
    link = connect()
    with pytest.raises(ConnectionLost, match="nothing to drain"):
        link.drain(0)
    taker = Taker(link, QUEUE)
    send(connect(), QUEUE, 1)
    taker.drain(1)

    link.close()

    assert (client.llen("tasks"), held(client)) == (1, (0, 0))


def test_who_may_not_take_is_told_and_not_kept_when_it_closes(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">open", "~*", "&*", "+@all", "-eval")
    link = RedisConnection(Settings(broker_url=f"redis://worker:open@{LOOPBACK}:{own_redis.port}/0"))
    Taker(link, QUEUE)

    with pytest.raises(AccessRefused, match="eval"):
        link.drain(PATIENCE)

    link.close()


def test_a_link_that_lost_any_part_gives_nothing_back(connect: Connect, client: Any) -> None:
    link = connect()
    link.subscribe(queue_of(some_exchange("fanout")), print)
    taker = Taker(link, QUEUE)
    send(connect(), QUEUE, 1)
    taker.drain(1)
    lose(link, client, kind="pubsub")

    link.close()

    assert (client.llen("tasks"), held(client)) == (0, (1, 1))


def test_a_server_that_falls_silent_is_a_lost_link(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_pipe, "_SILENCE", 0.2)
    link = RedisConnection(Settings(broker_url=own_redis.url))
    Taker(link, QUEUE)
    assert link.drain(1.0) == 0
    monkeypatch.setattr(redis_pipe, "_PATIENCE", 0.2)

    with frozen(own_redis), pytest.raises(ConnectionLost, match="silent"):
        link.drain(PATIENCE)

    link.close()


def test_nothing_is_lost_where_memory_is_short(own_redis: RedisServer) -> None:
    settings = Settings(broker_url=own_redis.url)
    link = RedisConnection(settings)
    taker = Taker(link, QUEUE)
    with own_redis.client() as client:
        send(link, QUEUE, *range(5))
        own_redis.configure("maxmemory", "1")

        with pytest.raises(ConnectionLost, match="OOM"):
            taker.drain(1)

        assert (client.llen("tasks"), client.hlen("unacked")) == (5, 0)
        own_redis.configure("maxmemory", "0")
    link.close()
    again = Taker(link.clone(), QUEUE)
    assert again.drain(5) == list(range(5))
    again.link.close()
