"""Results travel both ways between us and real Celery, over Redis and as replies."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from celeriac import Celeriac
from celeriac.errors import RemoteError, TaskRevoked
from celeriac.node.result import AsyncResult
from celeriac.node.rpc_backend import RpcBackend
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from celeriac.testing.rabbit import RabbitNode
from tests.live import IS_LONG, PEER_APP, PEERS, peer

PATIENCE = 60.0

#: A client of Celery's own: sends tasks by the words on its input, and says as JSON what it is told to.
_CLIENT = """
import json, sys
import app as peers
told = json.loads(sys.argv[1])
if told["do"] == "send":
    made = peers.app.signature(told["task"], args=told["arguments"])
    result = made.apply_async(
        task_id=told["id"], reply_to=told["reply_to"] or None, countdown=told["countdown"]
    )
    print(json.dumps(result.id))
elif told["do"] == "canvas":
    result = getattr(peers, told["canvas"])(3).apply_async()
    parents, node = [], result
    while node is not None:
        parents.append(node.id); node = node.parent
    print(json.dumps(parents))
else:
    result = peers.app.AsyncResult(told["id"])
    try:
        value, error = result.get(timeout=30), None
    except Exception as raised:
        value, error = None, [type(raised).__module__, type(raised).__name__, list(map(str, raised.args))]
    print(json.dumps([result.state, value, error, result.traceback, str(result.date_done)]))
"""


class Client:
    """Celery's client, in a process of its own each time."""

    def __init__(self, python: Path, broker: str, backend: str) -> None:
        self._command = [str(python), "-c", _CLIENT]
        self._environment = {"CELERY_BROKER_URL": broker, "CELERY_RESULT_BACKEND": backend}

    def do(self, do: str, **told: Any) -> Any:
        done = subprocess.run(  # noqa: S603 - our own command
            [*self._command, json.dumps({"do": do} | told)],
            env=self._environment,
            cwd=PEER_APP.parent,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class Pair:
    """Our app and Celery's client, with one worker of Celery's between them."""

    def __init__(self, app: Celeriac, client: Client) -> None:
        self.app = app
        self._client = client

    def send(self, task: str, *arguments: object, countdown: float | None = None) -> AsyncResult:
        """Let Celery send a task whose result is ours."""
        backend = self.app.backend
        reply_to = backend.reply_to if isinstance(backend, RpcBackend) else ""
        told = {"task": f"peers.{task}", "arguments": arguments, "id": str(uuid4()), "reply_to": reply_to}
        return self.app.AsyncResult(self._client.do("send", countdown=countdown, **told))

    def canvas(self, name: str) -> list[str]:
        """Let Celery send tasks that belong together, and return the id of the last and of its parents."""
        ids: list[str] = self._client.do("canvas", canvas=name)
        return ids

    def get(self, task_id: str) -> list[Any]:
        """Let Celery's client wait for a result: state, value, error, traceback and when."""
        told: list[Any] = self._client.do("get", id=task_id)
        return told


#: Versions of Celery, and how results travel; in the short form each version and each way.
EVERY = (
    [(version, way) for way in ("redis", "rpc") for version in reversed(PEERS)]
    if IS_LONG
    else [("5.7", "redis"), ("5.6", "rpc")]
)
OVER_REDIS = [(version, way) for version, way in EVERY if way == "redis"]
#: Who reads what we stored, in which form. Older ones know of no compression.
READERS = [("5.6", None), ("5.7", None), ("5.7", "gzip"), ("5.7", "bzip2"), ("5.7", "lzma")]


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """Nobody else empties it."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, own_server: RedisServer, rabbit_server: RabbitNode
) -> Iterator[Pair]:
    """One worker for all tests of a version and a way: each test has its own tasks."""
    version, way = request.param
    url = own_server.url_of(PEERS.index(version)) if way == "redis" else rabbit_server.url
    backend = url if way == "redis" else "rpc://"
    app = Celeriac(url, backend=backend)
    # Celery: two processes of a pool may store RETRY over the SUCCESS of the next attempt.
    with CeleryWorker(peer(version), PEER_APP, url=url, backend=backend, concurrency=1) as worker:
        yield Pair(app, Client(peer(version), url, backend))
        worker.kill()
    app.close()


@pytest.fixture
def pair_without_worker(version: str, redis_url: str) -> Iterator[Pair]:
    app = Celeriac(redis_url, backend=redis_url)
    yield Pair(app, Client(peer(version), redis_url, redis_url))
    app.close()


@pytest.mark.parametrize("pair", EVERY, indirect=True)
def test_what_a_celery_worker_returns_fails_with_or_says_meanwhile_arrives(pair: Pair) -> None:
    seen: list[str] = []
    added = pair.send("add", 2, 3)
    failed = pair.send("fail", "on purpose")
    retried = pair.send("retry_then_succeed")

    assert added.get(timeout=PATIENCE, on_message=lambda meta: seen.append(meta.status)) == 5
    with pytest.raises(RemoteError, match="ValueError: on purpose") as caught:
        failed.get(timeout=PATIENCE)
    assert retried.get(timeout=PATIENCE) == 2
    assert seen[-1] == "SUCCESS"
    assert set(seen) <= {"STARTED", "SUCCESS"}
    assert (caught.value.exc_type, caught.value.exc_module) == ("ValueError", "builtins")
    assert "raise ValueError" in (caught.value.traceback or "")
    assert failed.state == "FAILURE"
    # Celery: before 5.7 a reply does not say when.
    if not isinstance(pair.app.backend, RpcBackend):
        assert added.date_done is not None


@pytest.mark.parametrize("pair", OVER_REDIS, indirect=True)
def test_the_tasks_of_a_chain_a_group_and_a_chord_are_known_by_their_ids(pair: Pair) -> None:
    last, middle, first = pair.canvas("a_chain")
    body = pair.canvas("a_chord")[0]

    assert pair.app.AsyncResult(last).get(timeout=PATIENCE) == 3
    assert pair.app.AsyncResult(body).get(timeout=PATIENCE) == 6
    result = pair.app.AsyncResult(first)
    assert result.get(timeout=PATIENCE) == 1
    [child] = result.children
    assert isinstance(child, AsyncResult)
    assert child.id == middle


@pytest.mark.parametrize("pair", OVER_REDIS, indirect=True)
def test_a_task_that_was_revoked_says_so(pair: Pair) -> None:
    # Celery: tells what was revoked at the moment it was to run. Until then it must have heard of it.
    result = pair.send("add", 1, 1, countdown=5)

    result.revoke()

    with pytest.raises(TaskRevoked, match=result.id):
        result.get(timeout=PATIENCE)


@pytest.mark.parametrize(("version", "compression"), READERS if IS_LONG else READERS[:3])
def test_celerys_clients_read_what_we_store(pair_without_worker: Pair, compression: str | None) -> None:
    pair = pair_without_worker
    url = pair.app.conf.broker_url
    app = Celeriac(url, backend=url, result_compression=compression)
    try:
        app.backend.store_result("ours", {"text": "ünï", "numbers": [1, 2.5, None]})
        app.backend.store_result("ours-failed", ValueError("no", 3), "FAILURE", traceback="at line 1")
        mine = app.AsyncResult("ours").get(timeout=PATIENCE)
    finally:
        app.close()

    assert mine == {"text": "ünï", "numbers": [1, 2.5, None]}
    state, value, error, _, when = pair.get("ours")
    assert (state, value, error) == ("SUCCESS", mine, None)
    assert when.startswith("20")
    state, value, error, trace, _ = pair.get("ours-failed")
    assert (state, error, trace) == ("FAILURE", ["builtins", "ValueError", ["no", "3"]], "at line 1")


@pytest.mark.parametrize("pair", OVER_REDIS, indirect=True)
def test_a_worker_of_celerys_and_we_never_undo_a_success(pair: Pair) -> None:
    done = pair.send("add", 2, 2)
    assert done.get(timeout=PATIENCE) == 4

    has_stored = pair.app.backend.store_result(done.id, ValueError("late"), "FAILURE")

    assert not has_stored
    assert pair.app.AsyncResult(done.id).get(timeout=PATIENCE) == 4


#: Waits as Celery's client does, for a reply that we send.
_WAITING_CLIENT = """
import json
import app as peers
from celery.result import AsyncResult
backend = peers.app.backend
with peers.app.pool.acquire_channel(block=True) as (_, channel):
    backend.binding(channel).declare()
print(json.dumps(backend.oid), flush=True)
print(json.dumps(AsyncResult("ours", app=peers.app).get(timeout=60)), flush=True)
"""


def test_celerys_client_gets_a_reply_of_ours(peer_python: Path, amqp_url: str) -> None:
    environment = {"CELERY_BROKER_URL": amqp_url, "CELERY_RESULT_BACKEND": "rpc://"}
    client = subprocess.Popen(  # noqa: S603 - our own command
        [str(peer_python), "-c", _WAITING_CLIENT],
        env=environment,
        cwd=PEER_APP.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    app = Celeriac(amqp_url, backend="rpc://")
    with client:
        assert client.stdout is not None
        queue = json.loads(client.stdout.readline())

        app.backend.store_result("ours", [1, "two"], reply_to=queue)

        assert json.loads(client.stdout.readline()) == [1, "two"]
    app.close()
