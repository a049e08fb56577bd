"""Tasks on Redis: nothing is lost or doubled whoever dies, and kombu's consumers share the queues."""

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from time import monotonic, time
from typing import Any

import kombu
import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import ConnectionLost, ImproperlyConfigured
from celeriac.model.message import Delivery, Exchange
from celeriac.testing.brokers import RedisServer, ValkeyServer
from celeriac.testing.port import LOOPBACK
from celeriac.testing.process import wait_until
from celeriac.transport import redis_pipe, redis_tasks
from celeriac.transport.redis import RedisConnection
from tests.contract import DEFAULT, Listener, body, publish, queue_of, some_exchange
from tests.contract_tasks import Taker, number_of, send, some_task_queue
from tests.links import frozen

PATIENCE = 30.0
QUEUE = some_task_queue()._replace(name="tasks", exchange=Exchange("tasks", "direct"), routing_key="tasks")
SEPARATOR = "\x06\x16"
PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives as long as its test
#: So that what is held for long goes back in this test's time; kombu looks each time it finds nothing.
SHORT = {"visibility_timeout": 1, "unacked_restore_throttle": 1, "unacked_restore_interval": 1}
#: Takes and puts back, for ever.
CHURN = """
import sys
from celeriac.config import Settings
from celeriac.transport.redis import RedisConnection
from tests.interop.test_redis_tasks import QUEUE

link = RedisConnection(Settings(broker_url=sys.argv[1]))
link.consume(QUEUE, lambda delivery: link.reject(delivery, requeue=True), prefetch=20)
link.drain(10)
print("began", flush=True)
while True:
    link.drain(10)
"""

Connect = Callable[..., RedisConnection]


@pytest.fixture
def connect(redis_url: str) -> Iterator[Connect]:
    """A function that makes links with options of the transport; they are closed at the end."""
    with ExitStack() as stack:

        def new(**options: object) -> RedisConnection:
            settings = Settings(broker_url=redis_url, broker_transport_options=options)
            return stack.enter_context(RedisConnection(settings))

        yield new


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the database that the links use."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


class KombuTaker:
    """A consumer as Celery is one; what it has it holds until told otherwise."""

    def __init__(self, url: str, *, prefetch: int = 100, **options: object) -> None:
        self.messages: list[Any] = []
        self.connection = kombu.Connection(url, transport_options=dict(options))
        queue = kombu.Queue("tasks", kombu.Exchange("tasks", "direct"), "tasks")
        channel = self.connection.channel()
        consumer = kombu.Consumer(channel, [queue], on_message=self.messages.append)
        consumer.qos(prefetch_count=prefetch)
        consumer.consume()

    def drain(self) -> int:
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0.05)
        return len(self.messages)

    @property
    def numbers(self) -> list[int]:
        return [message.payload["number"] for message in self.messages]

    def die(self) -> None:
        """Be gone, and leave what was taken where it is."""
        self.connection.transport.cycle.poller = None
        for channel in list(self.connection.transport.channels):
            channel.qos._delivered.clear()
        self.connection.collect()


def numbers(taker: Taker) -> list[int]:
    """Return the numbers that were taken, in order."""
    return [number_of(delivery) for delivery in taker.deliveries]


def held(client: redis.Redis) -> tuple[int, int]:
    """Return how many entries there are of what is unsettled, and how many in their index."""
    return client.hlen("unacked"), client.zcard("unacked_index")


def age(client: redis.Redis, seconds: float = 7200.0) -> None:
    """Let what is held have been taken long ago, in the order it was."""
    for tag, score in client.zrange("unacked_index", 0, -1, withscores=True):
        client.zadd("unacked_index", {tag: score - seconds})


def lose(link: RedisConnection, client: redis.Redis) -> None:
    """End a link at the server, and let it notice."""
    client.client_kill_filter(_type="normal", skipme=True)
    deadline = monotonic() + PATIENCE
    with pytest.raises(ConnectionLost):
        while monotonic() < deadline:
            link.drain(0.5)


# -- how things are written


def test_a_declared_queue_is_bound_as_kombu_binds_it(
    connect: Connect, client: redis.Redis, redis_url: str
) -> None:
    with kombu.Connection(redis_url) as peer:
        kombu.Queue("tasks", kombu.Exchange("tasks", "direct"), "tasks")(peer.channel()).declare()
    keys = [key for key in client.keys("_kombu.*")]
    theirs = {key: client.smembers(key) for key in keys}
    client.delete(*keys)

    connect().declare(QUEUE)

    assert len(keys) == 2
    assert {key: client.smembers(key) for key in client.keys("_kombu.*")} == theirs


def test_a_queue_that_expires_is_not_bound_for_good(connect: Connect, client: redis.Redis) -> None:
    connect().declare(QUEUE._replace(expires=60.0))

    assert client.keys("_kombu.*") == [b"_kombu.binding.tasks"]


def test_a_queue_of_a_fanout_cannot_be_kept(connect: Connect) -> None:
    link = connect()

    with pytest.raises(ImproperlyConfigured, match="fanout"):
        link.consume(queue_of(some_exchange("fanout")), print, prefetch=1)


def test_all_keys_have_the_names_that_the_options_give(connect: Connect, client: redis.Redis) -> None:
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


def test_an_entry_is_what_kombu_would_have_written(connect: Connect, client: redis.Redis) -> None:
    taker = Taker(connect(), QUEUE)
    connect().publish(DEFAULT, body(1), routing_key="tasks", headers={"stamped_headers": [], "stamps": {}})
    envelope: Any = None
    before = time()

    taker.drain(1)

    ((tag, entry),) = client.hgetall("unacked").items()
    envelope, exchange, key = json.loads(entry)
    assert (exchange, key) == ("", "tasks")
    assert envelope["headers"] == {"stamped_headers": [], "stamps": {}}
    assert before <= client.zscore("unacked_index", tag) <= time()
    assert tag.decode() == taker.deliveries[0].tag


# -- priorities


def test_the_lowest_number_is_served_first_and_steps_keep_their_order(
    connect: Connect, client: redis.Redis
) -> None:
    sender = connect()
    for number, priority in enumerate([9, 5, 0, 3, 8, 2, 6, 300, -1]):
        sender.publish(DEFAULT, body(number), routing_key="tasks", priority=priority)
    lengths = [
        client.llen(f"tasks{step}") for step in ("", f"{SEPARATOR}3", f"{SEPARATOR}6", f"{SEPARATOR}9")
    ]

    taker = Taker(connect(), QUEUE, prefetch=4)
    while len(taker.deliveries) < 9:
        taker.drain(1)
        taker.accept()

    assert lengths == [3, 2, 2, 2]
    assert numbers(taker) == [2, 5, 8, 1, 3, 4, 6, 0, 7]


def test_steps_may_be_others(connect: Connect, client: redis.Redis) -> None:
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
    theirs.connection.drain_events  # noqa: B018
    producer = theirs.connection.Producer()

    for priority in priorities:
        ours.publish(DEFAULT, body(priority), routing_key="tasks", priority=priority)
    assert wait_until(lambda: theirs.drain() == 4, patience=PATIENCE)
    for message in theirs.messages:
        message.ack()
    for priority in priorities:
        producer.publish({"number": priority}, routing_key="tasks", priority=priority)
    taker = Taker(ours, QUEUE)
    taker.drain(4)

    assert theirs.numbers == [0, 4, 6, 9]
    assert numbers(taker) == [0, 4, 6, 9]
    assert [delivery.message.priority for delivery in taker.deliveries] == [0, 4, 6, 9]
    theirs.connection.release()


def test_queues_take_turns(connect: Connect) -> None:
    link, sender = connect(), connect()
    takers = [Taker(link, some_task_queue(), prefetch=4) for _ in range(3)]
    for taker in takers:
        send(sender, taker.queue, *range(10))

    while sum(len(taker.deliveries) for taker in takers) < 12:
        link.drain(PATIENCE)
        for taker in takers:
            taker.accept()

    assert all(len(taker.deliveries) >= 3 for taker in takers)


# -- whoever dies


@pytest.mark.parametrize("moment", range(4))
def test_nothing_is_lost_when_a_process_is_killed_while_it_takes_and_puts_back(
    redis_url: str, client: redis.Redis, connect: Connect, moment: int
) -> None:
    send(connect(), QUEUE, *range(200))
    command = [sys.executable, "-c", CHURN, redis_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            tag = None
            for _ in range(moment * 7):  # it is in the midst of it, at another place each time
                tag = client.hrandfield("unacked")
        finally:
            process.kill()
    count, indexed = held(client)

    assert count == indexed
    assert client.llen("tasks") + count == 200
    assert tag is None or tag.startswith(b"celeriac.")


def test_what_a_dead_worker_held_goes_back_in_order_and_marked(connect: Connect, client: redis.Redis) -> None:
    dead = Taker(connect(), QUEUE)
    send(connect(), QUEUE, *range(250))
    dead.drain(250)
    lose(dead.link, client)
    dead.link.close()
    assert held(client) == (250, 250)
    age(client)

    living = Taker(connect(), QUEUE)
    living.link.set_prefetch(1000)
    living.drain(250)

    assert living.numbers == list(range(250))
    assert numbers(living)[:100] == list(range(100))
    assert {each.message.is_redelivered for each in living.deliveries} == {True}
    living.accept()
    living.link.drain(0.05)
    assert held(client) == (0, 0)


def test_a_real_kombu_puts_back_what_we_left(connect: Connect, client: redis.Redis, redis_url: str) -> None:
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
    connect: Connect, client: redis.Redis, redis_url: str, exchange: str
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


def test_what_a_topic_led_to_goes_back_the_same_way(connect: Connect, client: redis.Redis) -> None:
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


def test_what_is_held_is_not_put_back_while_its_holder_lives(connect: Connect, client: redis.Redis) -> None:
    holder = Taker(connect(visibility_timeout=1), QUEUE)
    send(connect(), QUEUE, *range(3))
    holder.drain(3)
    taken_at = [score for _, score in client.zrange("unacked_index", 0, -1, withscores=True)]

    def is_renewed() -> bool:
        holder.link.drain(0.05)
        scores = [score for _, score in client.zrange("unacked_index", 0, -1, withscores=True)]
        return all(new > old + 1.5 for new, old in zip(scores, taken_at, strict=True))

    other = Taker(connect(visibility_timeout=1), QUEUE)
    assert wait_until(lambda: other.link.drain(0) == 0 and is_renewed(), patience=PATIENCE)

    assert (other.deliveries, len(holder.deliveries)) == ([], 3)


def test_an_entry_that_another_took_meanwhile_is_left_to_it(connect: Connect, client: redis.Redis) -> None:
    dead = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    dead.drain(1)
    lose(dead.link, client)
    living = Taker(connect(), QUEUE)
    living.link.drain(0.05)

    # Taken just now: what was seen before that says nothing any more.
    tasks = living.link._tasks
    assert tasks is not None
    tasks.unsettled._find(repr(time() - 3600), [str(dead.deliveries[0].tag).encode()])
    living.link.drain(0.05)

    assert (held(client), client.llen("tasks"), living.deliveries) == ((1, 1), 0, [])


@pytest.mark.parametrize("entry", [b"garbage", b"[]", b'["text", "", "tasks"]', b"[{}, {}, {}]", None])
def test_an_entry_that_holds_no_message_is_dropped_once_and_told(
    connect: Connect, client: redis.Redis, entry: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    if entry is not None:
        client.hset("unacked", b"\xff-tag", entry)
    client.zadd("unacked_index", {b"\xff-tag": 1})
    taker = Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)

    taker.drain(1)

    assert wait_until(lambda: taker.link.drain(0) == 0 and held(client) == (1, 1), patience=PATIENCE)
    assert taker.numbers == [1]
    assert caplog.text.count("no message can be read in it") == (entry is not None)


# -- together


def test_kombu_and_we_share_a_queue_and_each_message_goes_to_one(
    connect: Connect, client: redis.Redis, redis_url: str
) -> None:
    ours, theirs = Taker(connect(), QUEUE, prefetch=5), KombuTaker(redis_url, prefetch=5)
    sender = connect()

    def is_all_taken() -> bool:
        ours.link.drain(0.01)
        ours.accept()
        theirs.drain()
        for message in theirs.messages:
            if not message.acknowledged:
                message.ack()
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


def test_what_was_put_back_by_another_already_is_not_doubled(connect: Connect, client: redis.Redis) -> None:
    first, second = Taker(connect(), QUEUE, prefetch=1), Taker(connect(), QUEUE)
    send(connect(), QUEUE, 1)
    first.drain(1)
    age(client)
    second.link._tasks.unsettled._look()  # type: ignore[union-attr]
    second.drain(1)

    first.link.reject(first.deliveries[0], requeue=True)
    first.link.drain(0)
    first.link.close()

    assert (second.numbers, client.llen("tasks"), held(client)) == ([1], 0, (1, 1))


# -- lost links


def test_what_a_lost_link_delivered_is_kept_and_settled_over_the_next(
    connect: Connect, client: redis.Redis
) -> None:
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


def test_what_is_kept_counts_among_what_may_be_unsettled(connect: Connect, client: redis.Redis) -> None:
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


def test_what_another_has_by_now_cannot_be_kept(connect: Connect, client: redis.Redis) -> None:
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
    delivery = Delivery(Listener(link, queue_of(some_exchange("direct"))).messages, "tasks", tag)  # type: ignore[arg-type]

    link.accept(delivery)
    link.reject(delivery, requeue=True)

    assert link.keep(delivery) is False
    assert link.drain(0) == 0


def test_what_was_settled_as_the_link_was_lost_is_settled_by_its_clone(
    connect: Connect, client: redis.Redis
) -> None:
    first = Taker(connect(), QUEUE)
    send(connect(), QUEUE, *range(3))
    first.drain(3)
    client.client_kill_filter(_type="normal", skipme=True)
    first.accept(0, 1)
    first.link.reject(first.of(2), requeue=True)
    with pytest.raises(ConnectionLost):
        while True:
            first.link.drain(0.5)
    assert held(client) == (3, 3)
    first.link.close()

    second = Taker(first.link.clone(), QUEUE)

    assert second.drain(1) == [2]
    assert held(client) == (1, 1)
    second.link.close()


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
        assert link._tasks is not None
        with frozen(own_redis):
            link.drain(0)  # is told, perhaps
            link._tasks._notice()
            link.drain(0)
            link._tasks.link._socket.shutdown(socket.SHUT_RD)
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


def test_a_link_that_lost_any_part_gives_nothing_back(connect: Connect, client: redis.Redis) -> None:
    link = connect()
    link.subscribe(queue_of(some_exchange("fanout")), print)
    taker = Taker(link, QUEUE)
    send(connect(), QUEUE, 1)
    taker.drain(1)
    client.client_kill_filter(_type="pubsub")
    with pytest.raises(ConnectionLost):
        while True:
            link.drain(0.5)

    link.close()

    assert (client.llen("tasks"), held(client)) == (0, (1, 1))


def test_a_server_that_falls_silent_is_a_lost_link(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PATIENCE", "_SILENCE"):
        monkeypatch.setattr(redis_pipe, name, 0.2)
    link = RedisConnection(Settings(broker_url=own_redis.url))
    Taker(link, QUEUE)
    assert link.drain(1.0) == 0

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


# -- waiting


@pytest.fixture(scope="module", params=[RedisServer, ValkeyServer])
def telling_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Each server that tells us of changes."""
    with request.param() as server:
        yield server


@pytest.fixture
def waiting(telling_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taker]:
    """Who waits for tasks, and looks for none by itself."""
    monkeypatch.setattr(redis_tasks, "_LOOK_AGAIN", 1e6)
    with telling_server.client() as client:
        client.flushall()
    with RedisConnection(Settings(broker_url=telling_server.url)) as link:
        taker = Taker(link, QUEUE)
        assert link.drain(0.1) == 0
        yield taker


def evals(client: redis.Redis) -> int:
    stats: Any = client.info("commandstats")
    return int(stats["cmdstat_eval"]["calls"])


def test_who_waits_asks_nothing(telling_server: RedisServer, waiting: Taker) -> None:
    with telling_server.client() as client:
        before = evals(client)

        waiting.link.drain(1.0)

        assert evals(client) == before


def flush(client: redis.Redis) -> None:
    client.flushall()


def overflow(client: redis.Redis) -> None:
    client.config_set("tracking-table-max-keys", 1)


def expire(client: redis.Redis) -> None:
    client.lpush(f"tasks{SEPARATOR}3", "gone soon")
    client.pexpire(f"tasks{SEPARATOR}3", 1)


@pytest.mark.parametrize("trouble", [None, flush, overflow, expire])
def test_who_waits_is_told_of_a_task(
    telling_server: RedisServer, waiting: Taker, trouble: Callable[[redis.Redis], None] | None
) -> None:
    with telling_server.client() as client, ThreadPoolExecutor(1) as pool:
        for number in range(3):
            waiting.link.drain(0.02)
            if trouble is not None:
                trouble(client)
            waiting.link.drain(0.02)
            for delivery in waiting.deliveries:
                waiting.link.accept(delivery)
            waiting.deliveries = [each for each in waiting.deliveries if not each.message.fault]
            draining = pool.submit(waiting.drain, number + 1)
            with RedisConnection(Settings(broker_url=telling_server.url)) as sender:
                sender.publish(DEFAULT, body(number), routing_key="tasks", priority=number * 4)

            assert draining.result(PATIENCE) == list(range(number + 1))
        client.config_set("tracking-table-max-keys", 1_000_000)


def test_who_is_told_of_a_change_before_it_waits_does_not_miss_it(
    telling_server: RedisServer, waiting: Taker
) -> None:
    with RedisConnection(Settings(broker_url=telling_server.url)) as sender:
        for number in range(50):
            send(sender, QUEUE, number)  # whatever the other is about to do

            assert waiting.drain(number + 1) == list(range(number + 1))


def test_where_a_user_may_not_be_told_tasks_come_all_the_same(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with own_redis.client() as client:
        client.execute_command(
            *("ACL", "SETUSER", "worker", "on", f">{PASSWORD}", "~*", "&*", "+@all", "-client|tracking")
        )
    settings = Settings(broker_url=f"redis://worker:{PASSWORD}@{LOOPBACK}:{own_redis.port}/0")
    for number in range(2):
        with RedisConnection(settings) as link, RedisConnection(settings) as sender:
            taker = Taker(link, QUEUE)
            assert link.drain(0.3) == 0

            send(sender, QUEUE, number)

            assert taker.drain(1) == [number]
            taker.accept()

    assert caplog.text.count("does not say when a task comes") == 1
    assert PASSWORD not in caplog.text


def test_who_speaks_the_older_protocol_is_told_too(redis_url: str, client: redis.Redis) -> None:
    with RedisConnection(Settings(broker_url=redis_url + "?protocol=2")) as link:
        taker = Taker(link, QUEUE)
        link.drain(0.05)
        before = evals(client)
        link.drain(0.5)
        asked = evals(client) - before
        send(link, QUEUE, 1)

        assert taker.drain(1) == [1]
        assert asked == 0


# -- what comes


@pytest.mark.parametrize("garbage", [b"garbage", b"", b"\xff\xfe", b"{garbage}", b'{"properties": 7}', b"[]"])
def test_what_is_no_task_can_be_settled_and_harms_no_consumer_of_kombus(
    connect: Connect, client: redis.Redis, redis_url: str, garbage: bytes
) -> None:
    dead = Taker(connect(), QUEUE)
    client.lpush("tasks", garbage)
    while not dead.deliveries:
        dead.link.drain(PATIENCE)
    dead.link.drain(0)
    (delivery,) = dead.deliveries
    lose(dead.link, client)
    age(client)

    peer = KombuTaker(redis_url, **SHORT)
    send(connect(), QUEUE, 1)

    assert (delivery.message.fault, delivery.message.body) == ("envelope", garbage)
    assert wait_until(lambda: peer.drain() >= 1 and client.hlen("unacked") <= 2, patience=PATIENCE)
    peer.connection.release()


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


@pytest.mark.parametrize("timeout", [0, -1, "soon", None])
def test_a_visibility_timeout_that_is_none_is_a_mistake_in_the_settings(
    connect: Connect, timeout: object
) -> None:
    link = connect(visibility_timeout=timeout)

    with pytest.raises(ImproperlyConfigured, match="visibility_timeout"):
        link.consume(QUEUE, print, prefetch=1)
