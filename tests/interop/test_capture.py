"""A capture of real Celery workers, beside what really became of every task.

Two Celery 5.7.0 workers on RabbitMQ, with tasks that succeed, fail, are retried
across workers, revoked, terminated, rejected and expired, and with chains, groups
and chords. The truth was written by the tasks themselves and the result backend.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from celeriac import Gate, State
from celeriac.model.events import Event
from tests.live import IS_LONG

DATA = Path(__file__).parents[1] / "data"
SHUFFLES = 200 if IS_LONG else 40


@pytest.fixture(scope="module")
def capture() -> list[Event]:
    gate = Gate()
    with gzip.open(DATA / "celery_amqp.jsonl.gz") as lines:
        events = [event for line in lines for event in gate.decode(line)]
    assert not gate.refused
    assert not gate.mended
    return events


@pytest.fixture(scope="module")
def truth(capture: list[Event]) -> dict[str, str]:
    with gzip.open(DATA / "celery_amqp_truth.json.gz") as document:
        tasks = json.load(document)
    # Some tasks never ran, or were dropped by the broker: no event tells of them.
    told = {event.uuid for event in capture if hasattr(event, "uuid")}
    return {uuid: task["expected"] for uuid, task in tasks.items() if uuid in told}


def wrong_states(events: Sequence[Event], truth: dict[str, str]) -> dict[str, str]:
    state = State(max_tasks_in_memory=len(truth))
    for event in events:
        state.event(event)
    return {uuid: state.tasks[uuid].state for uuid in truth if state.tasks[uuid].state != truth[uuid]}


def test_every_task_ends_as_it_did_in_the_order_of_arrival(
    capture: list[Event], truth: dict[str, str]
) -> None:
    assert len(truth) > 1700
    assert set(truth.values()) == {"SUCCESS", "FAILURE", "REVOKED", "PENDING"}

    assert wrong_states(capture, truth) == {}


def test_every_task_ends_as_it_did_in_every_shuffle(capture: list[Event], truth: dict[str, str]) -> None:
    random = Random(1)

    for turn in range(SHUFFLES):
        shuffled = random.sample(capture, len(capture))
        assert wrong_states(shuffled, truth) == {}, f"shuffle {turn}"


@pytest.mark.parametrize("seed", range(5))
def test_every_task_ends_as_it_did_with_duplicates(
    seed: int, capture: list[Event], truth: dict[str, str]
) -> None:
    random = Random(seed)
    doubled = capture + random.choices(capture, k=len(capture))
    random.shuffle(doubled)

    assert wrong_states(doubled, truth) == {}


def test_duplicates_count_neither_as_deliveries_nor_as_executions(capture: list[Event]) -> None:
    once, twice = State(max_tasks_in_memory=10_000), State(max_tasks_in_memory=10_000)
    for event in capture:
        once.event(event)
        twice.event(event)
        twice.event(event)

    for uuid, task in once.tasks.items():
        again = twice.tasks[uuid]
        assert (again.deliveries, again.executions) == (task.deliveries, task.executions)
        assert (again.redelivered, again.conflict) == (task.redelivered, task.conflict)
