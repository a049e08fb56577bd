"""Tasks as traces: a span for each task, from when it was sent to its end, and below it one for each attempt.

A trace is a workflow. Ids follow from those of tasks, so that to export twice tells the same spans.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from celeriac.core.attempt import Attempt, attempts_of
from celeriac.core.task import Task
from celeriac.model.states import FAILURE, REVOKED, SUCCESS
from celeriac.node.scene import read_eta
from celeriac.views.text import visible

__all__ = ["TaskSpan", "task_spans"]

_NAME_CHARS: Final = 200
_TEXT_CHARS: Final = 1000
_FAILED: Final = frozenset({FAILURE, REVOKED})


class TaskSpan(NamedTuple):
    """A span. Moments are seconds of the epoch."""

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    begin_at: float
    end_at: float
    #: None while that is not known, or if it ended neither well nor badly.
    is_ok: bool | None
    #: What went wrong.
    note: str | None
    attributes: dict[str, str | int | float | bool]


def task_spans(task: Task) -> Iterator[TaskSpan]:
    """Yield the spans of a task that has ended; none of another, or of one of which no time is known."""
    moments = [event.timestamp for event in task.history if event.timestamp > 0]
    if not task.ready or not moments:
        return
    state, root = task.state, task.root_id or task.uuid
    trace = _number(root, "trace", size=16) if not _is_uuid(root) else UUID(root).int
    name = visible(task.name or "(unknown)", _NAME_CHARS)
    parent = task.parent_link
    own = _number(task.uuid, "task")
    attributes: dict[str, str | int | float | bool | None] = {
        "messaging.system": "celery",
        "messaging.message.id": visible(task.uuid, _NAME_CHARS),
        "messaging.destination.name": None if task.queue is None else visible(task.queue, _NAME_CHARS),
        "celery.task_name": name,
        "celery.state": visible(state, 40),
        "celery.hostname": None if task.host is None else visible(task.host, _NAME_CHARS),
        "celery.attempts": task.attempts,
    }
    yield TaskSpan(
        trace,
        own,
        None if parent is None else _number(parent, "task"),
        name,
        min(moments),
        max(moments),
        True if state == SUCCESS else False if state in _FAILED else None,
        visible(task.exception, _TEXT_CHARS) if state in _FAILED and task.exception else None,
        {key: value for key, value in attributes.items() if value is not None},
    )
    for attempt in attempts_of(task.history, read_eta):
        span = _attempt_span(attempt, task, name, (trace, own))
        if span is not None:
            yield span


def _attempt_span(attempt: Attempt, task: Task, name: str, above: tuple[int, int]) -> TaskSpan | None:
    if attempt.started_at is None or attempt.ended_at is None or attempt.ended_at < attempt.started_at:
        return None
    attributes: dict[str, str | int | float | bool] = {
        "celery.retries": attempt.retries,
        "celery.hostname": visible(attempt.worker, _NAME_CHARS),
        "process.pid": attempt.pid,
    }
    if attempt.wait is not None:
        attributes["celery.queue_wait"] = attempt.wait
    if attempt.outcome is not None:
        attributes["celery.outcome"] = attempt.outcome
    trace, parent = above
    return TaskSpan(
        trace,
        _number(task.uuid, f"attempt {attempt.retries}"),
        parent,
        f"{name} attempt {attempt.retries + 1}",
        attempt.started_at,
        attempt.ended_at,
        True if attempt.outcome == SUCCESS else None if attempt.outcome is None else False,
        None if attempt.outcome in (SUCCESS, None) else attempt.outcome,
        attributes,
    )


def _number(text: str, kind: str, *, size: int = 8) -> int:
    """Return an id that follows from a text; 0 is none in a trace."""
    return int.from_bytes(blake2b(f"{kind} {text}".encode(), digest_size=size).digest()) or 1


def _is_uuid(text: str) -> bool:
    try:
        return UUID(text).int != 0
    except ValueError:
        return False
