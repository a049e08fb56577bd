"""The laws of the fold for any events that Hypothesis comes up with, on small frames."""

from typing import Any, Final

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from celeriac.core.order import TaskKey, task_key
from celeriac.model.events import TaskEvent
from celeriac.model.table import INNER_COLUMNS
from celeriac.pipeline.event import narrow
from celeriac.pipeline.fold import events_of, fold
from celeriac.pipeline.schema import table_schema
from tests.live import IS_LONG
from tests.property.strategies import UUID
from tests.property.strategies import events_of as any_events
from tests.spark.frames import RECORDER, raw_frame, rows
from tests.spark.task_rows import expected_rows

#: An example takes seconds, as Spark does for each job, however many tasks there are: so it has many.
_FEW: Final = settings(
    max_examples=200 if IS_LONG else 1,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
    ],
)
#: Of two jobs.
_FEWER: Final = settings(_FEW, max_examples=70 if IS_LONG else 1)
#: The first example that Hypothesis tries is empty, or nearly so: it is not the only one then.
_LEAST_EVENTS: Final = 0 if IS_LONG else 20
#: Which row of the log says so is up to the order in which they were written, unlike all else.
_ROWS: Final = ("description_row", "result_row", "error_row")
_RECEIVED_AT: Final = 1_790_000_000.0

Row = dict[str, Any]


@st.composite
def histories(draw: st.DrawFn) -> list[TaskEvent]:
    """Return events of some tasks, each event once and each with one content."""
    uuids = [UUID, "p", *(f"6d1f0c1e-0000-4000-8000-00000000000{digit}" for digit in "0123456789abcdef")]
    drawn = [event for _ in range(12) for event in draw(any_events(st.sampled_from(uuids)))]
    told: dict[tuple[str, TaskKey], TaskEvent] = {}
    for event in drawn:
        told.setdefault((event.uuid, task_key(event)), event)
    assume(len(told) >= _LEAST_EVENTS)
    return [_received(event) for event in told.values()]


def _received(event: TaskEvent) -> TaskEvent:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return type(event)(**fields | {"local_received": _RECEIVED_AT})


def _frame(spark: SparkSession, events: list[TaskEvent]) -> DataFrame:
    return narrow(raw_frame(spark, events), [RECORDER])


def _told(tasks: DataFrame, *left_out: str) -> list[Row]:
    made = [{name: row[name] for name in row if name not in left_out} for row in rows(tasks)]
    return sorted(made, key=lambda row: str(row["uuid"]))


@_FEW
@given(events=histories())
def test_any_events_give_the_tasks_that_the_state_has(
    split_spark: SparkSession, events: list[TaskEvent]
) -> None:
    told = _told(fold(_frame(split_spark, events)), *INNER_COLUMNS, "day")

    assert told == expected_rows(events)


@_FEWER
@given(events=histories(), data=st.data())
def test_neither_order_nor_doubles_nor_several_runs_matter(
    split_spark: SparkSession, events: list[TaskEvent], data: st.DataObject
) -> None:
    disturbed = data.draw(st.permutations([*events, *events[::2]]))
    cut = data.draw(st.integers(0, len(disturbed)))
    before = fold(_frame(split_spark, disturbed[:cut])).collect()
    known = events_of(split_spark.createDataFrame(before, table_schema("tasks")))

    in_two_runs = fold(known.unionByName(_frame(split_spark, disturbed[cut:])))

    expected = [{name: row[name] for name in row if name not in _ROWS} for row in expected_rows(events)]
    assert _told(in_two_runs, *INNER_COLUMNS, *_ROWS, "day") == expected
