"""Tasks on Redis are waited for without asking: the server tells when one comes."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from celeriac.config import Settings
from celeriac.programs.port import LOOPBACK
from celeriac.testing.brokers import RedisServer, ValkeyServer
from celeriac.transport import redis_tasks
from celeriac.transport.redis import RedisConnection
from celeriac.transport.redis_link import RedisLink
from tests.contract import DEFAULT, body
from tests.contract_tasks import Taker, send
from tests.redis_tasks import PATIENCE, QUEUE, SEPARATOR

PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives as long as its test


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """A client of the database that the links use."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


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


def evals(client: Any) -> int:
    stats: Any = client.info("commandstats")
    return int(stats["cmdstat_eval"]["calls"])


def test_who_waits_asks_nothing(telling_server: RedisServer, waiting: Taker) -> None:
    with telling_server.client() as client:
        before = evals(client)

        waiting.link.drain(1.0)

        assert evals(client) == before


def test_what_others_take_and_settle_lets_nobody_ask(telling_server: RedisServer, waiting: Taker) -> None:
    with telling_server.client() as client:
        client.zadd("unacked_index", {"tag": 1e18})
        waiting.link.drain(0.1)  # what was read first of all may be told of, once
        before = evals(client)

        for number in range(5):
            client.zadd("unacked_index", {"tag": 1e18 + number})
            client.hset("unacked", "tag", number)
            waiting.link.drain(0.05)

        assert evals(client) == before


def come_and_go(client: Any) -> None:
    """Let a task come that another takes before anybody can ask."""
    with client.pipeline() as pipe:
        pipe.lpush("tasks", "task").rpop("tasks").execute()


def test_who_asked_in_vain_takes_its_time_before_it_asks_again(
    telling_server: RedisServer, waiting: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_tasks, "_WAIT_EACH", 1e6)
    monkeypatch.setattr(redis_tasks, "_WAIT_MOST", 1e6)
    with telling_server.client() as client:
        before = evals(client)

        for _ in range(3):
            come_and_go(client)
            waiting.link.drain(0.1)

        assert evals(client) == before + 1


def test_who_asked_in_vain_gets_the_next_task_all_the_same(
    telling_server: RedisServer, waiting: Taker
) -> None:
    with (
        telling_server.client() as client,
        RedisConnection(Settings(broker_url=telling_server.url)) as sender,
    ):
        for number in range(30):
            come_and_go(client)
            waiting.link.drain(0.01)
            send(sender, QUEUE, number)

            assert waiting.drain(number + 1) == list(range(number + 1))


def flush(client: Any) -> None:
    client.flushall()


def overflow(client: Any) -> None:
    client.config_set("tracking-table-max-keys", 1)


def expire(client: Any) -> None:
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


@pytest.mark.parametrize("refused", ["-client|tracking", "-client|caching"])
def test_where_a_user_may_not_be_told_tasks_come_all_the_same(
    own_redis: RedisServer, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with own_redis.client() as client:
        client.execute_command(
            *("ACL", "SETUSER", "worker", "on", f">{PASSWORD}", "~*", "&*", "+@all", refused)
        )
    settings = Settings(broker_url=f"redis://worker:{PASSWORD}@{LOOPBACK}:{own_redis.port}/0")
    for number in range(2):
        with RedisConnection(settings) as link, RedisConnection(settings) as sender:
            taker = Taker(link, QUEUE)
            assert link.drain(0.3) == 0

            send(sender, QUEUE, number)

            assert taker.drain(1) == [number]
            taker.accept()

    assert caplog.text.count("no notification of new tasks") == 1
    assert PASSWORD not in caplog.text


class OlderConnection(RedisConnection):
    """A link as older libraries make them."""

    def _new_link(self) -> RedisLink:
        link = super()._new_link()
        link.ask("HELLO", 2)
        return link


def test_who_begins_with_the_older_protocol_is_told_too(redis_url: str, client: Any) -> None:
    with OlderConnection(Settings(broker_url=redis_url)) as link:
        taker = Taker(link, QUEUE)
        link.drain(0.05)
        before = evals(client)

        link.drain(0.5)

        assert evals(client) == before
        send(link, QUEUE, 1)
        assert taker.drain(1) == [1]
