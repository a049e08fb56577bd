"""Results read and written in a real Redis, by many at once, over links that break."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any

import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import CallerError, ConnectionLost
from celeriac.model.result import Failure, ResultMeta
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.transport import redis_call
from celeriac.transport.redis_link import RedisLink
from celeriac.transport.redis_store import RedisResultStore
from celeriac.wire.result import decode
from tests.links import MIB, PATIENCE, frozen, success

FAILURE = Failure("ValueError", ("planned",), "builtins")


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is called back here ends with the test."""
    with ExitStack() as stack:
        yield stack


def new_store(url: str, ends: ExitStack, **settings: Any) -> RedisResultStore:
    store = RedisResultStore(Settings(result_backend=url, **settings))
    ends.callback(store.close)
    return store


@pytest.fixture
def store(redis_url: str, ends: ExitStack) -> RedisResultStore:
    return new_store(redis_url, ends)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
def own_store(own_redis: RedisServer, ends: ExitStack) -> RedisResultStore:
    return new_store(own_redis.url, ends)


def read(store: RedisResultStore, *task_ids: str) -> dict[str, ResultMeta]:
    return store.read(task_ids, timeout=PATIENCE)


def write(store: RedisResultStore, meta: ResultMeta) -> bool:
    return store.write(meta, timeout=PATIENCE)


def key(task_id: str) -> str:
    return f"celery-task-meta-{task_id}"


# -- reading, writing, deleting


def test_what_was_written_is_read_and_what_was_not_is_left_out(store: RedisResultStore) -> None:
    failed = ResultMeta("b", "FAILURE", FAILURE, "Traceback…")

    written = write(store, success("a")), write(store, failed)

    assert written == (True, True)
    assert read(store, "a", "absent", "b") == {"a": success("a"), "b": failed}
    assert read(store) == {}


def test_more_are_read_and_deleted_than_one_command_carries(
    store: RedisResultStore, client: redis.Redis
) -> None:
    task_ids = [str(number) for number in range(1201)]
    client.mset({key(each): json.dumps({"status": "SUCCESS", "result": int(each)}) for each in task_ids})

    found = read(store, *task_ids)

    assert found == {each: success(each, int(each)) for each in task_ids}
    assert store.delete([*task_ids, "absent"], timeout=PATIENCE) == 1201
    assert store.delete([], timeout=PATIENCE) == 0
    assert client.dbsize() == 0


def test_a_long_result_is_kept_whole(store: RedisResultStore) -> None:
    long = success("a", "x" * (20 * MIB))

    write(store, long)

    assert read(store, "a") == {"a": long}


def test_a_result_that_is_too_long_is_read_as_a_fault(
    redis_url: str, store: RedisResultStore, ends: ExitStack
) -> None:
    write(store, success("a", "x" * 2000))

    found = read(new_store(redis_url, ends, result_max_bytes=1000), "a")

    assert "result_max_bytes" in found["a"].fault


def test_what_cannot_be_stored_is_the_callers_to_mend(store: RedisResultStore) -> None:
    with pytest.raises(CallerError, match="task a"):
        write(store, success("a", object()))


@pytest.mark.parametrize(
    ("settings", "meta", "lives_for"),
    [
        ({}, success("a"), 86_400),
        ({}, ResultMeta("a", "FAILURE", FAILURE), 86_400),
        ({"result_expires": 5000}, success("a"), 5000),
        ({"result_expires": 5000.5}, success("a"), 5001),
        ({"result_expires": 0}, success("a"), -1),
        ({"result_failure_expires": 1000}, success("a"), 86_400),
        ({"result_failure_expires": 1000}, ResultMeta("a", "STARTED"), 86_400),
        ({"result_failure_expires": 1000}, ResultMeta("a", "RETRY", FAILURE), 86_400),
        ({"result_failure_expires": 1000}, ResultMeta("a", "FAILURE", FAILURE), 1000),
        ({"result_expires": 0, "result_failure_expires": 1000}, ResultMeta("a", "REVOKED", FAILURE), 1000),
    ],
)
def test_a_result_lives_as_long_as_the_settings_say(
    redis_url: str,
    client: redis.Redis,
    ends: ExitStack,
    *,
    settings: dict[str, Any],
    meta: ResultMeta,
    lives_for: int,
) -> None:
    client.set(key("a"), "older", ex=50)

    write(new_store(redis_url, ends, **settings), meta)

    ttl = client.ttl(key("a"))
    assert isinstance(ttl, int)
    assert lives_for - PATIENCE <= ttl <= lives_for


def test_a_result_may_be_compressed(redis_url: str, client: redis.Redis, ends: ExitStack) -> None:
    store = new_store(redis_url, ends, result_compression="gzip")

    write(store, success("a", "x" * 5000))

    assert read(store, "a") == {"a": success("a", "x" * 5000)}
    stored = client.get(key("a"))
    assert isinstance(stored, bytes)
    assert stored.startswith(b"\0celery-compressed\0")
    assert len(stored) < 500


# -- a success is never overwritten


@pytest.mark.parametrize(
    "later", [success("a", 4), ResultMeta("a", "FAILURE", FAILURE), ResultMeta("a", "STARTED")]
)
def test_a_success_is_not_overwritten(store: RedisResultStore, later: ResultMeta) -> None:
    write(store, success("a"))

    assert write(store, later) is False

    assert read(store, "a") == {"a": success("a")}


@pytest.mark.parametrize(
    "earlier",
    [
        '{"status": "STARTED", "result": null}',
        '{"status": "FAILURE", "result": {"exc_type": "ValueError", "exc_message": []}}',
        "nonsense",
    ],
)
def test_anything_else_is_overwritten(store: RedisResultStore, client: redis.Redis, earlier: str) -> None:
    client.set(key("a"), earlier)

    assert write(store, success("a")) is True

    assert read(store, "a") == {"a": success("a")}


def test_what_is_no_text_at_all_is_overwritten(store: RedisResultStore, client: redis.Redis) -> None:
    client.rpush(key("a"), "a list")

    assert write(store, success("a")) is True

    assert read(store, "a") == {"a": success("a")}


@pytest.mark.parametrize(
    ("between", "is_written", "left"),
    [('{"status": "STARTED"}', True, 3), ('{"status": "SUCCESS", "result": 4}', False, 4)],
)
def test_what_is_written_between_looking_and_writing_is_looked_at_again(
    store: RedisResultStore,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    *,
    between: str,
    is_written: bool,
    left: int,
) -> None:
    client.set(key("a"), '{"status": "RECEIVED"}')
    looks: list[bytes] = []

    def look(document: bytes, **options: Any) -> ResultMeta:
        looks.append(document)
        if len(looks) == 1:
            client.set(key("a"), between)
        return decode(document, **options)

    monkeypatch.setattr("celeriac.transport.redis_store.decode", look)

    assert write(store, success("a")) is is_written

    assert len(looks) == 2
    assert read(store, "a")["a"].result == left


def test_of_many_who_write_a_success_at_once_one_does(store: RedisResultStore, client: redis.Redis) -> None:
    writers = 16
    barrier = Barrier(writers)
    spy = client.pubsub()  # type: ignore[no-untyped-call]
    spy.subscribe(key("a"))
    assert spy.get_message(timeout=PATIENCE) is not None

    def do(number: int) -> bool:
        barrier.wait(PATIENCE)
        return write(store, success("a", number))

    with ThreadPoolExecutor(writers) as pool:
        done = list(pool.map(do, range(writers)))

    assert done.count(True) == 1
    assert read(store, "a") == {"a": success("a", done.index(True))}
    assert spy.get_message(timeout=PATIENCE) is not None
    assert spy.get_message(timeout=0.05) is None
    spy.close()


def test_of_many_who_write_anything_at_once_a_success_is_what_stays(store: RedisResultStore) -> None:
    writers = 16
    barrier = Barrier(writers)
    states = [success("a"), *(ResultMeta("a", "FAILURE", FAILURE), ResultMeta("a", "STARTED")) * 8][:writers]

    def do(meta: ResultMeta) -> bool:
        barrier.wait(PATIENCE)
        return write(store, meta)

    with ThreadPoolExecutor(writers) as pool:
        done = list(pool.map(do, states))

    assert done[0] is True
    assert read(store, "a") == {"a": success("a")}


# -- links


def test_links_are_used_again_and_few_are_kept(store: RedisResultStore) -> None:
    read(store, "a")
    (link,) = store._idle
    read(store, "a")
    assert list(store._idle) == [link]
    barrier = Barrier(20)

    def do(number: int) -> bool:
        barrier.wait(PATIENCE)
        return write(store, success(f"task-{number}"))

    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(do, range(20)))

    assert all(done)
    assert 0 < len(store._idle) <= 8
    store.close()
    store.close()
    assert len(store._idle) == 0


def test_a_call_after_the_end_leaves_no_link_behind(store: RedisResultStore) -> None:
    store.close()

    write(store, success("a"))

    assert len(store._idle) == 0


def cut(server: RedisServer) -> None:
    """Close every link to a server, and wait until it is done."""
    assert server.client_kill("normal") > 0
    with server.client() as client:
        assert wait_until(lambda: len(client.client_list()) == 1, patience=PATIENCE)


def test_idle_links_that_were_closed_are_replaced_unnoticed(
    own_redis: RedisServer, own_store: RedisResultStore
) -> None:
    write(own_store, success("a"))

    cut(own_redis)

    assert read(own_store, "a") == {"a": success("a")}


def test_an_idle_link_that_turns_out_to_be_closed_is_replaced_unnoticed(
    own_redis: RedisServer, own_store: RedisResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(own_store, success("a"))
    cut(own_redis)
    # As if the word of it had not come here yet.
    monkeypatch.setattr(redis_call, "wait_for", lambda _links, _timeout: [])

    assert write(own_store, success("b")) is True

    assert read(own_store, "a", "b") == {"a": success("a"), "b": success("b")}


def test_a_success_whose_confirmation_was_lost_counts_as_written(
    store: RedisResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(store, "a")
    exchange = RedisLink.exchange
    lost: list[RedisLink] = []

    def lose(link: RedisLink, commands: Any, *, timeout: float) -> list[Any]:
        answers = exchange(link, commands, timeout=timeout)
        if commands[-1] == ("EXEC",) and not lost:
            lost.append(link)
            raise ConnectionLost("on purpose")
        return answers

    monkeypatch.setattr(RedisLink, "exchange", lose)

    assert write(store, success("a")) is True

    assert len(lost) == 1
    assert read(store, "a") == {"a": success("a")}


def test_a_call_that_is_left_halfway_spoils_none_after_it(
    store: RedisResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, success("a"))

    class Left(BaseException):
        """As a greenlet is killed, or a person presses Ctrl-C."""

    def leave(*_: object) -> None:
        raise Left

    with monkeypatch.context() as patch:
        patch.setattr(RedisLink, "read", leave)
        with pytest.raises(Left):
            read(store, "a", "b")

    assert read(store, "a") == {"a": success("a")}


def test_after_a_server_is_killed_calls_work_as_soon_as_it_is_back(
    own_redis: RedisServer, own_store: RedisResultStore
) -> None:
    write(own_store, success("a"))

    own_redis.kill()
    with pytest.raises(ConnectionLost, match="lost the result store at redis://"):
        read(own_store, "a")
    own_redis.start()

    assert read(own_store, "a") == {}
    assert write(own_store, success("b")) is True


@pytest.mark.parametrize("has_idle", [True, False])
def test_a_server_that_hangs_holds_nobody_for_longer_than_the_time_given(
    own_redis: RedisServer, own_store: RedisResultStore, has_idle: bool
) -> None:
    if has_idle:
        write(own_store, success("a"))

    with frozen(own_redis):
        for call in (
            lambda: own_store.read(["a"], timeout=0.2),
            lambda: own_store.write(success("b"), timeout=0.2),
            lambda: own_store.delete(["a"], timeout=0.2),
        ):
            with pytest.raises(ConnectionLost):
                call()

    assert write(own_store, success("c")) is True


def test_a_server_that_is_not_there_is_told_at_once(ends: ExitStack) -> None:
    port = ReservedPort()
    ends.callback(port.release)
    store = new_store(f"redis://user:secret@{LOOPBACK}:{port.number}/0", ends)

    with pytest.raises(ConnectionLost, match="refused") as caught:
        read(store, "a")

    assert "secret" not in str(caught.value)


def test_where_there_is_no_time_left_nothing_is_tried(own_store: RedisResultStore) -> None:
    with pytest.raises(ConnectionLost, match="in time"):
        own_store.read(["a"], timeout=0.0)
