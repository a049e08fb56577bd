"""All that is known of one task: its events in logical order, its attempts, and its relatives."""

from collections.abc import Sequence
from heapq import nsmallest
from typing import Final, NamedTuple

from celeriac.core.attempt import attempts_of
from celeriac.core.order import DisplayKey, display_key
from celeriac.core.task import Task
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Received, Sent, TaskEvent
from celeriac.node.scene import read_eta
from celeriac.node.state import State
from celeriac.views.cell import number_of
from celeriac.views.event import event_line
from celeriac.views.family import Family, live_family
from celeriac.views.task_list import ListedTask, listed
from celeriac.views.text import visible, visible_lines

__all__ = ["AttemptRow", "Relative", "TaskDetail", "TaskEventRow", "event_rows", "task_detail"]

_NAME_CHARS: Final = 120
#: What a task was given and what it returned; Celery cuts both at a thousand or so.
_TEXT_CHARS: Final = 10_000
#: Relatives that are named; a task may send a million.
_MOST_CHILDREN: Final = 500


class TaskEventRow(NamedTuple):
    """One event of a task. Timestamps are seconds since the epoch, by the clock of the sender."""

    type: str
    at: float | None
    #: The Lamport clock; None where the sender had none.
    clock: int | None
    node: str
    pid: int
    #: What matters for this type.
    detail: str


class AttemptRow(NamedTuple):
    """One attempt; durations are seconds."""

    #: From 0.
    number: int
    worker: str
    #: The name of the worker itself, which may not be safe to show.
    worker_key: str
    pid: int
    received_at: float | None
    started_at: float | None
    ended_at: float | None
    outcome: str | None
    #: From when it could have run to its start.
    wait: float | None
    run: float | None


class Relative(NamedTuple):
    """Another task that this one sent, or was sent by."""

    uuid: str
    #: The id itself, which may not be safe to show.
    key: str
    name: str | None
    #: None if it is not in memory.
    state: str | None


class TaskDetail(NamedTuple):
    """A task and what became of it. Every text is safe to show, but for keys."""

    task: ListedTask
    #: Where it is now: queued, received, running, retry_wait, requeued or done.
    phase: str
    client: str | None
    root_id: str | None
    #: The id of the root itself.
    root_key: str | None
    parent_id: str | None
    retries: int | None
    eta: str | None
    expires: str | None
    args: str | None
    kwargs: str | None
    result: str | None
    exception: str | None
    traceback: list[str]
    #: How often a worker received and started it.
    deliveries: int
    executions: int
    #: Whether it both succeeded and failed, or succeeded twice.
    is_conflict: bool
    events: list[TaskEventRow]
    attempts: list[AttemptRow]
    parent: Relative | None
    children: list[Relative]
    #: How many tasks it sent that are not in ``children``.
    more_children: int
    family: Family


def task_detail(state: State, uuid: str) -> TaskDetail | None:
    """Return what is known of a task; None if that is nothing."""
    task: Task | None = state.tasks.get(uuid)
    if task is None:
        return None
    children = task.children
    return TaskDetail(
        task=listed(task),
        phase=task.phase,
        client=_shown(task.client, _NAME_CHARS),
        root_id=_shown(task.root_id, _NAME_CHARS),
        root_key=task.root_id,
        parent_id=_shown(task.parent_link, _NAME_CHARS),
        retries=task.retries,
        eta=_shown(task.eta, _NAME_CHARS),
        expires=_shown(task.expires, _NAME_CHARS),
        args=_shown(task.args),
        kwargs=_shown(task.kwargs),
        result=_shown(task.result),
        exception=_shown(task.exception),
        traceback=visible_lines(task.traceback, 500) if task.traceback else [],
        deliveries=task.deliveries,
        executions=task.executions,
        is_conflict=task.conflict,
        events=event_rows(task.history),
        attempts=_attempt_rows(task),
        parent=None if task.parent_link is None else _relative(task.parent_link, task.parent),
        children=_children(children),
        more_children=max(len(children) - _MOST_CHILDREN, 0),
        family=live_family(state, uuid),
    )


def event_rows(events: Sequence[TaskEvent]) -> list[TaskEventRow]:
    """Return the events of one task in logical order: a cause before its effect."""
    receipts: dict[int, int] = {}
    for event in events:
        if isinstance(event, Received):
            received = event.display_clock
            receipts[event.retries] = min(received, receipts.get(event.retries, received))

    def turn(event: TaskEvent) -> tuple[int, bool, DisplayKey]:
        # Celery: each receiver overwrites the clock of task-sent with its own, which is later than what came
        # of it. It comes before the receipt of what it sent.
        is_sent = isinstance(event, Sent)
        own = event.display_clock
        clock = receipts.get(event.retries, own) if isinstance(event, Sent) else own
        return clock, not is_sent, display_key(event)

    rows = []
    for event in sorted(events, key=turn):
        line = event_line(event)
        clock = None if event.clock == NO_CLOCK else event.clock
        at = number_of(event.timestamp) or None
        rows.append(TaskEventRow(line.type, at, clock, line.node, event.pid, line.detail))
    return rows


def _attempt_rows(task: Task) -> list[AttemptRow]:
    return [
        AttemptRow(
            each.retries,
            visible(each.worker, _NAME_CHARS),
            each.worker,
            each.pid,
            each.received_at,
            each.started_at,
            each.ended_at,
            each.outcome,
            number_of(each.wait),
            number_of(each.run),
        )
        for each in attempts_of(task.history, read_eta)
    ]


def _children(children: set[Task]) -> list[Relative]:
    known = nsmallest(_MOST_CHILDREN, children, key=lambda child: child.heard)
    return [_relative(child.uuid, child) for child in known]


def _relative(uuid: str, task: Task | None) -> Relative:
    shown = visible(uuid, _NAME_CHARS)
    if task is None:
        return Relative(shown, uuid, None, None)
    return Relative(shown, uuid, _shown(task.name, _NAME_CHARS), visible(task.state, 40))


def _shown(text: str | None, most: int = _TEXT_CHARS) -> str | None:
    return visible(text, most) if text else None
