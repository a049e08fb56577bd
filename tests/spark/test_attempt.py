from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from celeriac.core import facts
from celeriac.core.attempt import Attempt, attempts_of
from celeriac.core.history import History
from celeriac.core.order import task_key
from celeriac.model.events import (
    Custom,
    Failed,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from celeriac.pipeline.attempt import attempts
from celeriac.pipeline.schema import HISTORY, table_schema
from celeriac.testing.histories import regular_history
from tests.spark.frames import rows
from tests.spark.task_events import ISO, ISO_AT

DAY = "2026-11-14"
ETAS = {"soon": 2.5, "later": 4.5, "2026-11-15T00:00:00+00:00": 1_794_700_800.0, "now": float("nan")}
_GIVEN_UP = (Received, Started, Retried)
_NAN, _INF = float("nan"), float("inf")
#: One event, or none, of each of these makes up a plain task.
_PLAIN = (Sent, Received, Started, Succeeded)
#: The first five are left out of some tasks, so that not all have ended.
_KINDS = (
    Failed,
    Revoked,
    Succeeded,
    Sent,
    Retried,
    Received,
    Started,
    Received,
    Started,
    Retried,
    Rejected,
    Custom,
)


@dataclass
class Case:
    """A task, its events in any order."""

    uuid: str
    events: Sequence[TaskEvent]

    @property
    def history(self) -> History:
        return tuple(sorted({task_key(event): event for event in self.events}.values(), key=task_key))


def wild_event(random: Random, kind: type[TaskEvent]) -> TaskEvent:
    """Return an event with few values, so that events collide in every way they can."""
    fields: dict[str, Any] = {
        "timestamp": random.choice((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),
        "clock": random.choice((0, 1, 2, 3, 4, 5000, 5001)),
        "hostname": random.choice(("a@x", "ü@x")),
        "pid": random.choice((0, 1)),
    }
    if kind in {Sent, Received}:
        fields |= {"retries": random.choice((0, 0, 1, 2)), "eta": random.choice((None, None, *ETAS, "?"))}
    if kind is Succeeded:
        fields["runtime"] = random.choice((None, 0.0, 0.25, _NAN, _INF))
    if kind is Custom:
        fields["subject"] = random.choice(("progress", "success"))
    return kind(uuid="", **fields)


def cases() -> list[Case]:
    """Return histories as they should be, with losses and doubles, and some without any sense."""
    random = Random(8)
    made: list[list[TaskEvent]] = []
    for turn in range(400):
        events = regular_history(random, skew=random.choice((0.0, 100.0)), redelivery=turn % 2 == 0)
        made.append([event for event in events if turn % 4 < 2 or random.random() < 0.7])
    for turn in range(600):
        some = random.choices(_KINDS[turn % 2 * 5 :], k=random.randrange(1, 12))
        kinds = _PLAIN if turn % 3 == 0 else some
        made.append([wild_event(random, kind) for kind in kinds])
    # A task that polls by retrying, in two processes and with a clock that was lost once.
    course = [(turn, place, kind) for turn in range(300) for place, kind in enumerate(_GIVEN_UP)]
    many = [
        kind(
            timestamp=10.0 * turn + place + 1,
            clock=0 if turn == 7 else 3 * turn + place + 1,
            hostname=f"{turn % 2}@x",
            uuid="",
            **({"retries": turn} if kind is Received else {}),
        )
        for turn, place, kind in course
    ]
    made.append(many)
    return [Case(f"task-{number}", events) for number, events in enumerate(made)]


def task_frame(spark: SparkSession, told: Sequence[Case]) -> DataFrame:
    """Return rows of the tasks table, of which only what attempts are made from is there."""
    table = [
        {
            "uuid": case.uuid,
            "name": "größe",
            "queue": None,
            "day": DAY,
            "state": facts.read(case.history).state,
            "history": [tuple(map(_kept(event).get, HISTORY.names)) for event in case.history],
        }
        for case in told
    ]
    schema = table_schema("tasks")
    return spark.createDataFrame([tuple(map(row.get, schema.names)) for row in table], schema)


def _kept(event: TaskEvent) -> dict[str, Any]:
    return {
        "type": event.subject,
        "at": event.timestamp,
        "clock": event.clock,
        "host": event.hostname,
        "pid": event.pid,
        "retries": getattr(event, "retries", None),
        "runtime": getattr(event, "runtime", None),
        "eta_at": ETAS.get(getattr(event, "eta", None) or "?"),
    }


def row_of(uuid: str, attempt: Attempt) -> dict[str, Any]:
    """Return the row of the table that says what an attempt says."""
    told = {name: getattr(attempt, name) for name in attempt.__struct_fields__}
    return {
        "uuid": uuid,
        "name": "größe",
        "queue": None,
        **told,
        "counted_at": attempt.counted_at,
        "day": DAY,
    }


def _name(row: dict[str, Any]) -> tuple[str, int]:
    return row["uuid"], row["retries"]


def test_attempts_are_those_that_the_same_events_give_in_memory(spark: SparkSession) -> None:
    told = cases()
    expected = [row_of(case.uuid, each) for case in told for each in attempts_of(case.history, ETAS.get)]

    frame = attempts(task_frame(spark, told))

    assert frame.schema.fieldNames() == table_schema("attempts").fieldNames()
    assert frame.schema.simpleString() == table_schema("attempts").simpleString()
    made = rows(frame)
    assert len(made) == len(expected)
    assert {_name(row): row for row in made} == {_name(row): row for row in expected}
    # The cases are worth something: every outcome is there, more than once.
    outcomes = [row["outcome"] for row in expected]
    wanted = ("SUCCESS", "FAILURE", "REVOKED", "RETRY", "REJECTED", None)
    assert all(outcomes.count(outcome) > 10 for outcome in wanted)


def test_attempts_of_folded_events_are_those_that_they_give_in_memory(
    frame: DataFrame, events: list[TaskEvent]
) -> None:
    by_task: dict[str, list[TaskEvent]] = {}
    for event in events:
        by_task.setdefault(event.uuid, []).append(event)
    expected = {
        (uuid, each.retries): {name: getattr(each, name) for name in each.__struct_fields__}
        for uuid, told in by_task.items()
        for each in attempts_of(Case(uuid, told).history, {ISO: ISO_AT}.get)
    }

    made = rows(attempts(frame))

    names = Attempt.__struct_fields__
    assert {_name(row): {name: row[name] for name in names} for row in made} == expected
    assert len(made) == len(expected)
