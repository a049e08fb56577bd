"""Our detector in a real worker of Celery: it sees joins, farewells and kill -9, and harms nothing."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.live import NEWEST, PEER_APP, PEERS, peer

APP = PEER_APP.with_name("observed.py")
COMMAND = "celeriac_members"
PATIENCE = 60.0
#: Who beats once a second is missed sooner than others.
OFTEN = ("--heartbeat-interval", "1")


@dataclass
class Cluster:
    """A broker, a worker with our detector, and the means to start others."""

    python: Path
    redis: RedisServer
    library: Path
    observer: CeleryWorker

    @contextmanager
    def neighbour(self, *arguments: str) -> Iterator[CeleryWorker]:
        """Run a worker without our detector."""
        worker = CeleryWorker(self.python, PEER_APP, url=self.redis.url, pool="solo", arguments=arguments)
        try:
            worker.start()
            yield worker
        finally:
            worker.kill()
            print(worker.log())
            worker.close()

    def members(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """Return what the worker with our detector tells of the members; nothing if it does not answer."""
        name = self.observer.hostname
        control = Celeriac(self.redis.url, environ={}).control
        answers: Any = control.broadcast(COMMAND, destination=[name], reply=True, timeout=timeout)
        return dict(answers[0][name]) if answers else {}

    def wait_for(self, worker: CeleryWorker, state: str) -> dict[str, Any]:
        """Wait until a worker is held for something, and return all that is told of it."""

        def is_so() -> bool:
            return bool(self.members(1.0).get(worker.hostname, {}).get("state") == state)

        assert wait_until(is_so, patience=PATIENCE), self.members()
        told: dict[str, Any] = self.members()[worker.hostname]
        return told


@pytest.fixture(scope="module", params=PEERS)
def cluster(request: pytest.FixtureRequest, library: Path) -> Iterator[Cluster]:
    """A worker of each version of Celery with our detector, shared by all tests."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        python = peer(request.param)
        environment = {"PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
        observer = CeleryWorker(python, APP, url=redis.url, backend=redis.url_of(1), environment=environment)
        stack.callback(observer.close)
        stack.callback(lambda: print(observer.log()))
        stack.callback(observer.kill)
        observer.start()
        yield Cluster(python, redis, library, observer)


def test_kill_9_of_a_worker_is_seen_told_and_logged(cluster: Cluster) -> None:
    with cluster.neighbour(*OFTEN) as worker:
        cluster.wait_for(worker, "ALIVE")

        worker.kill()
        told = cluster.wait_for(worker, "LOST")

    assert told["reason"].startswith("silent for ")
    assert f"celeriac: {worker.hostname} joined" in cluster.observer.log()
    assert f"celeriac: {worker.hostname} suspect, silent for" in cluster.observer.log()
    assert f"celeriac: {worker.hostname} lost: silent for" in cluster.observer.log()
    assert cluster.observer.errors() == []


def test_a_farewell_is_no_loss(cluster: Cluster) -> None:
    with cluster.neighbour() as worker:
        cluster.wait_for(worker, "ALIVE")

        worker.stop()
        told = cluster.wait_for(worker, "LEFT")

    assert told["reason"] == "shut down cleanly"
    assert f"celeriac: {worker.hostname} left" in cluster.observer.log()
    assert f"{worker.hostname} lost" not in cluster.observer.log()


def test_the_worker_itself_is_a_member(cluster: Cluster) -> None:
    told = cluster.members()[cluster.observer.hostname]

    assert (told["state"], told["reason"], told["pid"]) == ("ALIVE", "own node", cluster.observer.pid)


def test_celerys_own_command_line_asks_for_the_members(cluster: Cluster) -> None:
    name = cluster.observer.hostname
    command = [str(cluster.python), "-m", "celery", "--app", "observed", "--broker", cluster.redis.url]

    done = subprocess.run(  # noqa: S603 - our own command
        [*command, "inspect", COMMAND, "--destination", name, "--timeout", "30", "--json"],
        cwd=APP.parent,
        env={"PYTHONPATH": str(cluster.library), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[name][name]["state"] == "ALIVE"


def test_tasks_run_as_before(cluster: Cluster) -> None:
    result = cluster.observer.call("peers.add", 40, 2)

    assert result == 42


# How a lost link is judged does not hang on the version.
@pytest.mark.parametrize("cluster", NEWEST, indirect=True)
def test_after_the_broker_was_gone_the_living_are_told_from_the_dead_as_before(cluster: Cluster) -> None:
    with cluster.neighbour() as living, cluster.neighbour(*OFTEN) as dying:
        for worker in (living, dying):
            cluster.wait_for(worker, "ALIVE")

        cluster.redis.restart()
        for worker in (living, dying):
            cluster.wait_for(worker, "ALIVE")
        dying.kill()
        cluster.wait_for(dying, "LOST")

        assert cluster.members()[living.hostname]["state"] == "ALIVE"
        assert f"{living.hostname} lost" not in cluster.observer.log()
