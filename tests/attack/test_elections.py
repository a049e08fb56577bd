"""No message starts a task by an election but those that ``election_actions`` names, nor one inside of them.

Raw control commands and raw events of candidates, on both brokers, to real workers of ours. The workers of
Celery with our elections have a test of their own in ``tests/interop/test_celery_elections.py``.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from celeriac.errors import RemoteError
from celeriac.node.election import elected_task_id
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
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
from tests.fleet import PATIENCE, come_true, running
from tests.interop.conftest import BROKERS
from tests.live import IS_LONG
from tests.stage import Stage, lines
from tests.wires import AmqpWire, RedisWire, Wire

EVIL = "ours.record"
#: How often each attack is repeated.
ROUNDS = 20 if IS_LONG else 1
#: The phases of an election in which a worker has nothing left to do.
SETTLED = {"observing", "following", "done", "failed"}
ENVIRONMENT = {"CELERIAC_ELECTION_ACTIONS": f"{ALLOWED},{FAILING}"}


class Target:
    """Two workers that allow two tasks, and a wire to their broker."""

    def __init__(self, stage: Stage, wire: Wire, workers: list[CeleriacWorker], evil: dict[str, Any]) -> None:
        self.stage = stage
        self.wire = wire
        self.workers = workers
        self.evil = evil
        self._names = [worker.hostname for worker in workers]

    def settle(self) -> None:
        """Wait until no worker has an election to decide, and no task is left to run."""
        assert come_true(self._is_settled), [worker.log() for worker in self.workers]
        # Whatever a task sent when it ended is in the queue before this one.
        assert self.stage.app.send_task(ALLOWED, ["last"]).get(timeout=PATIENCE) == "last"
        assert come_true(self._is_idle)

    def totals(self) -> dict[str, int]:
        """Return how often each task was run."""
        counts: dict[str, int] = {}
        for told in self._ask().stats().values():
            for name, count in told["total"].items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def _ask(self) -> Any:
        return self.stage.app.control.inspect(self._names, timeout=PATIENCE)

    def _is_settled(self) -> bool:
        return all(set(told["elections"]["phases"]) <= SETTLED for told in self._ask().stats().values())

    def _is_idle(self) -> bool:
        ask = self._ask()
        return self.wire.length("celery") == 0 and not any([*ask.active().values(), *ask.reserved().values()])


@pytest.fixture(params=BROKERS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer({"appendonly": "yes", "appendfsync": "everysec"}))
        url = redis.url if request.param == "redis" else request.getfixturevalue("amqp_url")
        stage = stack.enter_context(Stage.on(url, redis.url_of(1)))
        workers = [
            stage.worker(f"w{number}@ours", "-Q", "celery", environment=ENVIRONMENT) for number in (1, 2)
        ]
        stack.enter_context(running(*workers))
        wire: Wire = RedisWire(url) if request.param == "redis" else AmqpWire(url)
        stack.enter_context(wire)
        yield Target(stage, wire, workers, signature(EVIL, str(tmp_path / "ran"), "evil"))
        assert [worker.is_alive for worker in workers] == [True, True]


def test_no_election_starts_a_task_outside_of_the_allow_list(target: Target, tmp_path: Path) -> None:
    wire, evil = target.wire, target.evil
    attacks = 0
    for number in range(ROUNDS):
        for place, action in enumerate(forbidden(evil)):
            id_ = f"{number}-{place}"
            call(wire, f"once-{id_}", action)
            call(wire, f"takeover-{id_}", action, mode="takeover")
            call(wire, f"topic-{id_}", action, topic="task\n")
            nominate(wire, f"celery-{id_}", action)
            nominate(wire, f"ours-{id_}", action, x=2)
            nominate(wire, f"bid-{id_}", action, x=2, mode="takeover", clock=0)
            attacks += 6
        replace_action(wire, f"two-{number}", signature(ALLOWED, "good"), evil)
        attacks += 4
        target.settle()
    call(wire, "sound", signature(ALLOWED, "sound"))
    value = target.stage.app.AsyncResult(elected_task_id("sound")).get(timeout=PATIENCE)
    target.settle()

    print(f"{attacks} elections with a task that is not allowed, runs: {target.totals()}")
    assert value == "sound"
    assert lines(tmp_path / "ran") == []
    assert target.totals().keys() == {ALLOWED}
    assert [error for worker in target.workers for error in worker.errors()] == []


def test_an_allowed_task_starts_nothing_that_its_signature_carries(target: Target, tmp_path: Path) -> None:
    wire, app = target.wire, target.stage.app
    actions = [*loaded(target.evil)] * ROUNDS
    for number, action in enumerate(actions):
        call(wire, f"loaded-{number}", action, mode="takeover" if number % 2 else None)
    ended = [_end_of(app.AsyncResult(elected_task_id(f"loaded-{number}"))) for number in range(len(actions))]
    target.settle()

    totals = target.totals()
    print(f"{len(actions)} elections of an allowed task that carries another, runs: {totals}")
    assert ended == [action["task"] for action in actions]
    assert totals[FAILING] == ended.count(FAILING)
    assert totals.keys() == {ALLOWED, FAILING}
    assert lines(tmp_path / "ran") == []


def _end_of(result: Any) -> str:
    """Return the task that a result can only be of."""
    try:
        result.get(timeout=PATIENCE)
    except RemoteError:
        return FAILING
    return ALLOWED
