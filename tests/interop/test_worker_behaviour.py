"""What Celery promises of tasks in a worker holds in ours, on each broker."""

import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

import pytest

from celeriac.errors import TaskRevoked
from celeriac.node.result import AsyncResult
from celeriac.testing.peers import CeleriacWorker
from tests.fleet import PATIENCE, batch, come_true, running
from tests.interop.conftest import BROKERS, paired
from tests.live import PEERS, peer
from tests.stage import Stage, lines
from tests.watcher import Watcher

COMMANDS = "terminate,rate_limit,time_limit,pool_grow,pool_shrink,add_consumer,cancel_consumer"
POOLS = ("threads", "processes")
MANY = 200


@dataclass
class Scene:
    """Workers that are there for all tests of a broker, each with a queue of its name."""

    broker: str
    stage: Stage
    watcher: Watcher
    #: Two at a time, and a queue that both take from.
    threads: CeleriacWorker
    processes: CeleriacWorker
    #: One at a time, and none ahead.
    narrow: CeleriacWorker
    #: Many at a time.
    gevent: CeleriacWorker

    def send(self, name: str, *args: Any, **options: Any) -> AsyncResult:
        return self.stage.send(name, *args, **options)

    def get(self, name: str, *args: Any, **options: Any) -> Any:
        """Run a task, and return what it returned or how it failed."""
        return self.send(name, *args, **options).get(timeout=PATIENCE, propagate=False)

    def told(self, type_: str, task_id: str) -> list[Any]:
        """Return the events of a type about a task."""
        return [event for event in self.watcher.of_type(type_) if event["uuid"] == task_id]


@pytest.fixture(scope="module", params=BROKERS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with paired(request, "5.7", request.param) as pair, ExitStack() as stack:
        stage = stack.enter_context(Stage.on(pair.url, pair.backend, task_queue_max_priority=10))
        shared = {"environment": {"CELERIAC_TASK_QUEUE_MAX_PRIORITY": "10"}}
        threads, processes = (
            stage.worker(f"{pool}@ours", "-Q", f"{pool},shared", "--allow", COMMANDS, pool=pool, **shared)
            for pool in POOLS
        )
        narrow = stage.worker("narrow@ours", "--prefetch-multiplier", "1", concurrency=1, **shared)
        gevent = stage.worker("gevent@ours", pool="gevent", concurrency=MANY, **shared)
        stack.enter_context(running(threads, processes, narrow, gevent))
        watcher = stack.enter_context(Watcher(stage.app))
        yield Scene(request.param, stage, watcher, threads, processes, narrow, gevent)


def text_of(error: Any) -> tuple[str, str]:
    """Return the kind and the text of a failure."""
    return error.exc_type, " ".join(map(str, error.exc_args))


# -- moments


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_with_an_eta_does_not_begin_before_it(scene: Scene, pool: str) -> None:
    eta = time() + 1.0

    ran_at = scene.get("now", eta=datetime.fromtimestamp(eta, UTC), queue=pool)

    assert ran_at >= eta


def test_a_task_that_expired_before_it_came_does_not_run(scene: Scene) -> None:
    sent = scene.send("now", expires=datetime.now(UTC) - timedelta(minutes=1), queue="threads")

    ended = sent.get(timeout=PATIENCE, propagate=False)

    assert isinstance(ended, TaskRevoked)
    scene.watcher.wait_for(
        lambda: [each["expired"] for each in scene.told("task-revoked", sent.id)] == [True]
    )


def test_a_task_that_expires_while_it_waits_for_its_moment_does_not_run(scene: Scene) -> None:
    ended = scene.get("now", countdown=0.4, expires=0.2, queue="threads")

    assert isinstance(ended, TaskRevoked)


def test_a_task_that_begins_before_it_expires_runs(scene: Scene) -> None:
    assert isinstance(scene.get("now", expires=3600, queue="threads"), float)


# -- revoked tasks


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_was_revoked_before_it_came_does_not_run(scene: Scene, pool: str) -> None:
    worker, task_id = getattr(scene, pool), secrets.token_hex(8)
    scene.stage.app.control.revoke(task_id, [worker.hostname], reply=True, timeout=PATIENCE)

    ended = scene.get("now", countdown=3600, task_id=task_id, queue=pool)

    assert isinstance(ended, TaskRevoked)


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_is_revoked_while_it_waits_for_its_moment_ends_at_once(scene: Scene, pool: str) -> None:
    sent = scene.send("now", countdown=3600, queue=pool)
    ask = scene.stage.ask(getattr(scene, pool))
    assert come_true(lambda: sent.id in str(ask.scheduled()))

    sent.revoke()
    ended = sent.get(timeout=PATIENCE, propagate=False)

    assert isinstance(ended, TaskRevoked)
    assert come_true(lambda: sent.id not in str(ask.scheduled()))


def test_a_task_in_a_process_can_be_terminated_and_the_pool_goes_on(scene: Scene) -> None:
    sent = scene.send("spin", queue="processes")
    assert come_true(lambda: sent.state == "STARTED")

    sent.revoke(terminate=True)
    ended = sent.get(timeout=PATIENCE, propagate=False)

    assert isinstance(ended, TaskRevoked)
    scene.watcher.wait_for(lambda: len(scene.told("task-revoked", sent.id)) == 1)
    (event,) = scene.told("task-revoked", sent.id)
    assert (event["terminated"], event["signum"]) == (True, signal.SIGTERM)
    assert isinstance(scene.get("now", queue="processes"), float)


# -- tries


def test_a_task_that_is_tried_again_moves_between_workers(scene: Scene) -> None:
    path = scene.get("hop", [], 2, queue="shared")

    assert set(path) == {scene.threads.hostname, scene.processes.hostname}


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_fails_after_its_last_try(scene: Scene, pool: str, tmp_path: Path) -> None:
    sent = scene.send("give_up", str(tmp_path / "tries"), queue=pool)

    ended = sent.get(timeout=PATIENCE, propagate=False)

    assert ended.exc_type == "MaxRetriesExceededError"
    assert lines(tmp_path / "tries") == ["try 0", "try 1", "try 2"]
    scene.watcher.wait_for(lambda: len(scene.told("task-failed", sent.id)) == 1)
    assert len(scene.told("task-retried", sent.id)) == 2


def test_what_a_task_ended_with_is_not_overwritten_by_its_earlier_tries(scene: Scene, tmp_path: Path) -> None:
    sent = [scene.send("give_up", str(tmp_path / "tries"), queue="shared") for _ in range(100)]

    ended = [each.get(timeout=PATIENCE, propagate=False) for each in sent]

    assert {error.exc_type for error in ended} == {"MaxRetriesExceededError"}
    assert {each.state for each in sent} == {"FAILURE"}


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_is_tried_again_by_itself_after_errors_it_named(scene: Scene, pool: str) -> None:
    assert scene.get("flaky", 2, queue=pool) == 2


def test_a_task_that_goes_on_failing_ends_with_its_own_error(scene: Scene) -> None:
    assert text_of(scene.get("flaky", 9, queue="threads")) == ("OSError", "planned")


# -- limits of time


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_takes_too_long_can_notice_it_and_tidy_up(scene: Scene, pool: str) -> None:
    assert scene.get("tidy_up", queue=pool) == "tidy"


def test_a_runaway_task_dies_at_its_limit_and_the_pool_goes_on(scene: Scene) -> None:
    ended = [
        sent.get(timeout=PATIENCE, propagate=False)
        for sent in [scene.send("spin", time_limit=0.5, queue="processes") for _ in range(3)]
    ]

    assert [error.exc_type for error in ended] == ["TimeLimitExceeded"] * 3
    assert isinstance(scene.get("now", queue="processes"), float)


# -- processes that are killed


def test_a_task_whose_process_was_killed_fails_as_lost_and_the_pool_goes_on(scene: Scene) -> None:
    ended = scene.get("die_at_once", queue="processes")

    assert ended.exc_type == "WorkerLostError"
    assert isinstance(scene.get("now", queue="processes"), float)


def test_a_task_that_asks_for_it_runs_again_when_its_process_was_killed(scene: Scene, tmp_path: Path) -> None:
    ended = scene.get("die", str(tmp_path / "deaths"), queue="processes")

    assert ended == "alive"
    assert lines(tmp_path / "deaths") == ["died"]


# -- ends of its own


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_is_rejected_to_its_queue_comes_again(scene: Scene, pool: str, tmp_path: Path) -> None:
    sent = scene.send("reject_once", str(tmp_path / "rejections"), queue=pool)

    ended = sent.get(timeout=PATIENCE, propagate=False)

    assert ended == "taken"
    scene.watcher.wait_for(lambda: len(scene.told("task-rejected", sent.id)) == 1)
    assert [event["requeue"] for event in scene.told("task-rejected", sent.id)] == [True]


def test_a_task_that_is_to_be_ignored_has_no_result(scene: Scene) -> None:
    sent = scene.stage.app.send_task("peers.ignore", queue="narrow")
    # One at a time: the second has ended after the first.
    scene.get("now", queue="narrow")

    assert not sent.ready()
    assert f"[{sent.id}] ended without a result" in scene.narrow.log()


def test_a_task_shows_a_state_of_its_own_while_it_runs(scene: Scene, tmp_path: Path) -> None:
    sent = scene.send("progress", str(tmp_path / "go"), queue="processes")

    assert come_true(lambda: sent.state == "PROGRESS")
    shown = sent.result
    (tmp_path / "go").touch()

    assert shown == {"done": 1, "of": 2}
    assert sent.get(timeout=PATIENCE) == "done"


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_sends_events_of_its_own(scene: Scene, pool: str) -> None:
    sent = scene.stage.app.send_task("peers.send_custom_event", [3], queue=pool)

    scene.watcher.wait_for(lambda: len(scene.told("task-succeeded", sent.id)) == 1)

    told = scene.told("task-progress", sent.id)
    assert [(event["step"], event["steps"]) for event in told] == [(0, 3), (1, 3), (2, 3)]
    assert {event["hostname"] for event in told} == {f"{pool}@ours"}


# -- what the operator changes


def test_a_rate_holds_tasks_back_until_the_operator_lifts_it(scene: Scene) -> None:
    sent = [scene.send("seldom", f"{number}", queue="threads") for number in range(3)]
    ask, name = scene.stage.ask(scene.threads), scene.threads.hostname
    assert sent[0].get(timeout=PATIENCE) == "0"
    assert come_true(lambda: sum(each.id in str(ask.reserved()) for each in sent) == 2)

    before = [each.ready() for each in sent]
    scene.stage.app.control.rate_limit("ours.seldom", 0, [name], reply=True, timeout=PATIENCE)
    after = [each.get(timeout=PATIENCE) for each in sent]

    assert before == [True, False, False]
    assert after == ["0", "1", "2"]


def test_a_worker_takes_from_a_queue_as_long_as_it_is_told_to(scene: Scene) -> None:
    control, name = scene.stage.app.control, scene.threads.hostname
    ask = scene.stage.ask(scene.threads)

    def queues() -> set[str]:
        return {queue["name"] for queue in ask.active_queues()[name]}

    control.add_consumer("extra", destination=[name], reply=True, timeout=PATIENCE)
    assert come_true(lambda: queues() == {"threads", "shared", "extra"})
    first = scene.get("now", queue="extra")
    control.cancel_consumer("extra", [name], reply=True, timeout=PATIENCE)
    assert come_true(lambda: queues() == {"threads", "shared"})
    left = scene.send("now", queue="extra")
    scene.get("now", queue="threads")

    assert isinstance(first, float)
    assert not left.ready()


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_that_grew_runs_more_at_a_time(scene: Scene, pool: str, tmp_path: Path) -> None:
    control, name = scene.stage.app.control, f"{pool}@ours"

    control.pool_grow(1, [name], reply=True, timeout=PATIENCE)
    met = [scene.send("meet", str(tmp_path / "met"), 3, queue=pool) for _ in range(3)]

    assert [each.get(timeout=PATIENCE) for each in met] == [True] * 3
    control.pool_shrink(1, [name], reply=True, timeout=PATIENCE)


# -- queues


def test_a_worker_takes_from_all_of_its_queues(scene: Scene) -> None:
    both = [scene.send("now", queue=queue) for queue in ("threads", "shared") for _ in range(20)]

    assert all(isinstance(sent.get(timeout=PATIENCE), float) for sent in both)


def test_what_is_urgent_is_taken_first(scene: Scene, tmp_path: Path) -> None:
    file, go = tmp_path / "order", tmp_path / "go"
    # Redis: 0 is the most urgent. RabbitMQ: the least.
    first, last = (0, 9) if scene.broker == "redis" else (9, 0)
    scene.send("hold", str(file), "first of all", str(go), queue="narrow")
    assert come_true(lambda: lines(file) == ["begin first of all"])
    sent = [
        scene.send("note", str(file), text, queue="narrow", priority=priority)
        for text, priority in (("can wait", last), ("in between", 5), ("urgent", first))
    ]

    go.touch()
    for each in sent:
        each.get(timeout=PATIENCE)

    begun = [line for line in lines(file) if line.startswith("begin")]
    assert begun == ["begin first of all", "begin urgent", "begin in between", "begin can wait"]


def test_greenlets_run_many_tasks_at_a_time(scene: Scene, tmp_path: Path) -> None:
    met = [scene.send("meet", str(tmp_path / "met"), MANY, queue="gevent") for _ in range(MANY)]

    ended = Counter(each.get(timeout=PATIENCE) for each in met)

    assert ended == {True: MANY}


# -- results as messages


@pytest.fixture(scope="module")
def rpc(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """RabbitMQ, where each result is a message to who sent the task."""
    with (
        paired(request, "5.7", "amqp") as pair,
        Stage.on(pair.url, "rpc://") as stage,
        running(stage.worker("rpc@ours", pool="threads")),
    ):
        yield stage


def test_our_client_gets_results_as_messages(rpc: Stage) -> None:
    sent = [rpc.app.send_task("peers.add", [number, 1], queue="rpc") for number in range(50)]

    assert [each.get(timeout=PATIENCE) for each in sent] == list(range(1, 51))


@pytest.mark.parametrize("version", PEERS)
def test_a_celery_client_gets_results_of_our_worker_as_messages(rpc: Stage, version: str) -> None:
    tasks = [("peers.add", [number, 1], {"queue": "rpc"}) for number in range(50)]
    tasks += [("peers.fail", [], {"queue": "rpc"}), ("peers.retry_then_succeed", [], {"queue": "rpc"})]

    done = batch(peer(version), url=rpc.url, backend="rpc://", tasks=tasks)

    assert [value for _, value in done] == [*range(1, 51), "ValueError: planned", 2]


# -- what is seen last


def test_no_worker_logs_an_error_but_for_tasks_that_fail_on_purpose(scene: Scene) -> None:
    workers = (scene.threads, scene.processes, scene.narrow, scene.gevent)

    errors = [
        error
        for worker in workers
        for error in worker.errors()
        if not any(word in error for word in ("planned", "MaxRetries", "TimeLimit", "WorkerLost"))
    ]

    assert errors == []
