"""The table of tasks as the in-memory fold has it."""

from collections.abc import Sequence
from typing import Any

from celeriac.core import facts, history
from celeriac.core.order import TaskKey, task_key
from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.model.events import TaskEvent
from celeriac.pipeline.event import COLUMNS
from tests.spark.task_events import ISO, ISO_AT

Row = dict[str, Any]


def expected_rows(events: Sequence[TaskEvent], *, first: int = 1) -> list[Row]:
    """Return the table as the in-memory fold has it; ``events`` are rows of one recorder from ``first``."""
    told: dict[str, list[tuple[int, TaskEvent]]] = {}
    for row, event in enumerate(events, first):
        told.setdefault(event.uuid, []).append((row, event))
    made = [expected_row(numbered) for numbered in told.values()]
    return sorted(made, key=lambda row: str(row["uuid"]))


def expected_row(numbered: Sequence[tuple[int, TaskEvent]]) -> Row:
    events = [event for _, event in numbered]
    state = ClusterState(now=lambda: 0.0)
    task = Task.restored(events[0].uuid, state, past=history.merge((), tuple(events)), latest=None)
    row_of: dict[TaskKey | None, int] = {}
    for row, event in numbered:
        row_of[task_key(event)] = max(row, row_of.get(task_key(event), row))
    known = task.facts

    def reference(event: TaskEvent | None) -> int | None:
        return None if event is None else row_of[task_key(event)]

    moments = [event.timestamp for event in events if event.timestamp > 0]
    seen_at = min(event.local_received or event.timestamp for event in events)
    return {
        "uuid": task.uuid,
        "name": known.name,
        "state": task.state,
        "phase": task.phase,
        "worker": known.worker,
        "client": task.client,
        "queue": task.queue,
        "root_id": task.root_id,
        "parent_id": facts.parent_link(task.history),
        "retries": task.retries,
        "attempts": task.attempts,
        "deliveries": task.deliveries,
        "executions": task.executions,
        "is_redelivered": task.redelivered,
        "is_conflict": task.conflict,
        "sent_at": task.sent,
        "received_at": task.received,
        "started_at": task.started,
        "succeeded_at": task.succeeded,
        "failed_at": task.failed,
        "retried_at": task.retried,
        "revoked_at": task.revoked,
        "rejected_at": task.rejected,
        "state_at": task.timestamp,
        "clock": task.clock,
        "runtime": task.runtime,
        "first_at": min(moments, default=None),
        "last_at": max(moments, default=None),
        "seen_at": seen_at,
        "description_row": reference(known.description),
        "result_row": reference(known.succeeded),
        "error_row": reference(known.raised),
    }


def kept(event: TaskEvent, *, row: int, clock: int) -> Row:
    """Return what a history has of an event."""
    told = {name: getattr(event, name, None) for name in ("name", "queue", "root_id", "parent_id", "runtime")}
    is_eta = getattr(event, "eta", None) == ISO
    fixed = {
        "type": event.subject,
        "at": event.timestamp,
        "clock": clock,
        "host": event.hostname,
        "pid": event.pid,
        "retries": getattr(event, "retries", 0),
        "eta_at": ISO_AT if is_eta else None,
        "requeue": getattr(event, "requeue", None),
        "row": row,
    }
    return {name: (told | fixed)[name] for name in COLUMNS}
