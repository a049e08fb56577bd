"""Results that a worker stores many at a time: in one round trip, each once, and never over a success."""

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import redis

from celeriac import Celeriac
from celeriac.config import Settings
from celeriac.errors import AccessRefused, CallerError, ConnectionLost
from celeriac.model.result import Failure, Json, ResultMeta, StoredResult
from celeriac.node.redis_backend import RedisBackend
from celeriac.node.rpc_backend import RpcBackend
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.transport import redis_store
from celeriac.transport.redis_link import RedisLink
from celeriac.transport.redis_store import RedisResultStore
from celeriac.wire.compression import pack
from celeriac.wire.result import encode
from tests.links import MIB, PATIENCE, success
from tests.live import PEERS, peer

FAILURE = Json(b'{"exc_type":"ValueError","exc_message":["planned"],"exc_module":"builtins"}')
DOCUMENTS = Path(__file__).parents[1] / "peers" / "result_documents.py"


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is called back here ends with the test."""
    with ExitStack() as stack:
        yield stack


def new_backend(url: str, ends: ExitStack, **settings: Any) -> RedisBackend:
    backend = RedisBackend(
        Settings(result_backend=url, broker_retry_base=0.01, broker_retry_cap=0.05, **settings)
    )
    ends.callback(backend.close)
    return backend


@pytest.fixture
def backend(redis_url: str, ends: ExitStack) -> RedisBackend:
    return new_backend(redis_url, ends)


@pytest.fixture
def own_backend(own_redis: RedisServer, ends: ExitStack) -> RedisBackend:
    return new_backend(own_redis.url, ends)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Note the commands of each round trip."""
    noted: list[list[str]] = []
    exchange = RedisLink.exchange

    def note(link: RedisLink, commands: Any, *, timeout: float) -> list[Any]:
        noted.append([command[0] for command in commands])
        return exchange(link, commands, timeout=timeout)

    monkeypatch.setattr(RedisLink, "exchange", note)
    return noted


def key(task_id: str) -> str:
    return f"celery-task-meta-{task_id}"


def returned(task_id: str, value: object = 3) -> StoredResult:
    return StoredResult(ResultMeta(task_id, "SUCCESS", Json(json.dumps(value).encode())))


def failed(task_id: str) -> StoredResult:
    return StoredResult(ResultMeta(task_id, "FAILURE", FAILURE, "Traceback …"))


def read(backend: RedisBackend, *task_ids: str) -> dict[str, ResultMeta]:
    return backend.read(task_ids, timeout=PATIENCE)


def store(backend: RedisBackend) -> RedisResultStore:
    return backend._store.get()


# -- what is stored


def test_many_results_are_stored_in_one_round_trip(backend: RedisBackend, trips: list[list[str]]) -> None:
    backend.store_many([returned(str(number), number) for number in range(50)])

    assert [len(commands) for commands in trips] == [50]
    assert read(backend, *map(str, range(50))) == {str(each): success(str(each), each) for each in range(50)}


def test_a_single_result_takes_one_round_trip_too(backend: RedisBackend, trips: list[list[str]]) -> None:
    is_stored = backend.store_result("a", 3)

    assert is_stored
    assert [len(commands) for commands in trips] == [1]


def test_failures_and_states_between_are_stored_as_well(backend: RedisBackend) -> None:
    progress = StoredResult(ResultMeta("b", "PROGRESS", Json(b'{"done": 10}')))

    backend.store_many([failed("a"), progress])

    found = read(backend, "a", "b")
    assert found["a"].result == Failure("ValueError", ("planned",), "builtins")
    assert found["a"].traceback == "Traceback …"
    assert (found["b"].status, found["b"].result) == ("PROGRESS", {"done": 10})


def test_nothing_to_store_makes_no_link(backend: RedisBackend, trips: list[list[str]]) -> None:
    backend.store_many([])

    assert trips == []


def test_who_listens_is_told_of_each(backend: RedisBackend, client: redis.Redis) -> None:
    spy = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    spy.psubscribe(key("*"))
    assert spy.get_message(timeout=PATIENCE) is None

    backend.store_many([returned("a"), failed("b")])

    told = [spy.get_message(timeout=PATIENCE) for _ in range(2)]
    assert [each["channel"].decode() for each in told] == [key("a"), key("b")]
    assert [each["data"] for each in told] == client.mget(key("a"), key("b"))
    spy.close()


def test_who_waits_gets_it(redis_url: str, backend: RedisBackend, ends: ExitStack) -> None:
    app = Celeriac(redis_url, redis_url, environ={})
    ends.callback(app.close)
    result = app.AsyncResult("a")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(result.get, timeout=PATIENCE)
        assert wait_until(lambda: app.backend.health().waiters == 1, patience=PATIENCE)
        backend.store_many([returned("a", [1, "é"])])

        assert waiting.result() == [1, "é"]


def test_states_of_one_task_are_stored_in_the_order_given(backend: RedisBackend) -> None:
    started = StoredResult(ResultMeta("a", "STARTED", Json(b"{}")))

    backend.store_many([started, failed("a"), returned("a"), started])

    assert read(backend, "a") == {"a": success("a")}


def test_more_than_one_trip_carries_are_stored(
    backend: RedisBackend, trips: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "_MAX_BATCH_BYTES", MIB)
    long = "x" * (600 * 1024)

    backend.store_many([*[returned(f"long-{number}", long) for number in range(5)], returned("short")])

    assert [len(commands) for commands in trips] == [2, 2, 2]
    assert len(read(backend, *[f"long-{number}" for number in range(5)], "short")) == 6


@pytest.mark.parametrize(
    ("settings", "lives_for"),
    [({}, 86_400), ({"result_expires": 0}, -1), ({"result_failure_expires": 1000}, 1000)],
)
def test_a_result_lives_as_long_as_the_settings_say(
    redis_url: str, client: redis.Redis, ends: ExitStack, *, settings: dict[str, Any], lives_for: int
) -> None:
    client.set(key("a"), "older", ex=50)

    new_backend(redis_url, ends, **settings).store_many([failed("a")])

    ttl = client.ttl(key("a"))
    assert isinstance(ttl, int)
    assert lives_for - PATIENCE <= ttl <= lives_for


def test_one_that_cannot_be_spelled_keeps_no_other_from_being_stored(backend: RedisBackend) -> None:
    odd = StoredResult(success("odd", {1}))

    with pytest.raises(CallerError, match="task odd"):
        backend.store_many([returned("a"), odd, returned("b")])

    assert read(backend, "a", "b", "odd").keys() == {"a", "b"}


@pytest.mark.parametrize("version", PEERS)
def test_celery_reads_what_is_stored_so(version: str) -> None:
    metas = [
        ResultMeta(
            "a", "SUCCESS", Json('{"é": [1, 2.5, null]}'.encode()), date_done="2026-11-15T00:50:25+00:00"
        ),
        ResultMeta("b", "FAILURE", FAILURE, "Traceback …", group_id="g", parent_id="p"),
    ]
    documents = {meta.task_id: b64encode(encode(meta)).decode() for meta in metas}

    done = subprocess.run(  # noqa: S603 - our own program
        [str(peer(version)), str(DOCUMENTS)],
        input=json.dumps({"do": "read", "documents": documents}) + "\n",
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    )

    told = json.loads(done.stdout)
    assert (told["a"]["state"], told["a"]["value"]) == ("SUCCESS", repr({"é": [1, 2.5, None]}))
    assert (told["b"]["state"], told["b"]["kind"]) == ("FAILURE", "builtins.ValueError")
    assert (told["b"]["value"], told["b"]["group_id"]) == ("('planned',)", "g")


# -- a success is never overwritten


@pytest.mark.parametrize(
    "stored",
    [
        '{"status": "SUCCESS", "result": 4}',
        '{"status":"SUCCESS","result":4}',
        '{"result": 4, "status": "SUCCESS"}',
        '\n{ "status" : "SUCCESS" , "result" : 4 }',
        '{"result": "%s", "status": "SUCCESS"}' % ("x" * 100_000),
        pack(b'{"status": "SUCCESS", "result": 4}', "gzip"),
    ],
)
def test_a_success_is_not_overwritten_however_it_is_spelled(
    backend: RedisBackend, client: redis.Redis, stored: str | bytes
) -> None:
    client.set(key("a"), stored)

    backend.store_many([failed("a"), returned("a"), returned("b")])

    assert client.get(key("a")) == (stored.encode() if isinstance(stored, str) else stored)
    assert read(backend, "b") == {"b": success("b")}


@pytest.mark.parametrize(
    "stored",
    [
        '{"status": "STARTED", "result": "SUCCESS"}',
        '{"status":"FAILURE","result":{"exc_type":"ValueError","exc_message":[]}}',
        '{"status": "SUCCESSFUL"}',
        '{"result": "{\\"status\\": \\"SUCCESS\\"", "status": "RETRY"}',
        '["SUCCESS"]',
        '"SUCCESS"',
        "nonsense",
        "",
        "[" * 5000,
        pack(b'{"status": "STARTED"}', "bzip2"),
        b"\x00celery-compressed\x00damaged",
    ],
)
def test_anything_else_is_overwritten(
    backend: RedisBackend, client: redis.Redis, stored: str | bytes
) -> None:
    client.set(key("a"), stored)

    backend.store_many([returned("a")])

    assert read(backend, "a") == {"a": success("a")}


def test_what_is_no_text_at_all_is_overwritten(backend: RedisBackend, client: redis.Redis) -> None:
    client.rpush(key("a"), "a list")

    backend.store_many([returned("a")])

    assert read(backend, "a") == {"a": success("a")}


def test_with_compression_a_success_stands_and_anything_else_does_not(
    redis_url: str, ends: ExitStack
) -> None:
    backend = new_backend(redis_url, ends, result_compression="gzip")
    backend.store_many([failed("a"), returned("b", 4)])

    backend.store_many([returned("a"), returned("b", 5), returned("c")])

    found = read(backend, "a", "b", "c")
    assert [found[each].result for each in "abc"] == [3, 4, 3]


def test_to_store_the_same_success_again_is_fine(backend: RedisBackend, client: redis.Redis) -> None:
    meta = success("a")

    written = [store(backend).write_many([meta], timeout=PATIENCE) for _ in range(2)]

    assert written == [[True], [True]]
    assert store(backend).write_many([success("a", 4)], timeout=PATIENCE) == [False]
    assert client.dbsize() == 1


def test_of_many_who_store_a_success_at_once_one_does(backend: RedisBackend) -> None:
    writers = 8
    barrier = Barrier(writers)

    def do(number: int) -> bool:
        barrier.wait(PATIENCE)
        return store(backend).write_many([success("a", number)], timeout=PATIENCE)[0]

    with ThreadPoolExecutor(writers) as pool:
        done = list(pool.map(do, range(writers)))

    assert done.count(True) == 1
    assert read(backend, "a") == {"a": success("a", done.index(True))}


# -- servers that refuse scripts


@pytest.mark.parametrize("rule", ["-@scripting", "-eval -evalsha"])
def test_where_scripts_are_not_allowed_results_are_stored_without(
    own_redis: RedisServer, ends: ExitStack, rule: str, trips: list[list[str]]
) -> None:
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", *rule.split())
    backend = new_backend(f"redis://plain:pw@{LOOPBACK}:{own_redis.port}/0", ends)

    backend.store_many([returned("a"), failed("b")])
    backend.store_many([returned("b", 4), failed("a")])

    found = read(backend, "a", "b")
    assert (found["a"].result, found["b"].result) == (3, 4)
    assert sum("EVAL" in commands for commands in trips) == 1


def test_where_scripts_have_no_name_results_are_stored_without(ends: ExitStack) -> None:
    server = ends.enter_context(RedisServer({"rename-command": 'EVAL ""'}))
    backend = new_backend(server.url, ends)

    backend.store_many([returned("a"), failed("b")])

    assert read(backend, "a", "b").keys() == {"a", "b"}


@pytest.mark.parametrize("command", ["publish", "setex", "get"])
def test_what_a_script_may_not_do_is_refused_as_without_one(
    own_redis: RedisServer, ends: ExitStack, command: str
) -> None:
    refused = {"get": "-get -mget"}.get(command, f"-{command}").split()
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "less", "on", ">pw", "~*", "&*", "+@all", *refused)
    backend = new_backend(f"redis://less:pw@{LOOPBACK}:{own_redis.port}/0", ends)

    with pytest.raises(AccessRefused):
        backend.store_many([returned("a")], timeout=PATIENCE)

    with own_redis.client() as client:
        assert client.dbsize() == 0


# -- links that break


def test_results_are_stored_once_the_server_is_back(
    own_redis: RedisServer, own_backend: RedisBackend
) -> None:
    own_backend.store_many([returned("before")])
    own_redis.kill()
    starter = Thread(target=own_redis.start)
    starter.start()

    own_backend.store_many([returned(str(number)) for number in range(20)])

    starter.join()
    assert len(read(own_backend, *map(str, range(20)))) == 20


def test_what_could_not_be_stored_in_time_is_raised(
    own_redis: RedisServer, own_backend: RedisBackend
) -> None:
    own_redis.kill()

    with pytest.raises(ConnectionLost):
        own_backend.store_many([returned("a")], timeout=0.1)

    own_redis.start()
    assert read(own_backend, "a") == {}


def test_a_batch_whose_answer_was_lost_is_stored_again(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = RedisLink.exchange
    lost: list[RedisLink] = []

    def lose(link: RedisLink, commands: Any, *, timeout: float) -> list[Any]:
        answers = exchange(link, commands, timeout=timeout)
        if not lost:
            lost.append(link)
            raise ConnectionLost("on purpose")
        return answers

    monkeypatch.setattr(RedisLink, "exchange", lose)

    backend.store_many([returned("a"), failed("b")])

    assert len(lost) == 1
    found = read(backend, "a", "b")
    assert (found["a"].result, found["b"].status) == (3, "FAILURE")


def test_a_server_that_forgot_the_script_gets_it_again(backend: RedisBackend, client: redis.Redis) -> None:
    backend.store_many([returned("a"), returned("b")])

    client.script_flush()
    backend.store_many([returned("c"), returned("d")])

    assert len(read(backend, *"abcd")) == 4


# -- results as messages


@pytest.fixture
def rpc(amqp_url: str, ends: ExitStack) -> RpcBackend:
    """A client that waits for results as messages of RabbitMQ."""
    app = Celeriac(amqp_url, "rpc://", environ={}, broker_retry_base=0.01, broker_retry_cap=0.05)
    ends.callback(app.close)
    assert isinstance(app.backend, RpcBackend)
    return app.backend


def test_many_results_are_sent_to_who_waits_for_them(rpc: RpcBackend) -> None:
    reply_to = rpc.reply_to
    results = [returned(str(number), number)._replace(reply_to=reply_to) for number in range(50)]

    rpc.store_many(results)

    def found() -> dict[str, ResultMeta]:
        return rpc.read(list(map(str, range(50))), timeout=PATIENCE)

    assert wait_until(lambda: len(found()) == 50, patience=PATIENCE)
    assert {task_id: meta.result for task_id, meta in found().items()} == {
        str(each): each for each in range(50)
    }


def test_a_result_that_nobody_awaits_is_sent_nowhere(rpc: RpcBackend) -> None:
    rpc.store_many([returned("a"), returned("b")._replace(reply_to="no.such.queue")])

    assert rpc.read(["a", "b"], timeout=PATIENCE) == {}


def test_a_message_that_cannot_be_spelled_keeps_no_other_from_being_sent(rpc: RpcBackend) -> None:
    reply_to = rpc.reply_to

    with pytest.raises(CallerError, match="task odd"):
        rpc.store_many([StoredResult(success("odd", {1}), reply_to), StoredResult(success("a"), reply_to)])

    assert wait_until(lambda: "a" in rpc.read(["a"], timeout=PATIENCE), patience=PATIENCE)
