"""Snapshots in a database: states to take them of, and the rows that they give."""

from collections.abc import Iterable
from random import Random
from typing import Any

from sqlalchemy import select

from celeriac import State
from celeriac.core.history import History
from celeriac.core.order import task_key
from celeriac.model.events import Custom, Event, TaskEvent, WorkerHeartbeat
from celeriac.store.database_camera import DatabaseCamera
from celeriac.store.database_row import decode_events
from celeriac.store.database_table import TASK_FIELDS
from celeriac.testing.histories import regular_history

__all__ = ["cluster_events", "expected_tasks", "state_of", "stored_tasks", "stored_workers"]

Rows = dict[str, dict[str, Any]]


def state_of(events: Iterable[Event]) -> State:
    """Return a state that has taken some events, each a second after the one before."""
    state = State(now=lambda: 1e9)
    for number, event in enumerate(events):
        state.take([event], 1e9 + number)
    return state


def cluster_events(random: Random, *, tasks: int) -> list[Event]:
    """Return the events of some tasks, mixed, and a heartbeat after every fifth."""
    histories = [regular_history(random, redelivery=True) for _ in range(tasks)]
    events: list[Event] = []
    while histories:
        past = random.choice(histories)
        event = past.pop(0)
        histories = [each for each in histories if each]
        events.append(event)
        if len(events) % 5 == 0:
            events.append(_heartbeat(event, processed=len(events)))
    return events


def _heartbeat(event: TaskEvent, *, processed: int) -> WorkerHeartbeat:
    return WorkerHeartbeat(
        timestamp=1.8e9 + processed,
        clock=processed,
        hostname="w1@lab",
        pid=event.pid,
        freq=2.0,
        active=1,
        processed=processed,
        loadavg=(0.5, 0.25, 0.125),
        sw_ident="py-celery",
    )


def expected_tasks(state: State) -> Rows:
    """Return what is to be read of the tasks of a state in a database."""
    fields = [name for name in TASK_FIELDS if name != "worker"]
    return {
        uuid: {name: getattr(task, name) for name in fields}
        | {"worker": task.host, "events": _keys(task.history)}
        for uuid, task in state.tasks.items()
    }


def stored_tasks(camera: DatabaseCamera) -> Rows:
    """Return what is to be read of the tasks in a database, without who wrote it and when."""
    with camera.engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(select(camera.tables.tasks)).mappings()]
    return {
        row["uuid"]: {name: row[name] for name in TASK_FIELDS}
        | {"events": _keys(decode_events(row["history"]))}
        for row in rows
    }


def _keys(past: History) -> list[object]:
    # Of custom events a long history keeps the last of each host for sure, and perhaps others.
    return [task_key(event) for event in past if type(event) is not Custom]


def stored_workers(camera: DatabaseCamera) -> Rows:
    """Return the workers in a database, without how often they were written."""
    with camera.engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(select(camera.tables.workers)).mappings()]
    return {row["hostname"]: {name: row[name] for name in row if name != "version"} for row in rows}
