from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from celeriac.core import history
from celeriac.core.order import TaskKey, task_key
from celeriac.model.events import (
    Custom,
    Received,
    Retried,
    Started,
    TaskEvent,
)
from celeriac.model.states import BUILT_IN_STATES
from celeriac.model.table import INNER_COLUMNS
from celeriac.pipeline import odd, plain
from celeriac.pipeline.event import narrow
from celeriac.pipeline.fold import events_of, fold
from celeriac.pipeline.schema import table_schema
from tests.live import IS_LONG
from tests.property.strategies import tight_bounds
from tests.spark.frames import RECORDER, raw_frame, rows
from tests.spark.task_events import Row
from tests.spark.task_rows import expected_rows, kept

_TYPES = ("received", "started", "succeeded", "failed", "retried", "rejected", "revoked")


def narrow_frame(spark: SparkSession, events: Sequence[TaskEvent], *, first: int = 1) -> DataFrame:
    return narrow(raw_frame(spark, events, first=first), [RECORDER])


def by_uuid(tasks: Iterable[Row]) -> list[Row]:
    return sorted(tasks, key=lambda row: str(row["uuid"]))


def without(tasks: Iterable[Row], *names: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in by_uuid(tasks)]


# -- the laws


@pytest.fixture(scope="module")
def tasks(frame: DataFrame) -> list[Row]:
    return by_uuid(rows(frame))


def test_tasks_are_what_the_state_says_of_the_same_events(events: list[TaskEvent], tasks: list[Row]) -> None:
    expected = expected_rows(events)

    told = without(tasks, *INNER_COLUMNS, "day")

    differences = [
        (row["uuid"], name, row[name], other[name])
        for row, other in zip(told, expected, strict=True)
        for name in other
        if row[name] != other[name]
    ]
    assert differences == []
    assert {row["state"] for row in told} > {*BUILT_IN_STATES, "PROGRESS", "GRÖSSE"}
    assert {row["phase"] for row in told} == {
        "queued",
        "received",
        "running",
        "retry_wait",
        "requeued",
        "done",
    }


def test_the_events_of_a_task_are_kept_each_once(
    events: list[TaskEvent], frame: DataFrame, tasks: list[Row]
) -> None:
    expected: dict[str, dict[TaskKey, Row]] = {}
    for row, event in enumerate(events, 1):
        of_task = expected.setdefault(event.uuid, {})
        before = of_task.get(task_key(event), {"clock": 0})
        of_task[task_key(event)] = kept(event, row=row, clock=max(event.clock, before["clock"]))
    told: dict[str, list[Row]] = {}
    for found in rows(events_of(frame).drop("seen_at")):
        told.setdefault(found.pop("uuid"), []).append(found)

    assert {uuid: sorted(each, key=repr) for uuid, each in told.items()} == {
        uuid: sorted(by_key.values(), key=repr) for uuid, by_key in expected.items()
    }
    in_order = {row["uuid"]: row["history"] for row in tasks if row["course"] is None}
    assert in_order == {uuid: [expected[uuid][key] for key in sorted(expected[uuid])] for uuid in in_order}
    # Both ways to keep them are tried, and each task has one.
    assert 100 < len(in_order) < len(tasks) - 100
    assert all((row["course"] is None) != (row["history"] is None) for row in tasks)


def test_a_task_is_filed_under_the_day_on_which_it_was_first_seen(tasks: list[Row]) -> None:
    days = {row["seen_at"]: row["day"] for row in tasks}

    assert days[1_790_000_000.0] == "2026-09-21"
    assert days[1_790_086_400.5] == "2026-09-22"


def test_events_that_come_later_are_joined_to_a_task(
    spark: SparkSession, events: list[TaskEvent], tasks: list[Row]
) -> None:
    half = len(events) // 2
    before = spark.createDataFrame(fold(narrow_frame(spark, events[:half])).collect(), table_schema("tasks"))
    later = narrow_frame(spark, events[half:], first=half + 1)

    joined = fold(events_of(before).unionByName(later))

    assert joined.schema.simpleString() == table_schema("tasks").simpleString()
    assert by_uuid(rows(joined)) == tasks


def test_the_bounds_of_a_history_are_those_of_the_state(spark: SparkSession, events: list[TaskEvent]) -> None:
    half = len(events) // 2
    with tight_bounds():
        before = spark.createDataFrame(
            odd.odd_tasks(narrow_frame(spark, events[:half])).collect(), _without_day()
        )
        later = narrow_frame(spark, events[half:], first=half + 1)

        joined = rows(odd.odd_tasks(events_of(before).unionByName(later)))

        expected = expected_rows(events)
    names = (*INNER_COLUMNS, "seen_at", "first_at", "last_at")
    assert without(joined, *names) == without(expected, *names)
    of_types = Counter(
        (row["uuid"], e["type"]) for row in joined for e in row["history"] if e["type"] in _TYPES
    )
    assert set(of_types.values()) == {1, 2, 3, 4}


def test_a_task_that_polls_by_retrying_is_read_as_the_state_reads_it(spark: SparkSession) -> None:
    polling = [event for number in range(1500) for event in attempt("polling", number)][:-1]
    told_much = [custom("much", number) for number in range(1, 200)]
    events = [*polling, *told_much, Received(**sender(10.0), uuid="much")]

    told = by_uuid(rows(odd.odd_tasks(narrow_frame(spark, events))))

    assert without(told, *INNER_COLUMNS) == expected_rows(events)
    assert [(row["state"], row["deliveries"]) for row in told] == [("TOLD", 1), ("STARTED", 1024)]
    assert len(told[0]["history"]) <= 1 + 2 * history.CAPS[Custom]


def test_tasks_whose_each_thing_happened_once_are_read_the_same_from_their_events(
    spark: SparkSession, events: list[TaskEvent], tasks: list[Row]
) -> None:
    told = rows(odd.odd_tasks(narrow_frame(spark, events)))

    assert without(told, *INNER_COLUMNS) == without(tasks, *INNER_COLUMNS, "day")


def test_a_task_whose_texts_do_not_fit_in_memory_is_read_from_its_events(
    spark: SparkSession, events: list[TaskEvent], tasks: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "MAX_TEXTS", 3)

    told = rows(fold(narrow_frame(spark, events)))

    assert without(told, *INNER_COLUMNS) == without(tasks, *INNER_COLUMNS)
    assert sum(row["course"] is not None for row in told) < sum(row["course"] is not None for row in tasks)


def test_twins_of_one_identity_leave_the_same_one_whichever_was_recorded_last(spark: SparkSession) -> None:
    def twins(uuid: str) -> tuple[TaskEvent, TaskEvent]:
        one, other = (
            Received(**sender(1.0), uuid=uuid, name=name, root_id=root)
            for name, root in (("b", "twin"), ("a", "other"))
        )
        return one, other

    (one, other), (mirrored, image) = twins("straight"), twins("turned")

    told = rows(fold(narrow_frame(spark, [one, other, one, other, image, mirrored, image, mirrored])))

    names = ("uuid", "name", "root_id", "description_row")
    assert [tuple(each[name] for name in names) for each in told] == [
        ("straight", "b", "twin", 3),
        ("turned", "b", "twin", 8),
    ]


def test_most_tasks_are_summed_up_by_hash_and_without_python(spark: SparkSession) -> None:
    summed = plain.sums(narrow_frame(spark, [Received(**sender(1.0), uuid="x")]))

    plan = summed._jdf.queryExecution().executedPlan().toString()

    assert plan.count("HashAggregate") == 2
    for slow in ("ObjectHashAggregate", "SortAggregate", "Sort ", "Python"):
        assert slow not in plan


@pytest.mark.parametrize(
    ("rule", "planted"),
    [
        ("odd._follows", lambda *_: F.lit(True)),
        ("plain._id", lambda kin: F.when(F.col(f"described_{kin}") == 1, F.col("uuid"))),
        *(
            [
                ("odd._is_state", lambda *_: F.lit(False)),
                ("odd._of_last_attempt", lambda told: F.try_element_at(told, F.lit(-1))),
                ("plain._start_follows", lambda: F.lit(True)),
            ]
            if IS_LONG
            else []
        ),
    ],
)
def test_a_wrong_rule_is_noticed(
    spark: SparkSession,
    events: list[TaskEvent],
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    planted: object,
) -> None:
    monkeypatch.setattr(f"celeriac.pipeline.{rule}", planted)

    told = rows(fold(narrow_frame(spark, events)))

    assert without(told, *INNER_COLUMNS, "day") != expected_rows(events)


def sender(at: float, *, clock: int = 1, host: str = "a@x") -> Row:
    return {"timestamp": at, "clock": clock, "hostname": host, "pid": 1}


def attempt(uuid: str, number: int) -> list[TaskEvent]:
    at, clock = 10.0 * number, 3 * number
    return [
        Received(**sender(at + 1, clock=clock + 1), uuid=uuid, retries=number),
        Started(**sender(at + 2, clock=clock + 2), uuid=uuid),
        Retried(**sender(at + 3, clock=clock + 3), uuid=uuid),
    ]


def custom(uuid: str, number: int) -> TaskEvent:
    is_of_receiver = number == 100
    host = "a@x" if is_of_receiver else f"h{number % 50}@x"
    return Custom(**sender(float(number), host=host), uuid=uuid, subject="told" if is_of_receiver else "else")


def _without_day() -> StructType:
    return StructType(table_schema("tasks").fields[:-1])
