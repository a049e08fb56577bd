"""Lists of tasks: those that fit what was asked for, heard of last first, a page at a time.

Nothing is masked here: what is secret is not in a state that faces are shown, see
:class:`~celeriac.node.watcher.Watcher`, nor in a log.
"""

from collections.abc import Iterator, Sequence
from fnmatch import translate
from itertools import islice
from re import Pattern
from re import compile as compile_pattern
from typing import Final, NamedTuple

from celeriac.core import facts
from celeriac.core.task import Task
from celeriac.model.events import Described, Raised, Succeeded, TaskEvent
from celeriac.node.state import State
from celeriac.views.cell import number_of
from celeriac.views.text import visible

__all__ = ["MAX_PAGE", "ListedTask", "TaskFilter", "TaskPage", "fitting_tasks", "listed", "task_page"]

#: The most rows of a page.
MAX_PAGE: Final = 1000
_NAME_CHARS: Final = 120
_TEXT_CHARS: Final = 200


class TaskFilter(NamedTuple):
    """Which tasks are asked for: those that fit all that is said."""

    #: Any of these states.
    states: frozenset[str] = frozenset()
    #: Globs: ``shop.*``.
    name: str | None = None
    worker: str | None = None
    #: Part of the id, the name, the arguments, the result or the exception, in capitals or not.
    text: str | None = None
    #: Got into its state within this time: seconds of the epoch, the end not included.
    since: float | None = None
    until: float | None = None
    #: Of the workflow of this task.
    root: str | None = None


class ListedTask(NamedTuple):
    """A task in a list. Every text is safe to show; moments are seconds of the epoch, durations seconds."""

    uuid: str
    name: str | None
    state: str
    worker: str | None
    queue: str | None
    args: str | None
    kwargs: str | None
    attempts: int
    sent_at: float | None
    received_at: float | None
    started_at: float | None
    #: When it got into its state.
    state_at: float | None
    #: By the measure of the worker.
    runtime: float | None
    #: What it returned or raised.
    outcome: str | None


class TaskPage(NamedTuple):
    """A part of a list."""

    tasks: list[ListedTask]
    #: To be given for the next page; None if this was the last.
    next: int | None


def task_page(
    state: State,
    wanted: TaskFilter,
    *,
    before: int | None = None,
    limit: int = 50,
) -> TaskPage:
    """Return the tasks heard of last before those of the page that ``before`` was given with.

    A task that is heard of meanwhile is not on any later page: it is on the first again.
    """
    found = list(islice(_fitting(state, wanted, before), limit + 1))
    rows = [listed(task) for _, task in found[:limit]]
    return TaskPage(rows, found[limit - 1][0] if len(found) > limit else None)


def fitting_tasks(state: State, wanted: TaskFilter) -> Iterator[Task]:
    """Yield the tasks that fit, heard of last first."""
    return (task for _, task in _fitting(state, wanted, None))


def _fitting(state: State, wanted: TaskFilter, before: int | None) -> Iterator[tuple[int, Task]]:
    fits = _Fit(wanted)
    return (each for each in _recent(state) if (before is None or each[0] < before) and fits(each[1]))


def _recent(state: State) -> Iterator[tuple[int, Task]]:
    """Yield the tasks, heard of last first, with their numbers as they were when it was asked.

    The state is not held for longer than a moment, and a task that is heard of meanwhile does not come again.
    """

    def taken(most: int | None) -> list[tuple[int, Task]]:
        return [(task.heard, task) for task in islice(reversed(state.tasks.values()), most)]

    # The first page of an open list is asked for most, and needs no copy of a million.
    first = state.freeze_while(taken, MAX_PAGE + 1)
    yield from first
    if len(first) > MAX_PAGE:
        last = first[-1][0]
        seen = {task.uuid for _, task in first}
        rest = state.freeze_while(taken, None)
        yield from (each for each in rest if each[0] < last and each[1].uuid not in seen)


def listed(task: Task) -> ListedTask:
    """Return the row of a task."""
    known = task.facts
    is_raised = known.succeeded is None
    return ListedTask(
        uuid=visible(task.uuid, _NAME_CHARS),
        name=_shown(task.name, _NAME_CHARS),
        state=visible(known.state, 40),
        worker=_shown(task.host, _NAME_CHARS),
        queue=_shown(task.queue, _NAME_CHARS),
        args=_shown(task.args),
        kwargs=_shown(task.kwargs),
        attempts=task.attempts,
        sent_at=number_of(task.sent),
        received_at=number_of(task.received),
        started_at=number_of(task.started),
        state_at=number_of(task.timestamp),
        runtime=number_of(task.runtime),
        outcome=_shown(task.exception if is_raised else task.result),
    )


def _shown(text: str | None, most: int = _TEXT_CHARS) -> str | None:
    return visible(text, most) if text else None


class _Fit:
    """Tells whether a task fits: what is quick to know first."""

    def __init__(self, wanted: TaskFilter) -> None:
        self._wanted = wanted
        self._name = _glob(wanted.name)
        self._worker = _glob(wanted.worker)
        self._text = wanted.text.casefold() if wanted.text else None

    def __call__(self, task: Task) -> bool:
        wanted = self._wanted
        if wanted.states and (task.kind[0] if task.kind else task.state) not in wanted.states:
            return False
        if self._name is not None and not self._name.match(task.name or ""):
            return False
        if self._worker is not None and not self._worker.match(task.host or ""):
            return False
        if wanted.root is not None and wanted.root not in (task.uuid, _root_of(task)):
            return False
        if (wanted.since is not None or wanted.until is not None) and not self._is_within(task):
            return False
        return self._text is None or self._says(task, self._text)

    def _is_within(self, task: Task) -> bool:
        # Not from the task itself: it would keep the facts of all, which take as much room as their events.
        decided_by = facts.read(task.history).decided_by
        at = None if decided_by is None else decided_by.timestamp
        wanted = self._wanted
        if at is None or (wanted.since is not None and at < wanted.since):
            return False
        return wanted.until is None or at < wanted.until

    def _says(self, task: Task, text: str) -> bool:
        if text in task.uuid.casefold() or text in (task.name or "").casefold():
            return True
        return any(text in told.casefold() for told in _texts(task.history))


def _root_of(task: Task) -> str | None:
    described = facts.read(task.history).description
    return None if described is None else described.root_id


def _texts(events: Sequence[TaskEvent]) -> Iterator[str]:
    for event in events:
        told: tuple[str | None, ...] = ()
        if isinstance(event, Described):
            told = (event.args, event.kwargs)
        elif isinstance(event, Succeeded):
            told = (event.result,)
        elif isinstance(event, Raised):
            told = (event.exception,)
        yield from (text for text in told if text)


def _glob(pattern: str | None) -> Pattern[str] | None:
    return compile_pattern(translate(pattern)) if pattern else None
