"""Tables against the in-memory fold: the same events, by other code."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from secrets import randbits
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from celeriac.core.coverage import Span, is_within
from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.errors import CallerError
from celeriac.pipeline.intake import Intake, covered_spans
from celeriac.pipeline.report import Difference, Verified
from celeriac.pipeline.row import ROWS_OF_A_RECORDER
from celeriac.pipeline.warehouse import Warehouse
from celeriac.store.columns import SCHEMA, to_events

__all__ = ["COMPARED", "is_same", "verified"]

#: What is compared, and what it is called in memory.
COMPARED: Final[dict[str, Callable[[Task], object]]] = {
    "name": lambda task: task.name,
    "state": lambda task: task.state,
    "phase": lambda task: task.phase,
    "worker": lambda task: task.host,
    "client": lambda task: task.client,
    "queue": lambda task: task.queue,
    "root_id": lambda task: task.root_id,
    "parent_id": lambda task: task.parent_link,
    "attempts": lambda task: task.attempts,
    "deliveries": lambda task: task.deliveries,
    "executions": lambda task: task.executions,
    "is_redelivered": lambda task: task.redelivered,
    "is_conflict": lambda task: task.conflict,
    "sent_at": lambda task: task.sent,
    "received_at": lambda task: task.received,
    "started_at": lambda task: task.started,
    "succeeded_at": lambda task: task.succeeded,
    "failed_at": lambda task: task.failed,
    "retried_at": lambda task: task.retried,
    "revoked_at": lambda task: task.revoked,
    "rejected_at": lambda task: task.rejected,
    "state_at": lambda task: task.timestamp,
    "clock": lambda task: task.clock,
    "runtime": lambda task: task.runtime,
}


def verified(spark: SparkSession, intake: Intake, warehouse: Warehouse, *, sample: int) -> Verified:
    """Take some tasks of the table at random, fold their events from the log in memory, and compare."""
    manifest = warehouse.manifest()
    files = (
        []
        if manifest is None
        else [each for day in manifest.tables.get("tasks", {}).values() for each in day]
    )
    if manifest is None or not files:
        raise CallerError(f"{warehouse.place.url} has no tasks to verify: run celeriac pipeline run first")
    order = F.xxhash64("uuid", F.lit(randbits(32)))
    chosen = warehouse.read("tasks", files).orderBy(order).limit(sample).collect()
    told = {row["uuid"]: row.asDict() for row in chosen}
    rows = _rows_of(spark, intake, list(told), covered_spans(manifest))
    codes = {recorder: code for code, recorder in enumerate(manifest.recorders)}
    expired, events, differences = 0, 0, list[Difference]()
    for uuid, table in told.items():
        mine = rows.get(uuid, [])
        known = {codes.get(row["recorder"], -1) * ROWS_OF_A_RECORDER + row["sequence"] for row in mine}
        if not known >= _rows_in(table):
            expired += 1
            continue
        events += len(mine)
        differences += _compared(uuid, table, mine)
    return Verified(len(told) - expired, events, expired, differences)


def _rows_in(task: dict[str, Any]) -> set[int]:
    """Return the references of all events that a task was made from."""
    if task["course"] is None:
        return {event["row"] for event in task["history"]}
    named = task["course"].asDict()
    return {row for name, row in named.items() if name.endswith("_row") and row is not None}


def _rows_of(
    spark: SparkSession, intake: Intake, ids: Sequence[str], covered: Sequence[Span]
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the log that are in the tables, of some tasks, in the order of their receipt."""
    segments = [each for each in intake.checked(intake.segments()).segments if _is_near(each, covered)]
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if not segments:
        return found
    wanted = F.broadcast(spark.createDataFrame([(each,) for each in ids], "uuid string"))
    rows = intake.raw(segments).where(F.col("type").startswith("task-")).join(wanted, "uuid", "left_semi")
    for row in rows.orderBy("recorder", "sequence").collect():
        if is_within(Span(row["recorder"], row["sequence"], row["sequence"]), covered):
            found[row["uuid"]].append(row.asDict())
    return found


def _is_near(segment: Any, covered: Sequence[Span]) -> bool:
    return any(
        each.recorder == segment.recorder and each.first <= segment.last and segment.first <= each.last
        for each in covered
    )


def _compared(uuid: str, table: dict[str, Any], rows: list[dict[str, Any]]) -> list[Difference]:
    state = ClusterState(now=lambda: 0.0)
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    for event in to_events(batch):
        state.apply(event, event.local_received)
    task = state.tasks.get(uuid)
    if task is None:
        return [Difference(uuid, "uuid", uuid, None)]
    return [
        Difference(uuid, column, table[column], memory)
        for column, read in COMPARED.items()
        if not is_same(table[column], memory := read(task))
    ]


def is_same(table: object, memory: object) -> bool:
    """Say whether a table has what the memory has: a moment that no clock told is 0 there, and null here."""
    return table == memory or (table is None and memory == 0.0)
