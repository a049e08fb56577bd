"""Rows for workers, tasks and totals, and for who answered a call and who did not."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from celeriac.model.states import BUILT_IN_STATES, PRECEDENCE, SUCCESS
from celeriac.views.text import visible
from celeriac.views.unit import Count, Seconds

if TYPE_CHECKING:
    from celeriac.core.task import Task
    from celeriac.core.worker import Worker
    from celeriac.node.inspect import Replies
    from celeriac.node.state import State

__all__ = [
    "StatusRow",
    "TaskRow",
    "Totals",
    "WorkerRow",
    "node_names",
    "status_rows",
    "task_rows",
    "totals",
    "worker_rows",
]

_NAME_CHARS: Final = 80
_OUTCOME_CHARS: Final = 100
#: Custom states that are counted by name; the rest together.
_MOST_STATES: Final = 20
_OTHER_STATES: Final = "other"


class WorkerRow(NamedTuple):
    """A worker as its events describe it. Every text is safe to show; None is not known."""

    name: str
    #: ``online``, ``offline`` when it is not heard of any more, ``left`` when it said so.
    status: str
    active: int | None = None
    processed: Count | None = None
    #: Over the last one, five and fifteen minutes.
    load: tuple[float, float, float] | None = None
    version: str | None = None
    pid: int | None = None


class StatusRow(NamedTuple):
    """A node that was asked whether it is there."""

    name: str
    #: ``online``; ``error``; ``silent``: it lives but did not answer; ``absent``: nothing is heard of it.
    status: str
    active: int | None = None
    processed: Count | None = None
    load: tuple[float, float, float] | None = None
    version: str | None = None
    #: Whether it sends task events, ``on`` or ``off``; None while that is unknown.
    events: str | None = None
    #: What an error says.
    note: str | None = None


class TaskRow(NamedTuple):
    """A task and what became of it."""

    uuid: str
    name: str | None
    state: str
    worker: str | None
    attempts: int
    #: Seconds, by the worker's measure.
    runtime: Seconds | None
    #: What it returned or raised.
    outcome: str | None


class Totals(NamedTuple):
    """What the events add up to."""

    events: int
    workers: int
    workers_online: int
    tasks: int
    #: How many tasks are in each state, furthest first; custom states by name.
    tasks_by_state: dict[str, int]


def worker_rows(state: "State") -> list[WorkerRow]:
    """Return the workers, those that are online first, then by name."""
    workers: list[Worker] = state.freeze_while(list, state.workers.values())
    rows = [_worker_row(worker) for worker in workers]
    return sorted(rows, key=lambda row: (row.status != "online", row.name))


def task_rows(state: "State", limit: int | None = None) -> list[TaskRow]:
    """Return the tasks heard of last, newest first."""
    return [_task_row(task) for _, task in state.tasks_by_time(limit=limit)]


def totals(state: "State") -> Totals:
    """Count what the state holds."""
    tasks = state.all_tasks()
    counts = Counter(task.state for task in tasks)
    built_in = [name for name in PRECEDENCE if name is not None and counts[name]]
    custom = sorted(counts.keys() - BUILT_IN_STATES)
    by_state = {name: counts[name] for name in built_in}
    for name in custom[:_MOST_STATES]:
        by_state[visible(name, 40)] = counts[name]
    if custom[_MOST_STATES:]:
        by_state[_OTHER_STATES] = sum(counts[name] for name in custom[_MOST_STATES:])
    return Totals(
        events=state.event_count,
        workers=len(state.workers),
        workers_online=sum(1 for _ in state.alive_workers()),
        tasks=len(tasks),
        tasks_by_state=by_state,
    )


def status_rows(
    replies: "Replies", workers: "Mapping[str, Worker]", task_events: "Mapping[str, bool]"
) -> list[StatusRow]:
    """Return the nodes that replied and those that did not, with the values of their heartbeats.

    ``task_events`` says whether workers send task events, of those where that is known.
    """
    told: dict[str, tuple[str, str | None]] = {
        **dict.fromkeys(replies, ("online", None)),
        **{name: ("error", error) for name, error in replies.errors.items()},
        **dict.fromkeys(replies.silent, ("silent", None)),
        **dict.fromkeys(replies.absent, ("absent", None)),
    }
    rows = []
    for name, (status, note) in sorted(told.items()):
        worker = workers.get(name)
        health = _worker_row(worker) if worker is not None else WorkerRow("", "")
        events = {True: "on", False: "off", None: None}[task_events.get(name)]
        rows.append(StatusRow(visible(name, _NAME_CHARS), status, *health[2:6], events, _shown(note)))
    return rows


def node_names(names: "Replies | list[str]") -> str:
    """Return names in one line, sorted; of many only the first, and how many there are."""
    shown = [visible(name, _NAME_CHARS) for name in sorted(names)]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def _worker_row(worker: "Worker") -> WorkerRow:
    return WorkerRow(
        name=visible(worker.hostname, _NAME_CHARS),
        status="left" if worker.has_left else "online" if worker.alive else "offline",
        active=worker.active,
        processed=worker.processed,
        load=worker.loadavg,
        version=_shown(f"{worker.sw_ident or ''} {worker.sw_ver or ''}".strip(), 40),
        pid=worker.pid,
    )


def _task_row(task: "Task") -> TaskRow:
    state = task.state
    has_succeeded = state == SUCCESS
    return TaskRow(
        uuid=visible(task.uuid, 64),
        name=_shown(task.name, _NAME_CHARS),
        state=visible(state, 40),
        worker=_shown(task.host, _NAME_CHARS),
        attempts=task.attempts,
        runtime=task.runtime if has_succeeded else None,
        outcome=_shown(task.result if has_succeeded else task.exception, _OUTCOME_CHARS),
    )


def _shown(text: str | None, most: int = 200) -> str | None:
    return visible(text, most) if text else None
