"""Backends: which one the settings name, what is stored, and what a closed one leaves."""

from collections.abc import Iterator
from datetime import datetime
from threading import Thread
from typing import Any

import pytest

from celeriac import Celeriac, MemoryBroker
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, ImproperlyConfigured, RemoteError
from celeriac.model.result import Failure, ResultTree
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.redis_backend import RedisBackend
from celeriac.node.rpc_backend import RpcBackend
from tests.results import NEVER, PATIENCE, Store, StoreBackend, meta, settled, waiting


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def backend(store: Store) -> Iterator[StoreBackend]:
    backend = StoreBackend(store)
    yield backend
    backend.close()


@pytest.fixture
def rpc() -> Iterator[Celeriac]:
    """An app whose results are messages of a broker in this process."""
    app = Celeriac(
        MemoryBroker(), backend="rpc://", environ={}, broker_retry_base=0.001, broker_retry_cap=0.01
    )
    yield app
    app.close()


# -- which one


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1:1/0", RedisBackend),
        ("rediss://127.0.0.1:1/0", RedisBackend),
        ("redis+socket:///nowhere/redis.sock", RedisBackend),
        ("sentinel://127.0.0.1:1/0", RedisBackend),
        ("rpc://", RpcBackend),
    ],
)
def test_the_url_says_which_backend_it_is(url: str, kind: type) -> None:
    app = Celeriac(MemoryBroker(), backend=url, environ={})

    assert type(app.backend) is kind


def test_without_a_backend_there_are_no_results_and_the_error_says_how_to_have_them() -> None:
    app = Celeriac(MemoryBroker(), environ={})

    with pytest.raises(
        ImproperlyConfigured, match="no result backend is set; set result_backend to the URL that the"
    ):
        app.AsyncResult("a")


def test_a_backend_that_is_not_known_is_an_error_without_its_password() -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        _ = Celeriac(MemoryBroker(), backend="mongodb://user:secret@host/db", environ={}).backend

    assert "result_backend" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_backend_that_nobody_uses_makes_no_link(store: Store) -> None:
    backend = StoreBackend(store)

    health = backend.health()
    backend.close()

    assert (health.phase, health.last_error) == ("down", None)
    assert store.asked["open"] == 0


# -- storing


def test_what_is_stored_can_be_read(backend: StoreBackend) -> None:
    is_stored = backend.store_result("a", {"sum": 3}, children=[ResultTree("b")], parent_id="p", group_id="g")

    known = backend.get_task_meta("a")

    assert is_stored
    assert (known.status, known.result) == ("SUCCESS", {"sum": 3})
    assert (known.children, known.parent_id, known.group_id) == ((ResultTree("b"),), "p", "g")
    assert datetime.fromisoformat(known.date_done or "").tzinfo is not None


def test_an_exception_is_stored_as_text_and_values(backend: StoreBackend) -> None:
    backend.store_result("a", ValueError("no", 3), "FAILURE", traceback="Traceback")

    known = backend.get_task_meta("a")

    assert known.result == Failure("ValueError", ("no", 3), "builtins")
    with pytest.raises(RemoteError, match="ValueError: no, 3"):
        backend.result("a").get()


def test_a_state_before_the_last_has_no_date_of_its_end(backend: StoreBackend) -> None:
    backend.store_result("a", {"done": 10}, "PROGRESS")

    known = backend.get_task_meta("a")

    assert (known.status, known.date_done) == ("PROGRESS", None)


def test_a_success_stands(backend: StoreBackend) -> None:
    backend.store_result("a", 1)

    is_stored = backend.store_result("a", ValueError("late"), "FAILURE")

    assert not is_stored
    assert backend.result("a").get() == 1


def test_r16_what_cannot_be_stored_is_raised(backend: StoreBackend, store: Store) -> None:
    store.stop()

    with pytest.raises(ConnectionLost):
        backend.store_result("a", 1, timeout=0.05)

    store.start()
    assert backend.get_task_meta("a").status == "PENDING"


def test_r16_what_could_not_be_stored_at_first_is_stored_once_the_store_is_back(
    backend: StoreBackend, store: Store
) -> None:
    store.stop()

    def start() -> None:
        assert settled(lambda: store.asked["write"] >= 3)
        store.start()

    starter = Thread(target=start)
    starter.start()

    is_stored = backend.store_result("a", 1, timeout=PATIENCE)
    starter.join()

    assert is_stored
    assert store.look(["a"])["a"].result == 1


def test_r16_storing_does_not_spin_while_the_store_is_away(store: Store) -> None:
    backend = StoreBackend(store, **NEVER)
    store.stop()

    with pytest.raises(ConnectionLost):
        backend.store_result("a", 1, timeout=0.2)

    assert store.asked["write"] == 1
    backend.close()


def test_r16_what_the_store_refuses_is_raised_at_once(backend: StoreBackend, store: Store) -> None:
    store.refuses = True

    with pytest.raises(AccessRefused):
        backend.store_result("a", 1, timeout=PATIENCE)

    assert store.asked["write"] == 1


def test_r16_what_cannot_be_spelled_is_the_callers_error(rpc: Celeriac) -> None:
    with pytest.raises(CallerError):
        rpc.backend.store_result("a", object(), reply_to="somewhere")

    assert rpc.backend.get_task_meta("a").status == "PENDING"


# -- results as messages


def test_r10_a_result_that_came_as_a_message_can_be_asked_for_later(rpc: Celeriac) -> None:
    backend = rpc.backend
    assert isinstance(backend, RpcBackend)

    backend.store_result("a", 42, reply_to=backend.reply_to)

    assert settled(lambda: backend.get_task_meta("a").status == "SUCCESS")
    assert rpc.AsyncResult("a").get(timeout=PATIENCE) == 42
    assert rpc.AsyncResult("a").get(timeout=0) == 42


def test_r13_a_result_that_was_sent_while_the_link_was_away_arrives(rpc: Celeriac) -> None:
    backend, broker = rpc.backend, rpc._memory
    assert isinstance(backend, RpcBackend)
    assert broker is not None
    reply_to = backend.reply_to

    with waiting(backend.consumer, lambda: rpc.AsyncResult("a").get(timeout=PATIENCE)) as (future,):
        broker.cut()
        assert backend.store_result("a", 42, reply_to=reply_to)

    assert future.result() == 42


def test_r15_looking_takes_no_result_from_who_waits(rpc: Celeriac) -> None:
    backend = rpc.backend
    assert isinstance(backend, RpcBackend)
    reply_to = backend.reply_to
    ids = [str(number) for number in range(50)]
    results = [rpc.AsyncResult(task_id) for task_id in ids]

    def look() -> bool:
        return all(rpc.AsyncResult(task_id).ready() for task_id in ids)

    waits = [lambda result=result: result.get(timeout=PATIENCE) for result in results]
    with waiting(backend.consumer, *waits) as futures:
        looker = Thread(target=settled, args=(look,))
        looker.start()
        for task_id in ids:
            backend.store_result(task_id, task_id, reply_to=reply_to)
        looker.join()

    assert [future.result() for future in futures] == ids
    assert look()


def test_a_result_as_a_message_needs_somebody_to_send_it_to(rpc: Celeriac) -> None:
    is_stored = rpc.backend.store_result("a", 42)

    assert not is_stored


def test_where_to_reply_is_known_only_with_a_link() -> None:
    broker = MemoryBroker()
    broker.stop()
    app = Celeriac(broker, backend="rpc://", environ={}, broker_connection_timeout=0.05)
    backend = app.backend
    assert isinstance(backend, RpcBackend)

    with pytest.raises(ConnectionLost):
        _ = backend.reply_to

    broker.start()
    assert settled(lambda: backend.health().phase == "up")
    assert backend.reply_to.startswith("celeriac.reply.")
    app.close()


# -- the end


def test_an_app_that_is_closed_ends_its_links_and_can_be_used_again(
    backend: StoreBackend, store: Store
) -> None:
    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=PATIENCE)):
        store.finish("a")
    first = backend.consumer

    backend.close()
    is_closed = store.open_links == 0
    with waiting(backend.consumer, lambda: backend.result("b").get(timeout=PATIENCE)) as (future,):
        store.finish("b")

    assert is_closed
    assert future.result() == "b"
    assert backend.consumer is not first


def test_a_consumer_class_is_used_from_the_next_start_and_refused_while_one_runs(
    backend: StoreBackend, store: Store
) -> None:
    class Looking(BaseResultConsumer):
        pass

    running = backend.consumer
    with pytest.raises(CallerError, match="set ResultConsumer before the first wait"):
        backend.ResultConsumer = Looking
    backend.close()
    backend.ResultConsumer = Looking
    store.finish("a")

    assert type(running) is BaseResultConsumer
    assert isinstance(backend.consumer, Looking)
    assert backend.result("a").get(timeout=PATIENCE) == "a"


def test_a_backend_can_be_closed_twice(backend: StoreBackend) -> None:
    backend.drainer()

    backend.close()
    backend.close()

    assert backend.health().waiters == 0


def test_many_who_come_at_once_share_one_link(backend: StoreBackend, store: Store) -> None:
    waits: list[Any] = [
        lambda number=number: backend.result(str(number)).get(timeout=PATIENCE) for number in range(50)
    ]

    with waiting(backend.consumer, *waits):
        store.finish(*(str(number) for number in range(50)))

    assert store.asked["open"] == 1
    assert meta("7", result="7") == store.look(["7"])["7"]
