"""Which tasks can be sent once more, with what, and to which queue."""

from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from celeriac.core.task import Task
from celeriac.errors import CallerError
from celeriac.masking import MASK
from celeriac.node.control import Control
from celeriac.node.queues import ask_queues
from celeriac.views.log import count_text
from celeriac.views.text import visible
from celeriac.wire.field import is_name

__all__ = ["Plan", "Resend", "plan_resends"]

#: Celery: a text of arguments that was cut ends like this, or has it inside.
_CUT: Final = ("...", "…")
#: Workers that are asked by name, which is over once they have answered; a request has room for some names.
_MOST_NAMED: Final = 50


class Resend(NamedTuple):
    """A task as it is sent once more."""

    task: Task
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str


class Plan(NamedTuple):
    """How tasks are sent once more, and why others are not, by their ids."""

    resends: list[Resend]
    refused: dict[str, str]


def plan_resends(tasks: Sequence[Task], control: Control, *, queue: str | None, patience: float) -> Plan:
    """Return how tasks that have ended are sent once more.

    They go to ``queue``, else each to its own: where no event told that, and its worker takes tasks from one
    queue alone, to this.
    """
    if queue is not None and not is_name(queue):
        raise CallerError("Invalid queue name. Use up to 255 bytes of printable characters.")
    untold = {task.host for task in tasks if queue is None and task.ready and not is_name(task.queue)}
    consumed = _consumed(control, untold, patience)
    plan = Plan([], {})
    for task in tasks:
        try:
            name, args, kwargs = _call(task)
            plan.resends.append(Resend(task, name, args, kwargs, queue or _queue_of(task, consumed)))
        except CallerError as error:
            plan.refused[task.uuid] = str(error)
    return plan


def _consumed(control: Control, workers: Iterable[str | None], patience: float) -> dict[str, set[str]]:
    named = sorted(filter(is_name, workers))
    if not named:
        return {}
    return ask_queues(control, named if len(named) <= _MOST_NAMED else None, patience=patience)


def _queue_of(task: Task, consumed: Mapping[str, set[str]]) -> str:
    if is_name(task.queue):
        return task.queue
    names = consumed.get(task.host or "")
    if names is None:
        reason = "its worker does not reply"
    elif len(names) == 1 and is_name(only := next(iter(names))):
        return only
    else:
        reason = f"its worker consumes from {count_text(len(names), 'queue')}"
    raise CallerError(
        f"queue unknown, and {reason}: choose a queue, or set task_send_sent_event in the programs that "
        "send tasks"
    )


def _call(task: Task) -> tuple[str, list[Any], dict[str, Any]]:
    """Return what a task is called with. Raises CallerError if it goes on, or events do not tell it."""
    if not task.ready:
        raise CallerError(f"not finished: {visible(task.state, 40)}")
    if task.name is None:
        raise CallerError("task name unknown")
    args, kwargs = _read(task.args), _read(task.kwargs)
    if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
        raise CallerError("arguments in its events are not literals")
    return task.name, list(args), kwargs


def _read(text: str | None) -> object:
    """Return the value that a text shows. Only literals are read, and nothing that was cut or masked."""
    if text is None:
        raise CallerError("no arguments in its events")
    if any(mark in text for mark in _CUT):
        raise CallerError("arguments in its events are truncated")
    if MASK in text:
        raise CallerError("secrets in its arguments are masked")
    try:
        return literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise CallerError("arguments in its events are not literals") from None
