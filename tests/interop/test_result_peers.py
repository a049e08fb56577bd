"""Results between a real Celery and our links: its workers reply to us, and its clients read our replies."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from celeriac.config import Settings
from celeriac.model.message import Exchange, Message, Queue
from celeriac.model.result import Failure, ResultMeta
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect
from celeriac.transport.result_link import ResultLink
from tests.links import PATIENCE, Place, Replies, arrivals, confirm, success
from tests.live import StartWorker

#: Celery's own names for where tasks are sent.
TASKS = Exchange("celery", "direct", is_durable=True)
#: A client that sends a task nobody runs, says where it waits for the result, and prints what came.
CLIENT = """
import json, os
from celery import Celery
app = Celery(broker=os.environ["URL"], backend=os.environ["BACKEND"])
result = app.send_task("nobody.runs", (1, 2), queue="void")
print(result.id, flush=True)
try:
    told = result.get(timeout=60)
except Exception as error:
    told = [type(error).__name__, *error.args]
print(json.dumps([result.state, told]), flush=True)
"""


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is called back here ends with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["amqp_url", "redis_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Each broker, empty."""
    fixture: str = request.getfixturevalue(request.param)
    return fixture


def send_task(link: Connection, name: str, *arguments: object, reply_to: str, task_id: str = "") -> str:
    """Send a task as Celery does, and return its id."""
    task_id = task_id or str(uuid4())
    headers: dict[str, object] = {"lang": "py", "task": name, "id": task_id, "root_id": task_id}
    body = json.dumps([arguments, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    link.publish(
        TASKS,
        body.encode(),
        routing_key="celery",
        headers=headers,
        is_persistent=True,
        correlation_id=task_id,
        reply_to=reply_to,
    )
    assert link.unconfirmed(PATIENCE) == 0
    return task_id


# -- their workers


def ended(link: ResultLink, *task_ids: str) -> dict[str, ResultMeta]:
    """Drain until these tasks have ended, and return how."""
    found: dict[str, ResultMeta] = {}
    while not {*task_ids} <= found.keys():
        found |= {meta.task_id: meta for meta in arrivals(link, 1) if meta.is_ready}
    return found


def test_what_a_worker_replies_arrives(
    peer_python: Path, url: str, celery_worker: StartWorker, ends: ExitStack
) -> None:
    celery_worker(peer_python, url, backend="rpc://")
    replies = Replies(url, ends)
    link = replies.link()
    sender = ends.enter_context(connect(replies.settings))

    added = send_task(sender, "peers.add", 2, 3, reply_to=replies.queue_name)
    failed = send_task(sender, "peers.fail", "planned", reply_to=replies.queue_name)

    found = ended(link, added, failed)
    assert (found[added].status, found[added].result) == ("SUCCESS", 5)
    assert (found[failed].status, found[failed].result) == (
        "FAILURE",
        Failure("ValueError", ("planned",), "builtins"),
    )
    assert link.refused == {}


def test_what_a_worker_stores_in_redis_is_told_and_can_be_read(
    peer_python: Path, redis_url: str, celery_worker: StartWorker, ends: ExitStack
) -> None:
    celery_worker(peer_python, redis_url)
    place, task_id = Place(redis_url, ends), str(uuid4())
    link = place.link()
    sender = ends.enter_context(connect(Settings(broker_url=redis_url)))
    confirm(link, task_id)

    send_task(sender, "peers.add", 2, 3, reply_to="", task_id=task_id)

    told = ended(link, task_id)[task_id]
    assert (told.status, told.result) == ("SUCCESS", 5)
    assert place.store.read([task_id], timeout=PATIENCE) == {task_id: told}


# -- their clients


class Client:
    """A client of a real Celery that waits for a result."""

    def __init__(self, python: Path, url: str, backend: str, ends: ExitStack) -> None:
        environment = {"URL": url, "BACKEND": backend, "PYTHONWARNINGS": "ignore"}
        self._process = ends.enter_context(
            subprocess.Popen(  # noqa: S603 - our own program
                [str(python), "-c", CLIENT], env=environment, stdout=subprocess.PIPE, text=True
            )
        )
        ends.callback(self._process.kill)
        self.task_id = self._line()

    def told(self) -> Any:
        """Return the state it ended with, and what its caller got."""
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def task_of(url: str, ends: ExitStack) -> Message:
    """Return the message of the task that a client sent to nobody."""
    link = ends.enter_context(connect(Settings(broker_url=url)))
    messages: list[Message] = []
    void = Queue(
        "void",
        Exchange("void", "direct", is_durable=True),
        "void",
        is_durable=True,
        is_exclusive=False,
        is_auto_deleted=False,
    )
    link.subscribe(void, messages.append)
    deadline = monotonic() + PATIENCE
    while not messages:
        assert monotonic() < deadline
        link.drain(1.0)
    return messages[0]


def failure(task_id: str) -> ResultMeta:
    return ResultMeta(task_id, "FAILURE", Failure("KeyError", ("planned",), "builtins"), "Traceback…")


def test_a_client_gets_what_we_reply(peer_python: Path, url: str, ends: ExitStack) -> None:
    client = Client(peer_python, url, "rpc://", ends)
    task = task_of(url, ends)
    sender = Replies(url, ends).sender

    for meta in (ResultMeta(client.task_id, "STARTED", {"pid": 1}), success(client.task_id, [5, "ä"])):
        sender.send(
            meta,
            reply_to=task.reply_to,
            correlation_id=task.correlation_id,
            is_persistent=False,
            timeout=PATIENCE,
        )

    assert (task.correlation_id, len(task.reply_to)) == (client.task_id, 36)
    assert client.told() == ["SUCCESS", [5, "ä"]]


def test_a_client_gets_the_failure_that_we_reply(peer_python: Path, amqp_url: str, ends: ExitStack) -> None:
    client = Client(peer_python, amqp_url, "rpc://", ends)
    task = task_of(amqp_url, ends)

    Replies(amqp_url, ends).sender.send(
        failure(client.task_id),
        reply_to=task.reply_to,
        correlation_id=task.correlation_id,
        is_persistent=False,
        timeout=PATIENCE,
    )

    assert client.told() == ["FAILURE", ["KeyError", "planned"]]


@pytest.mark.parametrize("is_failure", [True, False])
def test_a_client_gets_what_we_store_in_redis(
    peer_python: Path, redis_url: str, ends: ExitStack, is_failure: bool
) -> None:
    client = Client(peer_python, redis_url, redis_url, ends)
    meta = failure(client.task_id) if is_failure else success(client.task_id, [5, "ä"])

    Place(redis_url, ends).write(meta)

    expected = ["FAILURE", ["KeyError", "planned"]] if is_failure else ["SUCCESS", [5, "ä"]]
    assert client.told() == expected
