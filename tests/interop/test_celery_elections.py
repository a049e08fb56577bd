"""Elections of real workers of Celery that our arbiter decides: one winner, and nobody stops."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.node.election import elected_task_id
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.election_attacks import (
    ALLOWED,
    FAILING,
    call,
    forbidden,
    loaded,
    nominate,
    replace_action,
    signature,
)
from tests.fleet import start_all
from tests.live import NEWEST, PEER_APP, PEERS, peer
from tests.wires import RedisWire

APP = PEER_APP.with_name("electing.py")
PATIENCE = 60.0
#: What a restart forgets costs a second at the most, which is level L2.
ON_DISK = {"appendonly": "yes", "appendfsync": "everysec"}


@dataclass
class Place:
    """A broker, a version of Celery, and the means to start workers."""

    python: Path
    redis: RedisServer
    library: Path
    app: Celeriac

    @contextmanager
    def workers(self, count: int, *, actions: str = "*") -> Iterator[list[CeleryWorker]]:
        """Run workers whose elections are ours, and may start these tasks, once they know each other."""
        with ExitStack() as stack:
            started = []
            for _ in range(count):
                worker = CeleryWorker(
                    self.python,
                    APP,
                    url=self.redis.url,
                    backend=self.redis.url_of(1),
                    pool="solo",
                    environment={
                        "PYTHONPATH": str(self.library),
                        "PYTHONDONTWRITEBYTECODE": "1",
                        "PEERS_ELECTION_ACTIONS": actions,
                    },
                )
                stack.callback(worker.close)
                stack.callback(_show, worker)
                stack.callback(worker.kill)
                started.append(worker)
            start_all(started)
            assert wait_until(lambda: self._know_each_other(started), patience=PATIENCE)
            yield started

    def _know_each_other(self, workers: list[CeleryWorker]) -> bool:
        names = {worker.hostname for worker in workers}
        answers: Any = self.app.control.broadcast("celeriac_members", reply=True, limit=len(workers)) or []
        return len(answers) == len(workers) and all(
            {name for name, told in members.items() if told["state"] == "ALIVE"} >= names
            for answer in answers
            for members in answer.values()
        )


@pytest.fixture
def place(version: str, library: Path) -> Iterator[Place]:
    with (
        RedisServer(ON_DISK) as redis,
        closing(Celeriac(redis.url, redis.url_of(1), environ={})) as app,
    ):
        yield Place(peer(version), redis, library, app)


def _show(worker: CeleryWorker) -> None:
    print(worker.log())


def wins(workers: list[CeleryWorker]) -> list[int]:
    """Return how many elections each of these says it won."""
    return [worker.log().count("won by this node") for worker in workers]


@pytest.mark.parametrize("version", NEWEST)
def test_an_election_of_one_worker_is_won_by_it_and_stops_nobody(place: Place) -> None:
    with place.workers(1) as workers:
        app = place.app
        app.control.election("e1", "task", {"task": "peers.add", "args": [40, 2]}, force=True)
        result = app.AsyncResult(elected_task_id("e1")).get(timeout=PATIENCE)

        assert result == 42
        assert wait_until(lambda: wins(workers) == [1], patience=PATIENCE)
        assert app.control.inspect(timeout=PATIENCE, limit=1).ping()
        assert workers[0].errors() == []


@pytest.mark.parametrize("version", PEERS)
def test_each_of_many_elections_has_one_winner(place: Place) -> None:
    with place.workers(3) as workers:
        app = place.app
        for number in range(20):
            app.control.election(f"e{number}", "task", {"task": "peers.add", "args": [number, 1]}, force=True)
        results = [app.AsyncResult(elected_task_id(f"e{number}")) for number in range(20)]

        assert [result.get(timeout=PATIENCE) for result in results] == [*range(1, 21)]
        assert wait_until(lambda: sum(wins(workers)) >= 20, patience=PATIENCE)
        assert sum(wins(workers)) == 20
        received = sum(worker.log().count("received") for worker in workers)
        assert received == 20
        assert [worker.errors() for worker in workers] == [[], [], []]


@pytest.mark.parametrize("version", NEWEST)
def test_an_election_starts_nothing_but_what_is_allowed(place: Place) -> None:
    evil = signature("peers.total", [1, 2])
    with place.workers(1, actions=f"{ALLOWED},{FAILING}") as (worker,), RedisWire(place.redis.url) as wire:
        app = place.app
        refused = [*forbidden(evil)]
        for number, action in enumerate(refused):
            call(wire, f"refused-{number}", action)
            nominate(wire, f"celery-{number}", action)
            nominate(wire, f"ours-{number}", action, x=2)
        replace_action(wire, "two", signature(ALLOWED, "good"), evil)
        carrying = [*loaded(evil)]
        for number, action in enumerate(carrying):
            call(wire, f"loaded-{number}", action)
        results = [app.AsyncResult(elected_task_id(f"loaded-{number}")) for number in range(len(carrying))]
        ended = [result.get(timeout=PATIENCE, propagate=False) for result in results]
        # Whatever a task sent when it ended is in the queue before this one.
        last = worker.call(ALLOWED, "last")
        log = worker.log()

    print(
        f"{3 * len(refused) + 4} elections that are not allowed, {len(carrying)} of allowed tasks with more"
    )
    assert last == "last"
    assert len(ended) == len(carrying)
    assert f"Task {ALLOWED}[" in log
    assert "Task peers.total[" not in log
    assert "unregistered task" not in log
