"""Tasks travel both ways: our client calls workers of Celery, and we read what clients of Celery send."""

import json
import subprocess
from collections.abc import Iterator
from datetime import datetime
from time import time
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection as KombuConnection

from celeriac import Celeriac
from celeriac.errors import RemoteError, Retry, TaskRevoked
from celeriac.model.message import Delivery, Queue
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.node.context import Context, running
from celeriac.node.following import after_failure, after_success
from celeriac.node.sender import TaskSender
from celeriac.testing.peers import CeleryWorker
from celeriac.wire.names import task_queue
from celeriac.wire.task_request import decode, read_body
from tests.interop.conftest import Pair
from tests.live import PEER_APP
from tests.watcher import PATIENCE, Watcher

MAX_BYTES = 1_000_000

#: What a client of Celery's does begins so, and ends with what it says.
_PROGRAM = """
import json
import app as peers
from celery import chain, chord, group
from celery._state import _task_stack
from celery.app.task import Context
add, total, echo, retry = peers.add, peers.total, peers.echo, peers.retry_then_succeed
{program}
print(json.dumps(told))
"""


def celery(pair: Pair, program: str) -> Any:
    """Have a client of Celery's do something, and return what it ``told``."""
    done = subprocess.run(  # noqa: S603 - our own command
        [str(pair.python), "-c", _PROGRAM.format(program=program)],
        env={"CELERY_BROKER_URL": pair.url, "CELERY_RESULT_BACKEND": pair.backend},
        cwd=PEER_APP.parent,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def worker(pair: Pair) -> Iterator[CeleryWorker]:
    """One worker of Celery's for all tests of a version and a broker: each test has its own tasks."""
    with pair.worker() as started:
        yield started


@pytest.fixture(scope="module")
def app(pair: Pair) -> Iterator[Celeriac]:
    made = Celeriac(pair.url, pair.backend, environ={}, task_send_sent_event=True)
    made.task(name="peers.retry_then_succeed")(lambda: None)
    yield made
    made.close()


@pytest.fixture
def spy() -> str:
    """A queue that nobody consumes from."""
    return f"spy-{uuid4().hex}"


def taken(app: Celeriac, queue: str, number: int) -> list[Delivery]:
    """Take messages out of a queue."""
    found: list[Delivery] = []
    with app.connection() as connection:
        connection.consume(task_queue(app.conf, queue), found.append, prefetch=100)
        deadline = time() + PATIENCE
        while len(found) < number and time() < deadline:
            connection.drain(1.0)
        for delivery in found:
            connection.accept(delivery)
        connection.drain(0.0)
    assert len(found) == number
    return found


def requests(app: Celeriac, queue: str, number: int) -> list[TaskRequest]:
    return [decode(each.message, max_bytes=MAX_BYTES) for each in taken(app, queue, number)]


# -- our client, workers of Celery


@pytest.mark.usefixtures("worker")
def test_a_worker_of_celerys_runs_what_we_send(app: Celeriac) -> None:
    add = app.task(name="peers.add")(lambda x, y: x + y)

    by_task = add.delay(2, 3)
    by_name = app.send_task("peers.add", kwargs={"x": 5, "y": 6}, task_id=f"mine-{uuid4()}")
    by_signature = app.signature("peers.add", (4,)).delay(1)
    failed = app.send_task("peers.fail", ["on purpose"])

    assert by_task.get(timeout=PATIENCE) == 5
    assert by_name.get(timeout=PATIENCE) == 11
    assert by_name.id.startswith("mine-")
    assert by_signature.get(timeout=PATIENCE) == 5
    with pytest.raises(RemoteError, match="ValueError: on purpose"):
        failed.get(timeout=PATIENCE)


@pytest.mark.usefixtures("worker")
def test_a_worker_of_celerys_waits_for_the_moment_and_not_beyond_it(app: Celeriac) -> None:
    began_at = time()

    later = app.send_task("peers.echo", ["later"], countdown=1)
    too_late = app.send_task("peers.echo", ["too late"], eta=began_at + 1, expires=0.5)

    assert later.get(timeout=PATIENCE) == "later"
    assert datetime.fromisoformat(str(later.date_done)).timestamp() >= began_at + 1
    with pytest.raises(TaskRevoked):
        too_late.get(timeout=PATIENCE)


@pytest.mark.usefixtures("worker")
def test_a_worker_of_celerys_calls_back(app: Celeriac, spy: str) -> None:
    called = app.signature("peers.add", (10,), task_id=str(uuid4()))
    told = app.signature("elsewhere.note", ("it failed",), queue=spy)

    app.send_task("peers.add", [1, 2], link=called)
    failed = app.send_task("peers.fail", link_error=[told])

    assert app.AsyncResult(called.options["task_id"]).get(timeout=PATIENCE) == 13
    [request] = requests(app, spy, 1)
    assert (request.task, read_body(request.body).args) == ("elsewhere.note", (failed.id, "it failed"))
    assert (request.root_id, request.parent_id) == (failed.id, failed.id)


def test_what_is_hidden_is_seen_by_nobody(app: Celeriac, worker: CeleryWorker) -> None:
    secret = 987654321
    with Watcher(app) as watcher:
        result = app.send_task("peers.total", [[secret, -1]], argsrepr="(…)")
        assert result.get(timeout=PATIENCE) == secret - 1
        # The event of the sending goes by another link than those of the worker.
        watcher.wait_for(lambda: min(watcher.types[each] for each in ("task-sent", "task-succeeded")) > 0)

    assert {"task-sent", "task-received"} <= {event.type for event in watcher.events}
    assert watcher.state.tasks[result.id].args == "(…)"
    assert str(secret) not in repr(watcher.events)
    assert str(secret) not in worker.log()


def test_our_messages_have_what_those_of_celery_have(app: Celeriac, pair: Pair, spy: str) -> None:
    celery(pair, f"told = add.apply_async((1, 2), queue={spy!r}, expires=60, countdown=5, priority=4).id")
    app.send_task("peers.add", (1, 2), queue=spy, expires=60, countdown=5, priority=4)

    with KombuConnection(pair.url) as link, link.channel() as channel:
        theirs, ours = (channel.basic_get(spy, no_ack=True) for _ in range(2))

    skipped = {"id", "root_id", "eta", "expires", "origin", "ignore_result"}
    assert theirs.headers.keys() == ours.headers.keys()
    assert {k: v for k, v in theirs.headers.items() if k not in skipped} == {
        k: v for k, v in ours.headers.items() if k not in skipped
    }
    assert (ours.content_type, ours.content_encoding) == (theirs.content_type, theirs.content_encoding)
    for name in ("delivery_mode", "priority"):
        assert ours.properties[name] == theirs.properties[name]
    assert ours.properties["correlation_id"] == ours.headers["id"]
    assert json.loads(_bytes(ours.body)) == json.loads(_bytes(theirs.body))
    if pair.broker == "amqp":
        assert 0 < int(ours.properties["expiration"]) <= 60_000
        assert (ours.delivery_info["exchange"], ours.delivery_info["routing_key"]) == ("", spy)


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)


def test_urgent_tasks_come_first(pair: Pair, spy: str) -> None:
    with_priorities = Celeriac(pair.url, environ={}, task_queue_max_priority=10)
    # Celery: on Redis 0 is the most urgent, on RabbitMQ the least.
    first, second = (0, 9) if pair.broker == "redis" else (9, 0)

    with_priorities.send_task("peers.echo", ["second"], queue=spy, priority=second)
    with_priorities.send_task("peers.echo", ["first"], queue=spy, priority=first)

    found = taken(with_priorities, spy, 2)
    assert [read_body(each.message.body).args for each in found] == [("first",), ("second",)]
    assert [each.message.priority for each in found] == [first, second]
    with_priorities.close()


# -- clients of Celery, read by us


def test_what_a_client_of_celerys_says_of_a_task_is_read(app: Celeriac, pair: Pair, spy: str) -> None:
    began_at = time()

    task_id = celery(
        pair,
        f"told = add.apply_async((1,), dict(y=2), queue={spy!r}, countdown=30, expires=90, priority=3,"
        " shadow='quick', time_limit=20, soft_time_limit=10, headers=dict(trace='00-ab'),"
        " argsrepr='(hidden)', ignore_result=True, link=echo.s(), link_error=total.s(), retries=1).id",
    )

    [delivery] = taken(app, spy, 1)
    request = decode(delivery.message, max_bytes=MAX_BYTES)
    assert (request.id, request.task, request.root_id, request.parent_id) == (
        task_id,
        "peers.add",
        task_id,
        None,
    )
    assert (request.shadow, request.retries, request.ignore_result) == ("quick", 1, True)
    assert (request.time_limit, request.soft_time_limit) == (20, 10)
    assert (request.argsrepr, request.kwargsrepr) == ("(hidden)", "{'y': 2}")
    assert request.headers == {"trace": "00-ab"}
    assert began_at + 30 <= (request.eta or 0) <= time() + 30
    assert began_at + 90 <= (request.expires or 0) <= time() + 90
    assert (request.origin or "").startswith("gen")
    assert (request.correlation_id, bool(request.reply_to)) == (task_id, True)
    assert (delivery.message.priority, delivery.message.routing_key) == (3, spy)
    arguments = read_body(request.body)
    assert (arguments.args, arguments.kwargs) == ((1,), {"y": 2})
    assert [each["task"] for each in (*arguments.callbacks, *arguments.errbacks)] == [
        "peers.echo",
        "peers.total",
    ]


def test_values_that_json_has_no_spelling_for_are_read(app: Celeriac, pair: Pair, spy: str) -> None:
    told = celery(
        pair,
        "import datetime, decimal, uuid\n"
        "values = [datetime.datetime(2026, 11, 15, 1, 2, tzinfo=datetime.timezone.utc),"
        " datetime.date(2026, 11, 15), decimal.Decimal('1.50'), uuid.UUID(int=7), float('inf')]\n"
        f"echo.apply_async((values,), queue={spy!r})\n"
        "told = list(map(repr, values))",
    )

    [request] = requests(app, spy, 1)
    [values] = read_body(request.body).args
    assert list(map(repr, values)) == told


def test_the_tasks_of_a_group_and_a_chord_are_read(app: Celeriac, pair: Pair, spy: str) -> None:
    group_id, body_id = celery(
        pair,
        f"tasks = [add.s(n, n).set(queue={spy!r}) for n in range(2)]\n"
        f"told = [group(tasks).apply_async().id, chord(tasks)(total.s().set(queue={spy!r})).id]",
    )

    *of_group, first, second = requests(app, spy, 4)
    assert {request.group_id for request in of_group} == {group_id}
    assert sorted(request.group_index or 0 for request in of_group) == [0, 1]
    assert first.group_id == second.group_id != group_id
    chord = read_body(first.body).chord or {}
    assert (chord["task"], chord["options"]["task_id"]) == ("peers.total", body_id)


def test_a_task_of_protocol_1_is_read(app: Celeriac, pair: Pair, spy: str) -> None:
    task_id = celery(
        pair,
        "peers.app.conf.task_protocol = 1\n"
        f"told = add.apply_async((1,), dict(y=2), queue={spy!r}, countdown=30, time_limit=20, retries=1).id",
    )

    [request] = requests(app, spy, 1)
    assert (request.id, request.task, request.retries, request.time_limit) == (task_id, "peers.add", 1, 20)
    assert (request.argsrepr, request.kwargsrepr) == ("(1,)", "{'y': 2}")
    assert abs((request.eta or 0) - time() - 30) < PATIENCE
    arguments = read_body(request.body)
    assert (arguments.args, arguments.kwargs) == ((1,), {"y": 2})


def test_the_next_try_of_celerys_and_ours_are_alike(app: Celeriac, pair: Pair, spy: str) -> None:
    context = (
        "id='t1', task=retry.name, args=[], kwargs={}, retries=1, called_directly=False, hostname='w@x',"
        f" delivery_info=dict(exchange='', routing_key={spy!r}, priority=2), headers=dict(mine=1),"
        " timelimit=[20, 10], root_id='t0', origin='gen1@x', reply_to='here', correlation_id='t1'"
    )
    celery(
        pair,
        f"retry.apply_async(task_id='t1', queue={spy!r}, root_id='t0', retries=1, time_limit=20,"
        " soft_time_limit=10, headers=dict(mine=1), reply_to='here', priority=2)\n"
        f"retry.request_stack.push(Context({context}))\n"
        "_task_stack.push(retry)\n"
        "try: retry.retry(countdown=30)\n"
        "except Exception as error: told = type(error).__name__",
    )
    first, theirs = requests(app, spy, 2)
    run = Context(first, read_body(first.body), routing_key=spy, priority=2)

    with running(run):
        again = _retry(app)

    assert again.request._replace(**_same(theirs)) == theirs
    assert abs((again.request.eta or 0) - (theirs.eta or 0)) < PATIENCE
    assert (again.routing_key, again.priority, again.request.retries) == (spy, 2, 2)


def _same(theirs: TaskRequest) -> dict[str, Any]:
    """Return what may differ: when it was made, by whom, and how the spaces are in its body."""
    return {name: getattr(theirs, name) for name in ("eta", "origin", "body", "ignore_result")}


def _retry(app: Celeriac) -> Posting:
    """Return what a worker of ours would send if the task that runs asked to be tried again."""
    with pytest.raises(Retry) as caught:
        app.tasks["peers.retry_then_succeed"].retry(countdown=30)
    assert isinstance(caught.value.posting, Posting)
    return caught.value.posting


@pytest.mark.usefixtures("worker")
def test_a_worker_of_celerys_goes_on_where_we_tried_first(app: Celeriac, pair: Pair, spy: str) -> None:
    task_id = celery(pair, f"told = retry.apply_async(queue={spy!r}).id")
    [request] = requests(app, spy, 1)
    run = Context(request, read_body(request.body), routing_key="celery")

    with running(run):
        posting = _retry(app)
    with running(Context(posting.request, run.arguments, routing_key="celery")):
        posting = _retry(app)
    _send(app, posting._replace(request=posting.request._replace(eta=None)))

    assert app.AsyncResult(task_id).get(timeout=PATIENCE) == 2


@pytest.mark.usefixtures("worker")
def test_a_worker_of_celerys_goes_on_with_a_chain_that_we_began(app: Celeriac, pair: Pair, spy: str) -> None:
    first = f"add.s(0, 1).set(queue={spy!r})"
    celery(pair, f"told = chain({first}, add.s(1), group(add.s(1), add.s(2))).apply_async().id")
    [request] = requests(app, spy, 1)
    arguments = read_body(request.body)

    following = after_success(request, arguments, 1, settings=app.conf)
    _send(app, *following.postings)

    [child] = following.children
    assert app.AsyncResult(child.id).get(timeout=PATIENCE) == 2
    ids = celery(pair, f"told = [r.id for r in peers.app.AsyncResult({child.id!r}).children[0].results]")
    assert [app.AsyncResult(each).get(timeout=PATIENCE) for each in ids] == [3, 4]


@pytest.mark.usefixtures("worker")
def test_a_worker_of_celerys_runs_what_follows_a_task_of_ours(app: Celeriac, pair: Pair, spy: str) -> None:
    celery(
        pair,
        f"told = add.apply_async((1, 2), queue={spy!r}, link=[add.s(10), group(add.s(20), add.s(30)),"
        f" add.s(0, 1) | add.s(2)], link_error=[echo.s()]).id",
    )
    [request] = requests(app, spy, 1)
    arguments = read_body(request.body)

    well = after_success(request, arguments, 3, settings=app.conf)
    badly = after_failure(request, arguments, settings=app.conf)
    _send(app, *well.postings, *badly.postings)

    results = {
        posting.request.id: app.AsyncResult(posting.request.id).get(timeout=PATIENCE)
        for posting in (*well.postings, *badly.postings)
        if posting.request.task != "peers.add" or not read_body(posting.request.body).chain
    }
    assert sorted(map(str, results.values())) == sorted(["13", "23", "33", request.id])


def _send(app: Celeriac, *postings: Posting) -> None:
    sender = TaskSender(app.connection, settings=app.conf)
    sender.post(postings)
    sender.close()


def test_a_queue_of_ours_is_that_of_celerys(app: Celeriac, pair: Pair, spy: str) -> None:
    app.send_task("peers.echo", ["ours"], queue=spy)
    celery(pair, f"told = echo.apply_async(('theirs',), queue={spy!r}).id")

    found = requests(app, spy, 2)

    assert [read_body(each.body).args for each in found] == [("ours",), ("theirs",)]
    assert task_queue(app.conf, spy) == Queue(
        *task_queue(app.conf, spy)[:2], spy, is_durable=True, is_exclusive=False, is_auto_deleted=False,
        max_bytes=app.conf.task_max_bytes,
    )  # fmt: skip
