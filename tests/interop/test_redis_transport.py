"""What is particular to Redis: names as kombu has them, and a link that breaks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Literal
from uuid import uuid4

import kombu
import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, ExchangeType, Message
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.transport import redis as transport
from celeriac.transport import redis_link
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect
from tests.contract import Listener, body, queue_of
from tests.links import frozen

EVENTS = Exchange("celeryev", "fanout", is_durable=True)
PATIENCE = 60.0
#: Options of the transport, and the channel that an event of database 3 then goes through.
NAMES: list[tuple[dict[str, object], str]] = [
    ({}, "/3.celeryev/task.sent"),
    ({"global_keyprefix": "team:"}, "team:/3.celeryev/task.sent"),
    ({"fanout_prefix": False}, "celeryev/task.sent"),
    # Celery: kombu cannot read by a prefix that begins and ends in another way.
    ({"fanout_prefix": "/mine."}, "/mine.celeryev/task.sent"),
    ({"fanout_prefix": "/mine-{db}."}, "/mine-3.celeryev/task.sent"),
    ({"fanout_patterns": False}, "/3.celeryev"),
    ({"fanout_patterns": False, "fanout_prefix": False, "global_keyprefix": "team:"}, "team:celeryev"),
]
OPTIONS = [options for options, _ in NAMES]


def settings_for(url: str, **options: object) -> Settings:
    return Settings(broker_url=url, broker_transport_options=options)


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    """Database 3 of the shared server."""
    return redis_server.url_of(3)


class KombuListener:
    """A reader of events as Celery is one."""

    def __init__(self, server: RedisServer, url: str, options: dict[str, object]) -> None:
        self.received: list[Any] = []
        self.connection = kombu.Connection(url, transport_options={**options, "client_name": str(uuid4())})
        queue = kombu.Queue("reader", kombu.Exchange("celeryev", "fanout"), "#", auto_delete=True)
        kombu.Consumer(self.connection.channel(), [queue], on_message=self.receive, no_ack=True).consume()
        with server.client() as client:
            assert wait_until(lambda: self.is_subscribed(client), patience=PATIENCE)

    def is_subscribed(self, client: redis.Redis) -> bool:
        self.drain()  # kombu subscribes when it first waits
        name = self.connection.transport_options["client_name"]
        return any(each["name"] == name and each["psub"] == "1" for each in client.client_list())

    def drain(self) -> int:
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0.1)
        return len(self.received)

    def receive(self, message: Any) -> None:
        self.received.append((message.payload, message.delivery_info["routing_key"]))


# -- names


@pytest.mark.parametrize(("options", "channel"), NAMES)
def test_an_event_goes_through_the_channel_that_the_options_name(
    redis_server: RedisServer, url: str, options: dict[str, object], channel: str
) -> None:
    with redis_server.client() as client, client.pubsub() as spy:
        spy.psubscribe("*celeryev*")
        assert spy.get_message(timeout=PATIENCE) is not None

        with connect(settings_for(url, **options)) as link:
            link.publish(EVENTS, body(1), routing_key="task.sent")

        told = spy.get_message(ignore_subscribe_messages=True, timeout=PATIENCE)
        assert told is not None
        assert told["channel"] == channel.encode()


@pytest.mark.parametrize("options", OPTIONS)
def test_kombu_with_the_same_options_reads_what_we_publish(
    redis_server: RedisServer, url: str, options: dict[str, object]
) -> None:
    listener = KombuListener(redis_server, url, options)

    with connect(settings_for(url, **options)) as link:
        link.publish(EVENTS, body(1), routing_key="task.sent")

    assert wait_until(lambda: listener.drain() > 0, patience=PATIENCE)
    assert listener.received == [({"number": 1}, "task.sent")]
    listener.connection.release()


@pytest.mark.parametrize("options", OPTIONS)
def test_what_kombu_with_the_same_options_publishes_we_read(
    url: str, options: dict[str, object], links: ExitStack
) -> None:
    listener = Listener(links.enter_context(connect(settings_for(url, **options))), queue_of(EVENTS, "#"))

    with kombu.Connection(url, transport_options=dict(options)) as peer:
        peer.Producer(exchange=kombu.Exchange("celeryev", "fanout")).publish(
            {"number": 1}, routing_key="task.sent"
        )

    assert listener.drain(1) == [1]
    assert listener.messages[0].routing_key == "task.sent"


def test_databases_do_not_hear_each_other(redis_server: RedisServer, links: ExitStack) -> None:
    first, second = (
        Listener(
            links.enter_context(connect(Settings(broker_url=redis_server.url_of(number)))), queue_of(EVENTS)
        )
        for number in (1, 2)
    )

    second.link.publish(EVENTS, body(2))
    first.link.publish(EVENTS, body(1))

    assert (first.drain(1), second.drain(1)) == ([1], [2])


@pytest.mark.parametrize("has_patterns", [True, False])
def test_who_asks_for_some_keys_gets_only_those(url: str, has_patterns: bool, links: ExitStack) -> None:
    link = links.enter_context(connect(settings_for(url, fanout_patterns=has_patterns)))
    workers, everything = Listener(link, queue_of(EVENTS, "worker.#")), Listener(link, queue_of(EVENTS, "#"))

    for number, key in enumerate(["task.sent", "worker.online", "task.multi", "worker.elect.ack"]):
        link.publish(EVENTS, body(number), routing_key=key)

    assert everything.drain(4) == [0, 1, 2, 3]
    assert workers.drain(2) == [1, 3]


@pytest.mark.parametrize("prefix", ["", "team:"])
@pytest.mark.parametrize("priority", [0, 3, 5, 6, 9])
def test_what_kombu_sends_to_a_queue_of_ours_arrives_at_any_priority(
    url: str, prefix: str, priority: int, links: ExitStack
) -> None:
    replies = Exchange("reply.celery.pidbox", "direct")
    link = links.enter_context(connect(settings_for(url, global_keyprefix=prefix)))
    listener = Listener(link, queue_of(replies, "asker"))

    with kombu.Connection(url, transport_options={"global_keyprefix": prefix}) as peer:
        peer.Producer().publish(
            {"number": 1},
            exchange=kombu.Exchange("reply.celery.pidbox", "direct"),
            routing_key="asker",
            priority=priority,
        )

    assert listener.drain(1) == [1]


@pytest.mark.parametrize("prefix", ["", "team:"])
def test_nothing_of_a_queue_is_left_when_its_link_is_closed(redis_url: str, prefix: str) -> None:
    replies = Exchange("reply.celery.pidbox", "direct")
    queue = queue_of(replies, "asker")
    with connect(settings_for(redis_url, global_keyprefix=prefix)) as link:
        link.subscribe(queue, print)
        for _ in range(3):
            link.publish(replies, body(1), routing_key="asker")

    with redis.Redis.from_url(redis_url) as client:
        left = client.keys("*")

    assert left == []


def test_a_binding_that_makes_no_sense_is_passed_over(redis_url: str, links: ExitStack) -> None:
    replies = Exchange("reply.celery.pidbox", "direct")
    link = links.enter_context(connect(Settings(broker_url=redis_url)))
    listener = Listener(link, queue_of(replies, "asker"))
    with redis.Redis.from_url(redis_url) as client:
        client.sadd("_kombu.binding.reply.celery.pidbox", b"", b"\xff\xfe", b"a\x06\x16b", b"\x06\x16" * 9)

    link.publish(replies, body(1), routing_key="asker")

    assert listener.drain(1) == [1]


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{}", b"\x80\x04\x95", b'{"body":"\xff"}'])
def test_what_is_no_envelope_is_handed_on_with_its_fault(
    redis_server: RedisServer, url: str, data: bytes, links: ExitStack
) -> None:
    listener = Listener(links.enter_context(connect(Settings(broker_url=url))), queue_of(EVENTS, "#"))

    with redis_server.client() as client:
        client.publish("/3.celeryev/task.sent", data)
    listener.link.publish(EVENTS, body(1), routing_key="task.sent")

    while len(listener.messages) < 2:
        assert listener.link.drain(PATIENCE) > 0
    assert listener.messages[0] == Message(data, fault="envelope")
    assert listener.messages[1].body == body(1)


# -- a link that breaks


@pytest.mark.parametrize(("kind", "cut"), [("fanout", "pubsub"), ("direct", "normal")])
def test_a_link_that_is_cut_while_it_drains_is_lost(
    own_redis: RedisServer, kind: ExchangeType, cut: str
) -> None:
    link = connect(Settings(broker_url=own_redis.url))
    link.subscribe(queue_of(Exchange("news", kind), "key"), print)

    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(link.drain, PATIENCE)
        assert own_redis.client_kill(cut) > 0

        with pytest.raises(ConnectionLost, match=f"{own_redis.port}/0"):
            draining.result()
    link.close()


def fill(link: Connection) -> None:
    """Publish until no more can be written."""
    while True:
        link.publish(EVENTS, b'"' + b"x" * 1_000_000 + b'"')


def lose(link: Connection, way: Literal["publish", "drain"]) -> None:
    """Use a link to a broker that is gone, until it notices."""
    while True:
        match way:
            case "publish":
                link.publish(EVENTS, body(1), routing_key="task.sent")
                link.unconfirmed(PATIENCE)
            case "drain":
                link.drain(PATIENCE)


@pytest.mark.parametrize("way", ["publish", "drain"])
def test_a_server_that_dies_is_a_lost_connection(
    own_redis: RedisServer, way: Literal["publish", "drain"]
) -> None:
    link = connect(Settings(broker_url=own_redis.url))
    link.subscribe(queue_of(EVENTS, "#"), lambda _: None)
    link.publish(EVENTS, body(1))

    own_redis.kill()

    with pytest.raises(ConnectionLost):
        lose(link, way)
    link.close()


def test_what_is_published_over_a_link_that_was_closed_while_idle_is_not_lost_silently(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_IDLE", 0.0)
    link = connect(Settings(broker_url=own_redis.url))
    link.publish(EVENTS, body(1))
    assert link.unconfirmed(PATIENCE) == 0

    own_redis.client_kill("normal")

    with own_redis.client() as client:
        assert wait_until(lambda: len(client.client_list()) == 1, patience=PATIENCE)
    with pytest.raises(ConnectionLost):
        link.publish(EVENTS, body(2))
    link.close()


@pytest.mark.parametrize("kind", ["fanout", "direct"])
def test_a_link_that_falls_silent_is_lost(
    own_redis: RedisServer, kind: ExchangeType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "_SILENCE", 0.2)
    monkeypatch.setattr(transport, "_LIST_WAIT", 0.2)
    link = connect(Settings(broker_url=own_redis.url))
    link.subscribe(queue_of(Exchange("news", kind), "key"), print)
    assert link.drain(1.0) == 0
    # Not before: a server that lives may take longer than this to answer.
    monkeypatch.setattr(redis_link, "_ANSWER", 0.2)
    monkeypatch.setattr(transport, "_PATIENCE", 0.2)

    with frozen(own_redis), pytest.raises(ConnectionLost, match="silent"):
        link.drain(PATIENCE)

    link.close()


def test_a_message_to_a_queue_is_published_before_redis_answers(own_redis: RedisServer) -> None:
    link = connect(Settings(broker_url=own_redis.url))
    link.open()

    with frozen(own_redis):
        link.publish(Exchange("", "direct"), b"{}", routing_key="tasks")
        unconfirmed = link.unconfirmed()

    assert unconfirmed == 1
    assert link.unconfirmed(PATIENCE) == 0
    assert link.queue_length("tasks") == 1
    link.close()


def test_a_link_that_is_silent_but_alive_is_kept(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "_SILENCE", 0.05)
    link = connect(Settings(broker_url=own_redis.url))
    listener = Listener(link, queue_of(EVENTS, "#"))

    drained = link.drain(0.5)

    assert drained == 0
    link.publish(EVENTS, body(1), routing_key="task.sent")
    assert listener.drain(1) == [1]
    link.close()


def test_a_server_that_hangs_keeps_nobody_who_uses_it(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (redis_link, transport):
        monkeypatch.setattr(module, "_PATIENCE", 0.3)
    settings = Settings(broker_url=own_redis.url, broker_connection_timeout=0.3)
    open_link, new_link = connect(settings), connect(settings)
    open_link.open()

    with frozen(own_redis):
        with pytest.raises(ConnectionLost):
            new_link.open()
        with pytest.raises(ConnectionLost):
            open_link.subscribe(queue_of(EVENTS), print)
        with pytest.raises(ConnectionLost):
            fill(open_link)
        open_link.close()
        new_link.close()
