"""The state of a cluster as plain records, and back: who goes on from them might never have stopped.

Records share the events of the state, which never change. So to take a snapshot is quick, and it may be
written while the state goes on.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from celeriac.core import facts
from celeriac.core.history import CAPS, History
from celeriac.core.order import task_key
from celeriac.core.share import share_description
from celeriac.core.state import MAX_GAPS, ClusterState
from celeriac.core.task import Task
from celeriac.core.worker import HEARTBEATS_KEPT, Worker
from celeriac.errors import CallerError
from celeriac.model.events import (
    TASK_EVENTS,
    Clock,
    Count,
    Described,
    Frequency,
    Gap,
    Load,
    Name,
    TaskEvent,
    Timestamp,
    UtcOffset,
)

if TYPE_CHECKING:
    from celeriac.core.redaction import Redactor

__all__ = ["MAX_HISTORY", "Snapshot", "TaskRecord", "WorkerRecord", "redacted", "restore", "take"]

#: The most events that a task has: those of each type at their cap.
MAX_HISTORY: Final = sum(CAPS.values())

_Finite = Annotated[float, Meta(ge=-1e12, le=1e12)]


class WorkerRecord(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Everything that is remembered of a worker."""

    hostname: Name
    pid: Count | None
    freq: Frequency
    heartbeats: Annotated[tuple[_Finite, ...], Meta(max_length=HEARTBEATS_KEPT)]
    clock: Clock
    active: Count | None
    processed: Count | None
    loadavg: tuple[Load, Load, Load] | None
    sw_ident: str | None
    sw_ver: str | None
    sw_sys: str | None
    timestamp: Timestamp | None
    utcoffset: UtcOffset | None
    drift: _Finite | None
    drift_told: bool
    has_left: bool
    is_member: bool
    seen_at: _Finite


class TaskRecord(NamedTuple):
    """Everything that is remembered of a task: the rest is read from its events."""

    uuid: str
    history: History
    #: The latest event in display order. It may be gone from the history.
    latest: TaskEvent | None


class Snapshot(NamedTuple):
    """A state as it was at one moment; all in the order in which it would be forgotten."""

    taken_at: float
    event_count: int
    task_count: int
    workers: Sequence[WorkerRecord]
    tasks: Sequence[TaskRecord]
    gaps: Sequence[Gap]


#: Fields of a worker that a record has as they are.
_PLAIN: Final = tuple(
    name for name in WorkerRecord.__struct_fields__ if name not in {"hostname", "heartbeats", "seen_at"}
)


def take(state: ClusterState, *, now: float) -> Snapshot:
    """Return what a state holds. The caller holds its lock, if there is one."""
    return Snapshot(
        taken_at=now,
        event_count=state.event_count,
        task_count=state.task_count,
        workers=[_worker_record(worker) for worker in state.workers.values()],
        tasks=[TaskRecord(task.uuid, task.history, task.latest) for task in state.tasks.values()],
        gaps=list(state.gaps),
    )


def _worker_record(worker: Worker) -> WorkerRecord:
    fields = {name: getattr(worker, name) for name in _PLAIN}
    heartbeats = tuple(worker.heartbeats)
    return WorkerRecord(hostname=worker.hostname, heartbeats=heartbeats, seen_at=worker.seen_at, **fields)


def redacted(snapshot: Snapshot, redactor: "Redactor") -> Snapshot:
    """Return a snapshot without what must not be written, as the rules for each task say."""
    return snapshot._replace(
        tasks=[_redacted(task, redactor) for task in snapshot.tasks],
        gaps=[replace(gap, reason=redactor.text(gap.reason)) for gap in snapshot.gaps],
    )


def _redacted(task: TaskRecord, redactor: "Redactor") -> TaskRecord:
    name = facts.read(task.history).name
    made = {id(event): redactor.event(event, name) for event in task.history}
    latest = task.latest and (made.get(id(task.latest)) or redactor.event(task.latest, name))
    return TaskRecord(task.uuid, tuple(made.values()), latest)  # type: ignore[arg-type]  # of the same types


def restore(state: ClusterState, snapshot: Snapshot, *, now: Callable[[], float]) -> None:
    """Let a state hold what a snapshot does, and nothing else; ``now`` is the clock that workers live by.

    Raises CallerError for a snapshot that no state can have given; the state is then as it was.
    """
    _check_counts(snapshot)
    workers = [_worker(record, now) for record in snapshot.workers]
    # One copy of each name, as the state has it: tasks compare them by what they are, not by what they say.
    names = {worker.hostname: worker.hostname for worker in workers}
    tasks = [_task(record, state, names) for record in snapshot.tasks]
    state.replace(
        workers=workers,
        tasks=tasks,
        gaps=snapshot.gaps,
        event_count=snapshot.event_count,
        task_count=snapshot.task_count,
    )


def _check_counts(snapshot: Snapshot) -> None:
    _check_distinct("worker", [record.hostname for record in snapshot.workers])
    _check_distinct("task", [record.uuid for record in snapshot.tasks])
    if len(snapshot.gaps) > MAX_GAPS:
        raise CallerError(f"{len(snapshot.gaps)} gaps, more than the limit of {MAX_GAPS}")
    if min(snapshot.event_count, snapshot.task_count) < 0:
        raise CallerError("a negative number of events")


def _check_distinct(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise CallerError(f"duplicate {what}")


def _worker(record: WorkerRecord, now: Callable[[], float]) -> Worker:
    worker = Worker(record.hostname, now=now)
    worker.see(record.seen_at)  # before it has left: who did is seen no more
    worker.heartbeats = list(record.heartbeats)
    for name in _PLAIN:
        setattr(worker, name, getattr(record, name))
    return worker


def _task(record: TaskRecord, state: ClusterState, names: dict[str, str]) -> Task:
    uuid, past, latest = record
    events = past if latest is None or any(latest is event for event in past) else (*past, latest)
    _check_events(uuid, events, past)
    for place, event in enumerate(events):
        force_setattr(event, "uuid", uuid)
        force_setattr(event, "hostname", names.setdefault(event.hostname, event.hostname))
        if isinstance(event, Described):
            share_description(event, uuid, past[:1] if place else ())
    return Task.restored(uuid, state, past=past, latest=latest)


def _check_events(uuid: str, events: Iterable[TaskEvent], past: History) -> None:
    if not past:
        raise CallerError(f"task {uuid!r} has no events")
    if len(past) > MAX_HISTORY:
        raise CallerError(f"task {uuid!r} has {len(past)} events, more than the limit of {MAX_HISTORY}")
    if any(type(event) not in TASK_EVENTS or event.uuid != uuid for event in events):
        raise CallerError(f"task {uuid!r} has an event of another task")
    keys = [task_key(event) for event in past]
    if any(one >= other for one, other in pairwise(keys)):
        raise CallerError(f"the events of task {uuid!r} are out of order")
