"""Tasks on Redis: nothing is lost or doubled, whoever dies."""

import json
import subprocess
import sys
from collections.abc import Iterator
from time import time
from typing import Any

import pytest
import redis

from celeriac.model.message import Exchange
from celeriac.programs.process import wait_until
from celeriac.transport import redis_unsettled
from tests.contract import DEFAULT, body, publish
from tests.contract_tasks import Taker, send
from tests.redis_tasks import (
    PATIENCE,
    QUEUE,
    SHORT,
    Connect,
    KombuTaker,
    age,
    connecting,
    held,
    lose,
    numbers,
    tasks_of,
)

#: Takes and puts back, for ever.
CHURN = """
import sys
from celeriac.config import Settings
from celeriac.transport.redis import RedisConnection
from tests.redis_tasks import QUEUE

link = RedisConnection(Settings(broker_url=sys.argv[1]))
link.consume(QUEUE, lambda delivery: link.reject(delivery, requeue=True), prefetch=20)
link.drain(10)
print("began", flush=True)
while True:
    link.drain(10)
"""


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


@pytest.mark.parametrize("moment", range(2))
def test_nothing_is_lost_when_a_process_is_killed_while_it_takes_and_puts_back(
    redis_url: str, client: Any, connect: Connect, moment: int
) -> None:
    send(connect(), QUEUE, *range(200))
    command = [sys.executable, "-c", CHURN, redis_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            tag = None
            for _ in range(moment * 17):  # it is in the midst of it, at another place each time
                tag = client.hrandfield("unacked")
        finally:
            process.kill()
    count, indexed = held(client)

    assert count == indexed
    assert client.llen("tasks") + count == 200
    assert tag is None or tag.startswith(b"celeriac.")


def test_what_a_dead_worker_held_goes_back_at_once_in_order_and_marked(
    connect: Connect, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_unsettled, "_LOOK_EVERY", 1e6)
    dead = Taker(connect(), QUEUE)
    send(connect(), QUEUE, *range(250))
    dead.drain(250)
    lose(dead.link, client)
    dead.link.close()
    assert held(client) == (250, 250)
    age(client)

    living = Taker(connect(), QUEUE)
    living.drain(250)

    assert living.numbers == list(range(250))
    # In portions, each in the order it was taken in.
    assert numbers(living)[:100] == list(range(100))
    assert {each.message.is_redelivered for each in living.deliveries} == {True}
    living.accept()
    living.link.drain(0.05)
    assert held(client) == (0, 0)


def test_a_real_kombu_puts_back_what_we_left(connect: Connect, client: Any, redis_url: str) -> None:
    dead = Taker(connect(), QUEUE._replace(name='t"ä', routing_key='t"ä'))
    publish(dead.link, QUEUE.exchange, 1, routing_key='t"ä')
    other = Taker(dead.link, QUEUE)
    dead.link.publish(DEFAULT, body(2), routing_key="tasks", priority=6)
    dead.drain(1)
    other.drain(1)
    lose(dead.link, client)
    dead.link.close()
    age(client)

    living = KombuTaker(redis_url, **SHORT)

    assert wait_until(lambda: living.drain() == 1, patience=PATIENCE)
    (message,) = living.messages
    assert living.numbers == [2]
    assert message.headers["redelivered"] is True
    assert message.delivery_info["redelivered"] is True
    assert wait_until(lambda: client.llen('t"ä') == 1, patience=PATIENCE)
    living.connection.release()


@pytest.mark.parametrize("exchange", ["", "tasks"])
def test_what_a_dead_consumer_of_kombus_held_we_put_back(
    connect: Connect, client: Any, redis_url: str, exchange: str
) -> None:
    dead = KombuTaker(redis_url)
    for priority in (0, 9):
        dead.connection.Producer().publish(
            {"number": priority}, exchange=exchange, routing_key="tasks", priority=priority
        )
    assert wait_until(lambda: dead.drain() == 2, patience=PATIENCE)
    dead.die()
    assert held(client) == (2, 2)
    age(client)

    living = Taker(connect(), QUEUE)
    living.drain(2)

    assert numbers(living) == [0, 9]
    assert {each.message.is_redelivered for each in living.deliveries} == {True}


def test_what_a_topic_led_to_goes_back_the_same_way(connect: Connect, client: Any) -> None:
    link = connect()
    queue = QUEUE._replace(exchange=Exchange("topics", "topic"), routing_key="news.#")
    envelope = {"body": body(1).decode(), "headers": {}, "properties": {}, "content-type": "application/json"}
    entries = {"a": [envelope, "topics", "news.today"], "b": [envelope, "topics", "elsewhere"]}
    client.hset("unacked", mapping={tag: json.dumps(entry) for tag, entry in entries.items()})
    client.zadd("unacked_index", {"a": 1, "b": 1})

    taker = Taker(link, queue)

    assert taker.drain(1) == [1]
    # What nothing leads back for stays, and is not looked at again so soon.
    assert client.hkeys("unacked").count(b"b") == 1
    assert client.zscore("unacked_index", "b") > 1


def test_what_is_held_is_not_put_back_while_its_holder_lives(connect: Connect, client: Any) -> None:
    holder = Taker(connect(visibility_timeout=3), QUEUE)
    send(connect(), QUEUE, *range(3))
    holder.drain(3)
    taken_at = [score for _, score in client.zrange("unacked_index", 0, -1, withscores=True)]

    def is_renewed() -> bool:
        holder.link.drain(0.05)
        holder.link.drain(0)  # had it slept in the first, it renews now, before the other looks
        other.link.drain(0)
        scores = [score for _, score in client.zrange("unacked_index", 0, -1, withscores=True)]
        return all(new > old + 4.5 for new, old in zip(scores, taken_at, strict=True))

    other = Taker(connect(visibility_timeout=3), QUEUE)
    assert wait_until(is_renewed, patience=PATIENCE)

    assert (other.deliveries, len(holder.deliveries)) == ([], 3)


def test_what_was_put_back_is_not_written_again_by_who_held_it(connect: Connect, client: Any) -> None:
    holder = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    holder.drain(1)
    client.delete("unacked", "unacked_index")

    tasks_of(holder.link).unsettled._renew()
    holder.link.drain(0.05)

    assert held(client) == (0, 0)


def test_an_entry_that_another_took_meanwhile_is_left_to_it(connect: Connect, client: Any) -> None:
    dead = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    dead.drain(1)
    lose(dead.link, client)
    living = Taker(connect(), QUEUE)
    living.link.drain(0.05)

    # Taken just now: what was seen before that says nothing any more.
    tasks_of(living.link).unsettled._find(repr(time() - 3600), [str(dead.deliveries[0].tag).encode()])
    living.link.drain(0.05)

    assert (held(client), client.llen("tasks"), living.deliveries) == ((1, 1), 0, [])


@pytest.mark.parametrize("entry", [b"garbage", b"[]", b'["text", "", "tasks"]', b"[{}, {}, {}]", None])
def test_an_entry_that_holds_no_message_is_dropped_once_and_told(
    connect: Connect, client: Any, entry: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    if entry is not None:
        client.hset("unacked", b"\xff-tag", entry)
    client.zadd("unacked_index", {b"\xff-tag": 1})
    taker = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)

    taker.drain(1)

    assert wait_until(lambda: taker.link.drain(0) == 0 and held(client) == (1, 1), patience=PATIENCE)
    assert taker.numbers == [1]
    assert caplog.text.count("not a readable message") == (entry is not None)


@pytest.mark.parametrize(
    "way",
    ['"", "no list"', '"no set", "tasks"', '"", "half a \\ud800"', '"half a \\ud800", "tasks"', '"", ""'],
)
def test_an_entry_that_no_queue_can_take_back_stays_and_harms_nobody(
    connect: Connect, client: Any, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.set("no list", "text")
    client.set("_kombu.binding.no set", "text")
    client.hset("unacked", "tag", f'[{{"body": "", "headers": {{}}, "properties": {{}}}}, {way}]')
    client.zadd("unacked_index", {"tag": 1})
    taker = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)

    taker.drain(1)

    assert wait_until(
        lambda: taker.link.drain(0) == 0 and client.zscore("unacked_index", "tag") > 1, patience=PATIENCE
    )
    assert (taker.numbers, held(client)) == ([1], (2, 2))
    assert caplog.text.count("left in place") == 1
