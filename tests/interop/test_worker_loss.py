"""No task is lost with a worker that is killed or stopped, nor with a broker that is killed."""

import json
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from celeriac.node.result import AsyncResult
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.fleet import PATIENCE, come_true, kill_all, running
from tests.live import revived
from tests.stage import Stage, lines

#: Short, so that what a killed worker had is soon given to others. Only Redis has such.
VISIBILITY = {"CELERIAC_BROKER_TRANSPORT_OPTIONS": json.dumps({"visibility_timeout": 2})}
#: Longer than that.
LONG = 5.0
IN_FLIGHT = 50


@dataclass
class Scene:
    """A broker that has on its disk what it has confirmed, and two workers that share a queue."""

    server: RedisServer | RabbitServer
    stage: Stage

    def worker(self, hostname: str, *arguments: str, **options: object) -> CeleriacWorker:
        environment = VISIBILITY if isinstance(self.server, RedisServer) else {}
        return self.stage.worker(hostname, *arguments, "--without-mingle", environment=environment, **options)

    def holds(self, task_id: str) -> bool:
        """Return whether Redis has the message of a task, in its queue or as not acknowledged."""
        if isinstance(self.server, RabbitServer):
            return False
        with self.server.client() as client:
            messages = [*client.hvals("unacked"), *client.lrange("fatal", 0, -1)]
        return any(task_id.encode() in message for message in messages)


@pytest.fixture(scope="module", params=["redis", "amqp"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer({"appendonly": "yes", "appendfsync": "always"}))
        server: RedisServer | RabbitServer = redis
        if request.param == "amqp":
            server = revived(request.getfixturevalue("rabbit_to_hurt"))
        stage = stack.enter_context(Stage.on(server.url, redis.url_of(1)))
        scene = Scene(server, stage)
        both = [
            scene.worker("one@ours", "-Q", "both", pool="threads", concurrency=4),
            scene.worker("two@ours", "-Q", "both", pool="processes", concurrency=4),
        ]
        stack.enter_context(running(*both))
        yield scene


# -- a worker that is killed


@dataclass
class Killed:
    """A worker was killed while it ran two tasks and had others, and was started again."""

    file: Path
    #: Acknowledged when it has ended, and when it began.
    late: AsyncResult
    early: AsyncResult
    #: Taken ahead.
    waiting: list[AsyncResult]
    #: What took its time meanwhile.
    long: "Long"


@dataclass
class Long:
    """A task that runs longer than Redis waits for a sign of life."""

    file: Path
    result: AsyncResult


@pytest.fixture(scope="module")
def long(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Long:
    file = tmp_path_factory.mktemp("long") / "notes"
    return Long(file, scene.stage.send("note", str(file), "long", LONG, queue="both"))


@pytest.fixture(scope="module")
def killed(scene: Scene, long: Long, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    folder = tmp_path_factory.mktemp("killed")
    file, go = folder / "notes", folder / "go"
    worker = scene.worker("risky@ours", pool="threads", concurrency=2)
    send = scene.stage.send
    try:
        worker.start()
        late = send("hold", str(file), "late", str(go), queue="risky")
        early = send("hold_early", str(file), "early", str(go), queue="risky")
        assert come_true(lambda: len(lines(file)) == 2)
        waiting = [send("note_early", str(file), f"waiting {n}", queue="risky") for n in range(3)]
        ask = scene.stage.ask(worker)
        assert come_true(lambda: len(ask.reserved()[worker.hostname]) == 3)
        worker.kill()
        go.touch()
        worker.start()
        for each in (late, *waiting, send("note", str(file), "last", queue="risky")):
            each.get(timeout=PATIENCE)
        yield Killed(file, late, early, waiting, long)
    finally:
        kill_all([worker])


def test_a_task_with_late_acknowledgement_runs_again_when_its_worker_was_killed(killed: Killed) -> None:
    written = Counter(lines(killed.file))

    assert (written["begin late"], written["end late"]) == (2, 1)
    assert killed.late.get(timeout=PATIENCE) == "late"


def test_a_task_with_early_acknowledgement_does_not_run_again_when_its_worker_was_killed(
    killed: Killed,
) -> None:
    written = Counter(lines(killed.file))

    assert (written["begin early"], written["truncated message properties"]) == (1, 0)
    assert not killed.early.ready()


def test_a_task_with_early_acknowledgement_kills_its_worker_twice_at_most(scene: Scene) -> None:
    worker = scene.worker("fatal@ours", pool="threads", concurrency=1)
    kills = 0
    try:
        fatal = scene.stage.send("die_at_once", queue="fatal")
        last = scene.stage.send("now", queue="fatal")  # RabbitMQ gives out the other one before, also again

        def is_over() -> bool:
            return last.ready() and not scene.holds(fatal.id)

        while not is_over() and kills < 3:
            worker.begin()  # the task may end it before it is seen to be ready
            assert come_true(lambda: is_over() or not worker.is_alive)
            kills += not worker.is_alive
        assert 1 <= kills <= 2
    finally:
        kill_all([worker])


def test_tasks_that_a_killed_worker_had_not_begun_run_once(killed: Killed) -> None:
    written = Counter(lines(killed.file))

    assert [written[f"begin waiting {number}"] for number in range(3)] == [1, 1, 1]
    assert all(each.ready() for each in killed.waiting)


def test_a_task_that_takes_long_is_given_to_no_other_worker_meanwhile(long: Long) -> None:
    long.result.get(timeout=PATIENCE)

    assert lines(long.file) == ["begin long", "end long"]


# -- a worker that is stopped


@dataclass
class Stopped:
    """A worker was stopped at once while it ran a task, and once more in peace."""

    file: Path
    worker: CeleriacWorker
    held: AsyncResult
    #: What was written when it had stopped, each time.
    cold: list[str]
    warm: list[str]
    #: How it ended each time.
    codes: list[int | None]
    #: The id of a task that was revoked when it ran for the first time.
    revoked: str


@pytest.fixture(scope="module")
def stopped(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    folder, revoked = tmp_path_factory.mktemp("stopped"), secrets.token_hex(8)
    file, go = folder / "notes", folder / "go"
    worker = scene.worker("calm@ours", "--statedb", str(folder / "state"), pool="threads", concurrency=1)
    stage, codes = scene.stage, []

    def has_begun() -> bool:
        return lines(file)[-1:] == ["begin held"]

    try:
        worker.start()
        stage.app.control.revoke(revoked, [worker.hostname], reply=True, timeout=PATIENCE)
        held = stage.send("hold", str(file), "held", str(go), queue="calm")
        assert come_true(has_begun)
        waiting = stage.send("note", str(file), "waiting", queue="calm")
        codes.append(stop(worker, twice=True))
        cold = lines(file)
        worker.start()
        assert come_true(lambda: lines(file).count("begin held") == 2)
        codes.append(stop(worker, go=go))
        warm = lines(file)
        worker.start()
        waiting.get(timeout=PATIENCE)
        yield Stopped(file, worker, held, cold, warm, codes, revoked)
    finally:
        kill_all([worker])


def stop(worker: CeleriacWorker, *, twice: bool = False, go: Path | None = None) -> int | None:
    """Stop a worker by one signal or two; let its task go on once it is about to stop; say how it ended."""
    stops = worker.log().count("worker: stopping")
    worker.signal(signal.SIGTERM)
    assert come_true(lambda: worker.log().count("worker: stopping") > stops)
    if twice:
        worker.signal(signal.SIGTERM)
    if go is not None:
        go.touch()
    assert come_true(lambda: not worker.is_alive)
    return worker.exit_code


def test_a_worker_that_is_told_twice_stops_now_and_what_it_ran_runs_again(stopped: Stopped) -> None:
    assert stopped.cold == ["begin held"]
    assert lines(stopped.file).count("begin held") == 2


def test_a_worker_that_is_told_once_ends_what_runs_and_begins_nothing_more(stopped: Stopped) -> None:
    assert stopped.warm == ["begin held", "begin held", "end held"]
    assert stopped.held.get(timeout=PATIENCE) == "held"
    assert stopped.codes == [0, 0]


def test_what_a_stopped_worker_had_not_begun_is_run_by_the_next(stopped: Stopped) -> None:
    assert lines(stopped.file)[-2:] == ["begin waiting", "end waiting"]


def test_a_worker_knows_after_restarts_what_was_revoked_before(scene: Scene, stopped: Stopped) -> None:
    worker = stopped.worker

    known = scene.stage.ask(worker).revoked()[worker.hostname]

    assert stopped.revoked in known


# -- a broker that is killed


def test_a_broker_that_is_killed_with_tasks_in_flight_loses_none(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    sent = {
        f"{name} {number}": scene.stage.send(name, str(file), f"{name} {number}", 0.2, queue="both")
        for number in range(IN_FLIGHT)
        for name in ("note", "note_early")
    }
    assert come_true(lambda: len(lines(file)) > IN_FLIGHT // 4)

    scene.server.kill()
    scene.server.start()
    results = [each.get(timeout=PATIENCE) for each in sent.values()]

    ended = {line.removeprefix("end ") for line in lines(file) if line.startswith("end ")}
    assert ended == sent.keys()
    assert all(isinstance(pid, int) for pid in results)
