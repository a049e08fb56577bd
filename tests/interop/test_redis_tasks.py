"""Tasks on Redis: keys and entries as kombu has them, so that its consumers share the queues."""

import json
from collections.abc import Iterator
from time import time
from typing import Any

import kombu
import pytest
import redis

from celeriac.errors import ImproperlyConfigured
from celeriac.programs.process import wait_until
from tests.contract import DEFAULT, Listener, body, publish, queue_of, some_exchange
from tests.contract_tasks import Taker, send, some_task_queue
from tests.redis_tasks import (
    PATIENCE,
    QUEUE,
    SEPARATOR,
    Connect,
    KombuTaker,
    age,
    connecting,
    held,
    lose,
    numbers,
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


# -- how things are written


def test_a_declared_queue_is_bound_as_kombu_binds_it(connect: Connect, client: Any, redis_url: str) -> None:
    with kombu.Connection(redis_url) as peer:
        kombu.Queue("tasks", kombu.Exchange("tasks", "direct"), "tasks")(peer.channel()).declare()
    keys = client.keys("_kombu.*")
    theirs = {key: client.smembers(key) for key in keys}
    client.delete(*keys)

    connect().declare(QUEUE)

    assert len(keys) == 2
    assert {key: client.smembers(key) for key in client.keys("_kombu.*")} == theirs


def test_a_queue_that_expires_is_not_bound_for_good(connect: Connect, client: Any) -> None:
    connect().declare(QUEUE._replace(expires=60.0))

    assert client.keys("_kombu.*") == [b"_kombu.binding.tasks"]


def test_a_queue_of_a_fanout_cannot_be_kept(connect: Connect) -> None:
    link = connect()

    with pytest.raises(ImproperlyConfigured, match="fanout"):
        link.consume(queue_of(some_exchange("fanout")), print, prefetch=1)


def test_all_keys_have_the_names_that_the_options_give(connect: Connect, client: Any) -> None:
    options = {"global_keyprefix": "team:", "unacked_key": "held", "unacked_index_key": "held_since"}
    taker = Taker(connect(**options), QUEUE)
    publish(taker.link, QUEUE.exchange, 1, 2, routing_key="tasks")
    taker.link.publish(DEFAULT, body(3), routing_key="tasks", priority=7)

    taker.drain(1)

    waiting = {b"team:held", b"team:held_since"}
    bindings = {b"team:_kombu.binding.tasks", b"team:_kombu.binding_permanent.tasks"}
    assert {*client.keys("*")} == waiting | bindings
    taker.accept()
    taker.link.drain(0.05)
    assert {*client.keys("*")} == bindings


def test_an_entry_is_what_kombu_would_have_written(connect: Connect, client: Any) -> None:
    taker = Taker(connect(), QUEUE)
    connect().publish(DEFAULT, body(1), routing_key="tasks", headers={"stamped_headers": [], "stamps": {}})
    before = time()

    taker.drain(1)

    ((tag, entry),) = client.hgetall("unacked").items()
    envelope, exchange, key = json.loads(entry)
    assert (exchange, key) == ("", "tasks")
    assert envelope["headers"] == {"stamped_headers": [], "stamps": {}}
    # The clock of Redis, counted on by a clock that is not set: some microseconds off.
    assert before - 1 <= client.zscore("unacked_index", tag) <= time() + 1
    assert tag.decode() == taker.deliveries[0].tag


# -- priorities


def test_the_lowest_number_is_served_first_and_steps_keep_their_order(connect: Connect, client: Any) -> None:
    sender = connect()
    for number, priority in enumerate([9, 5, 0, 3, 8, 2, 6, 300, -1]):
        sender.publish(DEFAULT, body(number), routing_key="tasks", priority=priority)
    steps = ("", f"{SEPARATOR}3", f"{SEPARATOR}6", f"{SEPARATOR}9")
    lengths = [client.llen(f"tasks{step}") for step in steps]

    taker = Taker(connect(), QUEUE, prefetch=4)
    for expected in (4, 8, 9):
        taker.drain(expected)
        taker.accept()

    assert lengths == [3, 2, 2, 2]
    assert numbers(taker) == [2, 5, 8, 1, 3, 4, 6, 0, 7]


def test_steps_may_be_others(connect: Connect, client: Any) -> None:
    options = {"priority_steps": list(range(10)), "sep": ":"}
    taker = Taker(connect(**options), QUEUE)
    sender = connect(**options)

    for priority in (7, 2, 4):
        sender.publish(DEFAULT, body(priority), routing_key="tasks", priority=priority)
    keys = {*client.keys("tasks*")}
    taker.drain(3)

    assert keys == {b"tasks:2", b"tasks:4", b"tasks:7"}
    assert numbers(taker) == [2, 4, 7]


def test_kombu_and_we_serve_each_others_priorities_alike(connect: Connect, redis_url: str) -> None:
    priorities = [9, 4, 0, 6]
    ours, theirs = connect(), KombuTaker(redis_url)
    producer = theirs.connection.Producer()

    for priority in priorities:
        ours.publish(DEFAULT, body(priority), routing_key="tasks", priority=priority)
    assert wait_until(lambda: theirs.drain() == 4, patience=PATIENCE)
    theirs.accept()
    for priority in priorities:
        producer.publish({"number": priority}, routing_key="tasks", priority=priority)
    taker = Taker(ours, QUEUE)
    taker.drain(4)

    assert theirs.numbers == [0, 4, 6, 9]
    assert numbers(taker) == [0, 4, 6, 9]
    assert [delivery.message.priority for delivery in taker.deliveries] == [0, 4, 6, 9]
    theirs.connection.release()


@pytest.mark.parametrize("prefetch", [1, 4])
def test_queues_take_turns(connect: Connect, prefetch: int) -> None:
    link, sender = connect(), connect()
    takers = [Taker(link, some_task_queue(), prefetch=prefetch) for _ in range(3)]
    for taker in takers:
        send(sender, taker.queue, *range(10))

    while sum(len(taker.deliveries) for taker in takers) < 12:
        link.drain(PATIENCE)
        for taker in takers:
            taker.accept()

    assert all(len(taker.deliveries) >= 3 for taker in takers)


# -- together


def test_kombu_and_we_share_a_queue_and_each_message_goes_to_one(
    connect: Connect, client: Any, redis_url: str
) -> None:
    ours, theirs = Taker(connect(), QUEUE, prefetch=5), KombuTaker(redis_url, prefetch=5)
    sender = connect()

    def is_all_taken() -> bool:
        ours.link.drain(0.01)
        ours.accept()
        theirs.drain()
        theirs.accept()
        return len(ours.deliveries) + len(theirs.messages) >= 200

    for start in range(0, 200, 20):
        send(sender, QUEUE, *range(start, start + 20))
        is_all_taken()
    assert wait_until(is_all_taken, patience=PATIENCE)
    ours.link.drain(0.05)

    assert sorted(ours.numbers + theirs.numbers) == list(range(200))
    assert ours.numbers
    assert theirs.numbers
    assert held(client) == (0, 0)
    theirs.connection.release()


def test_one_drain_serves_topics_lists_and_tasks(connect: Connect) -> None:
    link, sender = connect(), connect()
    news, replies = some_exchange("fanout"), some_exchange("direct")
    listeners = [Listener(link, queue_of(news)), Listener(link, queue_of(replies, "key"))]
    taker = Taker(link, QUEUE)

    for number in range(3):
        publish(sender, news, number)
        publish(sender, replies, number, routing_key="key")
        send(sender, QUEUE, number)
        assert taker.drain(number + 1) == list(range(number + 1))

    assert [listener.drain(3) for listener in listeners] == [[0, 1, 2]] * 2


def test_what_is_given_back_at_the_end_is_taken_next_and_in_order(connect: Connect) -> None:
    first = Taker(connect(), QUEUE, prefetch=3)
    send(connect(), QUEUE, *range(6))
    first.drain(3)

    first.link.close()

    second = Taker(connect(), QUEUE)
    second.drain(6)
    assert numbers(second) == list(range(6))
    assert [each.message.is_redelivered for each in second.deliveries] == [True] * 3 + [False] * 3


def test_what_is_put_back_is_the_next_to_be_taken(connect: Connect) -> None:
    taker = Taker(connect(), QUEUE, prefetch=2)
    send(connect(), QUEUE, *range(4))
    taker.drain(2)

    for number in (0, 1):
        taker.link.reject(taker.of(number), requeue=True)
    taker.drain(4)

    assert numbers(taker) == [0, 1, 0, 1]


def test_what_was_put_back_by_another_already_is_not_doubled(connect: Connect, client: Any) -> None:
    first, second = Taker(connect(), QUEUE, prefetch=1), Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    first.drain(1)
    age(client)
    tasks_of(second.link).unsettled._look()
    second.drain(1)

    first.link.reject(first.deliveries[0], requeue=True)
    first.link.drain(0)
    first.link.close()

    assert (second.numbers, client.llen("tasks"), held(client)) == ([1], 0, (1, 1))


# -- what comes


@pytest.mark.parametrize("garbage", [b"garbage", b"", b"\xff\xfe", b"{garbage}", b'{"properties": 7}', b"[]"])
def test_what_is_no_task_can_be_settled_and_harms_no_consumer_of_kombus(
    connect: Connect, client: Any, redis_url: str, garbage: bytes
) -> None:
    dead = Taker(connect(), QUEUE)
    client.lpush("tasks", garbage)
    while not dead.deliveries:
        dead.link.drain(PATIENCE)
    dead.link.drain(0)
    (delivery,) = dead.deliveries
    lose(dead.link, client)
    age(client)

    with kombu.Connection(redis_url) as peer:
        peer.default_channel.qos.restore_visible(interval=1)

    assert (delivery.message.fault, delivery.message.body) == ("envelope", garbage)
    assert held(client) == (0, 0)


def test_what_is_taken_at_once_is_bounded_in_bytes(connect: Connect) -> None:
    taker, sender = Taker(connect(), QUEUE), connect()
    for number in range(8):
        text = json.dumps({"number": number, "text": "x" * 500_000}).encode()
        sender.publish(DEFAULT, text, routing_key="tasks")

    batches = []
    while len(taker.deliveries) < 8:
        batches.append(taker.link.drain(PATIENCE))

    assert numbers(taker) == list(range(8))
    assert max(batches) <= 3


@pytest.mark.parametrize("steps", [7, "abc", [None]])
def test_steps_of_priority_that_are_no_numbers_are_a_mistake_in_the_settings(
    connect: Connect, steps: object
) -> None:
    link = connect(priority_steps=steps)

    for _ in range(2):
        with pytest.raises(ImproperlyConfigured, match="broker_transport_options"):
            link.consume(QUEUE, print, prefetch=1)


@pytest.mark.parametrize("timeout", [0, -1, "soon", None])
def test_a_visibility_timeout_that_is_none_is_a_mistake_in_the_settings(
    connect: Connect, timeout: object
) -> None:
    link = connect(visibility_timeout=timeout)

    with pytest.raises(ImproperlyConfigured, match="visibility_timeout"):
        link.consume(QUEUE, print, prefetch=1)


def test_kombu_takes_what_we_set_aside_and_moved_back(connect: Connect, client: Any, redis_url: str) -> None:
    taker = Taker(connect(), QUEUE, prefetch=1)
    send(connect(), QUEUE, 1)
    taker.drain(1)
    (entry,) = client.hvals("unacked")
    taker.link.set_prefetch(0)

    assert taker.link.set_aside(taker.deliveries[0], 600.0)
    assert wait_until(lambda: taker.link.drain(0.05) == 0 and held(client) == (0, 0), patience=PATIENCE)

    (aside,) = client.zrange("celeriac.aside.tasks", 0, -1)
    assert entry.startswith(b"[" + aside.partition(b" ")[2])
    client.zadd("celeriac.aside.tasks", {aside: 0})
    assert wait_until(lambda: taker.link.drain(0.05) > 0 or client.llen("tasks") > 0, patience=PATIENCE)
    theirs = KombuTaker(redis_url)
    assert wait_until(lambda: theirs.drain() == 1, patience=PATIENCE)
    assert theirs.numbers == [1]
    assert client.exists("celeriac.aside.tasks") == 0
    theirs.accept()
    theirs.connection.release()


def test_what_cannot_be_set_aside_because_of_a_strange_key_stays_unsettled(
    connect: Connect, client: Any
) -> None:
    taker = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    taker.drain(1)
    client.set("celeriac.aside.tasks", "x")

    taker.link.set_aside(taker.deliveries[0], 60.0)
    taker.link.drain(0.05)

    assert client.hlen("unacked") == 1
    send(connect(), QUEUE, 2)
    assert taker.drain(2) == [1, 2]


def test_a_user_who_may_not_set_aside_can_take_tasks_all_the_same(
    connect: Connect, client: Any, redis_url: str
) -> None:
    patterns = ("tasks*", "unacked*", "_kombu*")
    client.acl_setuser(
        "narrow", enabled=True, nopass=True, commands=["+@all"], keys=list(patterns), channels=["*"]
    )
    try:
        with connecting(redis_url.replace("redis://", "redis://narrow:x@")) as narrow:
            taker = Taker(narrow(), QUEUE)
            send(connect(), QUEUE, 1)
            taker.drain(1)

            taker.link.set_aside(taker.deliveries[0], 60.0)
            tasks_of(taker.link)._return_at = 0.0
            send(connect(), QUEUE, 2)

            assert taker.drain(2) == [1, 2]
            assert client.hlen("unacked") == 2
    finally:
        client.acl_deluser("narrow")
