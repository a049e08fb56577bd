"""Real workers of ours elect one of them, on each broker, for clients of both kinds."""

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from celeriac.errors import ImproperlyConfigured
from celeriac.model.election import Level, Mode, RecordState
from celeriac.node.election import elected_task_id
from celeriac.node.result import AsyncResult
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from celeriac.testing.rabbit import RabbitNode
from celeriac.worker.elector import election_key
from tests.fleet import PATIENCE, come_true, running
from tests.interop.conftest import BROKERS
from tests.live import IS_LONG, NEWEST, PEER_APP, PEERS, peer
from tests.stage import Stage, lines

MANY = 30
#: What a Redis must keep for elections that restarts do not undo.
KEPT = {"appendonly": "yes", "appendfsync": "everysec"}
ALLOWED = {"CELERIAC_ELECTION_ACTIONS": "peers.*,ours.*"}

#: A client of Celery's that calls elections, in the two ways there are.
CELERY = """
import json, sys
from importlib import import_module
peers = import_module("app")
way, id, x, y = json.loads(sys.argv[1])
signature = peers.add.s(x, y)
if way == "signature":
    print(json.dumps(signature.set(task_id=id).election().id))
else:
    peers.app.control.election(id, "task", signature.clone(task_id=id))
    print(json.dumps(peers.app.AsyncResult(id).get(timeout=60)))
"""


@dataclass
class Scene:
    """Three workers that know each other."""

    broker: str
    stage: Stage
    workers: list[CeleriacWorker]

    def won(self) -> Counter[str]:
        """Return how often each election was won, by what the workers wrote."""
        logs = "\n".join(worker.log() for worker in self.workers)
        return Counter(
            line.partition(": won by this node")[0].split()[-1]
            for line in logs.splitlines()
            if "won by this node" in line
        )

    def record(self, id_: str) -> Any:
        """Return what the arbiter knows of an election."""
        return self.stage.app.arbiter.read(election_key(id_))

    def is_done(self, id_: str) -> bool:
        record = self.record(id_)
        return record is not None and record.state is not RecordState.HELD


@pytest.fixture(scope="module")
def redis_that_keeps() -> Iterator[RedisServer]:
    with RedisServer(KEPT) as server:
        yield server


@pytest.fixture(scope="module", params=BROKERS)
def place(request: pytest.FixtureRequest, redis_that_keeps: RedisServer) -> Iterator[tuple[str, str, str]]:
    """A broker, its URL, and where results are kept."""
    # Of its own: an election of one id has one task, and its result is kept.
    backend = redis_that_keeps.url_of(BROKERS.index(request.param) + 1)
    if request.param == "redis":
        yield request.param, redis_that_keeps.url, backend
        return
    rabbit: RabbitNode = request.getfixturevalue("rabbit_server")
    vhost = f"elections-{secrets.token_hex(4)}"
    rabbit.add_vhost(vhost)
    yield request.param, rabbit.url_of(vhost), backend
    rabbit.delete_vhost(vhost)


@pytest.fixture(scope="module")
def scene(place: tuple[str, str, str]) -> Iterator[Scene]:
    broker, url, backend = place
    with ExitStack() as stack:
        stage = stack.enter_context(Stage.on(url, backend))
        workers = [
            stage.worker(f"w{number}@ours", "-Q", "celery", environment=ALLOWED) for number in (1, 2, 3)
        ]
        stack.enter_context(running(*workers))
        yield Scene(broker, stage, workers)


# -- the workers' elections


def test_each_of_many_elections_runs_its_task_once_and_the_result_arrives(
    scene: Scene, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    ids = [f"many-{number}" for number in range(MANY)]

    def elect(id_: str) -> AsyncResult:
        task = scene.stage.app.signature("ours.record", (str(file), id_))
        return task.election(id=id_, force=True)

    results = [elect(id_) for id_ in ids]
    values = [result.get(timeout=PATIENCE) for result in results]

    assert values == ids
    assert [result.id for result in results] == [elected_task_id(id_) for id_ in ids]
    assert come_true(lambda: all(scene.is_done(id_) for id_ in ids))
    assert Counter(lines(file)) == Counter(f"{word} {id_}" for id_ in ids for word in ("begin", "end"))
    won = scene.won()
    assert {id_: won[id_] for id_ in ids} == dict.fromkeys(ids, 1)


def test_an_election_that_was_held_is_not_held_again(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    task = scene.stage.app.signature("ours.record", (str(file), "x"))

    first = task.election(id="again", force=True).get(timeout=PATIENCE)
    second = task.election(id="again", force=True).get(timeout=PATIENCE)
    task.election(id="after", force=True).get(timeout=PATIENCE)

    assert first == second == "x"
    assert lines(file).count("begin x") == 2  # of both ids
    assert scene.won()["again"] == 1


def test_in_mode_takeover_it_is_done_too(scene: Scene) -> None:
    task = scene.stage.app.signature("peers.add", (2, 3))

    value = task.election(id="takeover", mode="takeover", timeout=10.0).get(timeout=PATIENCE)

    assert value == 5
    assert come_true(lambda: scene.is_done("takeover"))
    assert scene.record("takeover").mode is Mode.TAKEOVER


def test_a_result_that_is_a_message_arrives_as_well(scene: Scene) -> None:
    with Stage.on(scene.stage.url, "rpc://") as stage:
        by_message = [
            stage.worker("rpc@ours", "-Q", "by-message", environment=ALLOWED),
        ]
        with running(*by_message):
            task = stage.app.signature("peers.add", (2, 3), queue="by-message")

            value = task.election(id="rpc", force=True).get(timeout=PATIENCE)

    assert value == 5


def test_what_is_not_allowed_and_what_nobody_knows_harms_no_worker(scene: Scene) -> None:
    app = scene.stage.app

    app.control.election("forbidden", "task", {"task": "os.remove", "args": ["/"]}, force=True)
    app.control.election("unknown", "no-such-topic", force=True)
    app.signature("peers.add", (1, 1)).election(id="sound", force=True).get(timeout=PATIENCE)

    assert scene.record("forbidden") is None
    assert scene.record("unknown") is None
    names = [worker.hostname for worker in scene.workers]
    assert app.control.inspect(names, timeout=PATIENCE).ping().keys() == set(names)
    assert [worker.errors() for worker in scene.workers] == [[], [], []]
    logs = [worker.log() for worker in scene.workers]
    assert all("task os.remove is not listed in election_actions" in log for log in logs)
    assert all("no handler for topic 'no-such-topic'" in log for log in logs)


def test_the_level_is_in_the_log(scene: Scene) -> None:
    logs = [worker.log() for worker in scene.workers]

    assert all("election: level L" in log for log in logs)


# -- clients of Celery's


@pytest.mark.parametrize("version", PEERS)
def test_an_election_that_a_client_of_celerys_calls_is_held(scene: Scene, version: str) -> None:
    value = call_as_celery(scene, version, "control", f"by-control-{version}", 4, version_number(version))

    assert value == 4 + version_number(version)
    assert come_true(lambda: scene.is_done(f"by-control-{version}"))


@pytest.mark.parametrize("version", NEWEST)
def test_a_signature_of_celerys_can_be_elected(scene: Scene, version: str) -> None:
    # Celery: its election() raises TypeError where results are kept in Redis, or are messages.
    task_id = call_as_celery(
        scene, version, "signature", f"by-signature-{version}", 4, 5, CELERY_RESULT_BACKEND="disabled://"
    )

    value = scene.stage.app.AsyncResult(task_id).get(timeout=PATIENCE)

    assert task_id == f"by-signature-{version}"
    assert value == 9


def version_number(version: str) -> int:
    return int(version[-1])


def call_as_celery(scene: Scene, version: str, *words: object, **environment: str) -> Any:
    """Have a client of Celery's call an election, and return what it printed."""
    place = {"CELERY_BROKER_URL": scene.stage.url, "CELERY_RESULT_BACKEND": scene.stage.backend}
    done = subprocess.run(  # noqa: S603 - our own program
        [str(peer(version)), "-c", CELERY, json.dumps(words)],
        env=dict(os.environ) | place | environment,
        cwd=PEER_APP.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- leadership


def test_a_leadership_passes_from_one_to_the_next_with_its_note(place: tuple[str, str, str]) -> None:
    _, url, backend = place
    with Stage.on(url, backend) as one, Stage.on(url, backend) as other:
        first, second = one.app.leadership("report"), other.app.leadership("report")
        led = [first.elect(), second.elect(timeout=0)]
        first.leave_note(b"page 7")

        first.resign()
        led.append(second.elect(timeout=PATIENCE))
        found = second.note
        second.resign()
        leases = one.app.arbiter.leases()

    assert led == [True, False, True]
    assert found == b"page 7"
    assert second.token > first.token
    assert leases == []


def test_a_redis_that_keeps_nothing_decides_nothing_unless_it_is_wanted(redis_url: str) -> None:
    with Stage.on(redis_url, redis_url) as stage:
        with pytest.raises(ImproperlyConfigured, match=r"level is L1, below election_min_level L2") as raised:
            stage.app.leadership("report").elect(timeout=0)
        leases = stage.app.arbiter.leases()
    with (
        Stage.on(redis_url, redis_url, election_min_level="L1") as stage,
        stage.app.leadership("report") as leader,
    ):
        level = leader.level

    assert "appendonly" in str(raised.value)
    assert leases == []
    assert level is Level.L1


#: Which library, and whether it patches before or after all else is imported; in the short form one a broker.
WAYS = [(library, order) for order in ("early", "late") for library in ("gevent", "eventlet")]


@pytest.mark.parametrize("number", range(len(WAYS) if IS_LONG else 1))
def test_greenlets_lead_and_wait_without_holding_up_others(place: tuple[str, str, str], number: int) -> None:
    broker, url, _ = place
    library, order = WAYS[number - BROKERS.index(broker)]

    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "tests.greenlet_leaders", library, order, url],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["check_waiting", "check_renewing", "check_elected"]
