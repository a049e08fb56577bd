"""The pitfalls of Celery's drainers, staged with real brokers. R1 and so on are theirs in the design."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from kombu import Connection

from celeriac import Celeriac
from celeriac.errors import AccessRefused, ConnectionLost, ResultTimeout
from celeriac.node.rpc_backend import RpcBackend
from celeriac.testing.brokers import RedisServer
from celeriac.testing.rabbit import RabbitNode
from tests.results import PATIENCE, settled, waiting

QUICK = {"broker_retry_base": 0.01, "broker_retry_cap": 0.05}


def app_on(broker: str, backend: str, **settings: Any) -> Celeriac:
    return Celeriac(broker, backend=backend, environ={}, **{**QUICK, **settings})


@pytest.fixture
def app(redis_url: str) -> Iterator[Celeriac]:
    """An app whose results are kept in the shared Redis."""
    app = app_on(redis_url, redis_url)
    yield app
    app.close()


@pytest.fixture
def own_app(own_redis: RedisServer) -> Iterator[Celeriac]:
    """An app whose results are kept in a Redis that the test may do anything to."""
    app = app_on(own_redis.url, own_redis.url)
    yield app
    app.close()


@pytest.fixture
def rpc(amqp_url: str) -> Iterator[Celeriac]:
    """An app whose results are messages of RabbitMQ."""
    app = app_on(amqp_url, "rpc://")
    yield app
    app.close()


def rpc_backend(app: Celeriac) -> RpcBackend:
    assert isinstance(app.backend, RpcBackend)
    return app.backend


def getting(app: Celeriac, task_id: str, timeout: float = PATIENCE) -> Callable[[], Any]:
    return lambda: app.AsyncResult(task_id).get(timeout=timeout)


# -- R1, R2, R3


def test_r1_a_result_that_is_stored_at_any_moment_of_a_wait_is_found(app: Celeriac) -> None:
    ids = [str(number) for number in range(300)]

    def store(task_id: str) -> None:
        app.backend.store_result(task_id, task_id)

    with ThreadPoolExecutor(8) as pool:
        for task_id in ids:
            pool.submit(store, task_id)
        values = [app.AsyncResult(task_id).get(timeout=PATIENCE) for task_id in ids]

    assert values == ids
    assert settled(lambda: app.backend.health().watched == 0)


def test_r2_results_that_are_stored_while_links_are_killed_are_found(
    own_app: Celeriac, own_redis: RedisServer
) -> None:
    ids = [str(number) for number in range(40)]

    with waiting(own_app.backend.consumer, *(getting(own_app, task_id) for task_id in ids)) as futures:
        for number, task_id in enumerate(ids):
            if number % 4 == 0:
                own_redis.client_kill("pubsub")
            own_app.backend.store_result(task_id, task_id)

    assert [future.result() for future in futures] == ids


def test_r2_results_that_are_stored_right_after_a_restart_are_found(
    own_app: Celeriac, own_redis: RedisServer
) -> None:
    with waiting(own_app.backend.consumer, getting(own_app, "a"), getting(own_app, "b")) as futures:
        own_redis.kill()
        own_redis.start()
        other = app_on(own_redis.url, own_redis.url)
        other.backend.store_result("a", 1)
        other.backend.store_result("b", 2)
        other.close()

    assert [future.result() for future in futures] == [1, 2]


def test_r3_results_that_are_dropped_and_awaited_in_many_threads_harm_each_other_in_no_way(
    own_app: Celeriac, own_redis: RedisServer
) -> None:
    app = own_app

    def come_and_go(mine: int) -> list[Any]:
        values = []
        for number in range(25):
            task_id = f"{mine}-{number}"
            app.backend.add_pending_result(app.AsyncResult(f"{task_id}-dropped"))
            held = app.backend.add_pending_result(app.AsyncResult(task_id))
            app.backend.store_result(task_id, task_id)
            values.append(held.get(timeout=PATIENCE))
            with pytest.raises(ResultTimeout):
                app.AsyncResult(f"{task_id}-never").get(timeout=0.001)
        return values

    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(come_and_go, range(8)))

    assert values == [[f"{mine}-{number}" for number in range(25)] for mine in range(8)]
    assert settled(lambda: app.backend.health().watched == 0)
    with own_redis.client() as client:
        assert settled(lambda: not client.pubsub_channels("celery-task-meta-*"))


# -- R4


def test_r4_who_waits_is_told_of_a_password_and_the_same_app_works_once_it_is_gone(
    own_app: Celeriac, own_redis: RedisServer
) -> None:
    consumer = own_app.backend.consumer

    # One connection all along: it was let in before there was a password.
    with own_redis.client() as client:
        with waiting(consumer, getting(own_app, "a"), getting(own_app, "b")) as futures:
            assert settled(lambda: client.pubsub_channels("celery-task-meta-*"))
            client.config_set("requirepass", "secret")
            for kind in ("pubsub", "normal"):
                client.client_kill_filter(_type=kind, skipme=True)
        errors = [future.exception() for future in futures]
        client.config_set("requirepass", "")
        with waiting(consumer, getting(own_app, "a")) as (mended,):
            own_app.backend.store_result("a", 42)

    assert [type(error) for error in errors] == [AccessRefused, AccessRefused]
    assert mended.result() == 42
    assert own_app.backend.consumer is consumer


# -- R7


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_r7_now_finds_what_is_stored(app: Celeriac, timeout: float) -> None:
    app.backend.store_result("a", 42)

    value = app.AsyncResult("a").get(timeout=timeout)

    assert value == 42


def test_r7_who_looks_often_with_little_time_finds_what_is_stored(app: Celeriac, redis_url: str) -> None:
    worker = app_on(redis_url, redis_url)
    worker.backend.store_result("a", 42)
    worker.close()
    values = []

    for _ in range(200):
        with suppress(ResultTimeout):
            values.append(app.AsyncResult("a").get(timeout=0.0005))

    assert values


def test_r7_a_timeout_ends_a_wait_while_the_store_is_away(own_app: Celeriac, own_redis: RedisServer) -> None:
    with waiting(own_app.backend.consumer, getting(own_app, "a", timeout=1.0)) as (future,):
        own_redis.kill()

    assert isinstance(future.exception(), ResultTimeout)
    with pytest.raises(ResultTimeout):
        own_app.AsyncResult("a").get(timeout=0)


def test_r7_a_timeout_ends_a_wait_for_a_message_while_the_broker_is_away() -> None:
    app = app_on("amqp://guest:guest@127.0.0.1:1//", "rpc://")

    for timeout in (0, 0.5):
        with pytest.raises(ResultTimeout):
            app.AsyncResult("a").get(timeout=timeout)

    app.close()


# -- R11


def test_r11_fifty_lost_links_leave_no_socket(own_app: Celeriac, own_redis: RedisServer) -> None:
    own_app.backend.store_result("warm", 1)
    seen: list[frozenset[str]] = []

    with own_redis.client() as client:

        def is_back() -> bool:
            clients = client.client_list(_type="pubsub")
            found = frozenset(each["id"] for each in clients if each["sub"] == "1")
            if not found or found in seen:
                return False
            seen.append(found)
            return True

        with waiting(own_app.backend.consumer, getting(own_app, "a")) as (future,):
            assert settled(is_back)
            before = psutil.Process().num_fds()
            for _ in range(50):
                client.client_kill_filter(_type="pubsub", skipme=True)
                assert settled(is_back)
            assert settled(lambda: psutil.Process().num_fds() <= before)
            own_app.backend.store_result("a", 42)

    assert future.result() == 42
    assert len(seen) == 51


def test_ten_thousand_results_that_are_dropped_leave_no_subscription(
    own_app: Celeriac, own_redis: RedisServer
) -> None:
    pattern = "celery-task-meta-*"
    results = [own_app.AsyncResult(str(number)) for number in range(10_000)]

    with own_redis.client() as client:
        own_app.backend.add_pending_results(results)
        all_there = settled(lambda: len(client.pubsub_channels(pattern)) == 10_000)
        results.clear()
        none_left = settled(lambda: not client.pubsub_channels(pattern))

    assert all_there
    assert none_left
    assert settled(lambda: own_app.backend.health().watched == 0)


# -- R13, R14, R15: results as messages


def test_r13_what_is_sent_while_the_link_is_away_waits_in_the_queue(
    rpc: Celeriac, rabbit_server: RabbitNode, amqp_url: str
) -> None:
    reply_to = rpc_backend(rpc).reply_to
    worker = app_on(amqp_url, "rpc://")

    with waiting(rpc.backend.consumer, getting(rpc, "a"), getting(rpc, "b")) as futures:
        worker.backend.store_result("a", 1, reply_to=reply_to)
        assert settled(futures[0].done)
        assert rabbit_server.close_connections() > 0
        worker.backend.store_result("b", 2, reply_to=reply_to)
    worker.close()

    assert [future.result() for future in futures] == [1, 2]
    assert rpc_backend(rpc).reply_to == reply_to


def test_r13_a_queue_that_was_deleted_is_declared_again(rpc: Celeriac, amqp_url: str) -> None:
    reply_to = rpc_backend(rpc).reply_to

    def is_declared() -> bool:
        with Connection(amqp_url) as link:
            try:
                link.channel().queue_declare(reply_to, passive=True)
            except link.channel_errors:
                return False
        return True

    with waiting(rpc.backend.consumer, getting(rpc, "a")) as (future,):
        with Connection(amqp_url) as link:
            link.channel().queue_delete(reply_to)
        is_there_again = settled(is_declared)
        rpc.backend.store_result("a", 42, reply_to=reply_to)

    assert is_there_again
    assert future.result() == 42


def test_r13_an_app_that_is_closed_leaves_no_queue(rpc: Celeriac, amqp_url: str) -> None:
    reply_to = rpc_backend(rpc).reply_to

    rpc.close()

    with Connection(amqp_url) as link, pytest.raises(link.channel_errors):
        link.channel().queue_declare(reply_to, passive=True)


def test_r14_a_link_lives_on_over_many_heartbeats_while_nobody_waits(amqp_url: str) -> None:
    app = app_on(amqp_url, "rpc://", broker_heartbeat=2)
    reply_to = rpc_backend(app).reply_to
    link = app.backend.consumer._link

    # The broker drops a link after two beats that it missed; nothing else happens meanwhile.
    Event().wait(8.0)
    app.backend.store_result("a", 42, reply_to=reply_to)

    assert app.AsyncResult("a").get(timeout=PATIENCE) == 42
    assert app.backend.consumer._link is link
    assert app.backend.health().last_error is None
    app.close()


def test_r15_looking_takes_no_result_from_who_waits(rpc: Celeriac) -> None:
    reply_to = rpc_backend(rpc).reply_to
    ids = [str(number) for number in range(50)]

    def look() -> bool:
        return all(rpc.AsyncResult(task_id).ready() for task_id in ids)

    with waiting(rpc.backend.consumer, *(getting(rpc, task_id) for task_id in ids)) as futures:
        looker = Thread(target=settled, args=(look,))
        looker.start()
        for task_id in ids:
            rpc.backend.store_result(task_id, task_id, reply_to=reply_to)
        looker.join()

    assert [future.result() for future in futures] == ids
    assert look()


def test_r10_many_results_that_nobody_asked_for_are_there_for_who_asks_late(rpc: Celeriac) -> None:
    reply_to = rpc_backend(rpc).reply_to
    ids = [str(number) for number in range(200)]

    for task_id in ids:
        rpc.backend.store_result(task_id, task_id, reply_to=reply_to)
    values = [rpc.AsyncResult(task_id).get(timeout=PATIENCE) for task_id in ids]

    assert values == ids
    assert settled(lambda: rpc.backend.health().watched == 0)


# -- R16


def test_r16_what_cannot_be_stored_is_raised_and_is_stored_after_a_restart(
    own_app: Celeriac, own_redis: RedisServer
) -> None:
    own_app.backend.store_result("warm", 1)
    own_redis.kill()

    with pytest.raises(ConnectionLost):
        own_app.backend.store_result("a", 42, timeout=0.5)
    starter = Thread(target=own_redis.start)
    starter.start()
    is_stored = own_app.backend.store_result("a", 42, timeout=PATIENCE)
    starter.join()

    assert is_stored
    assert own_app.AsyncResult("a").get(timeout=0) == 42


def test_r16_a_result_that_is_sent_while_the_broker_is_away_is_raised() -> None:
    app = app_on("amqp://guest:guest@127.0.0.1:1//", "rpc://")

    with pytest.raises(ConnectionLost):
        app.backend.store_result("a", 42, reply_to="somewhere", timeout=0.5)

    app.close()


def test_r16_a_store_that_may_not_be_written_to_raises(own_app: Celeriac, own_redis: RedisServer) -> None:
    own_redis.configure("maxmemory", "1")

    with pytest.raises(ConnectionLost):
        own_app.backend.store_result("a", "x" * 1000, timeout=0.5)

    own_redis.configure("maxmemory", "0")
    assert own_app.backend.get_task_meta("a").status == "PENDING"
