"""Lists of tasks: those that fit what was asked for, heard of last first, a page at a time.

Nothing is masked here: what is secret is not in a state that faces are shown, see
:class:`~celeriac.node.watcher.Watcher`, nor in a log.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from heapq import nlargest
from itertools import islice
from math import inf
from operator import itemgetter
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
#: How many of the tasks heard of last are looked at first, and then. What is asked for is mostly among them.
_REACHES: Final = (MAX_PAGE + 1, 20_000)
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
    """A task in a list. Every text is safe to show except keys, which are ids and names as peers sent them.

    Texts may be truncated or escaped, and two ids may have the same text: links and actions use the key.
    Timestamps are seconds since the epoch, durations seconds.
    """

    uuid: str
    #: The id itself.
    key: str
    name: str | None
    state: str
    worker: str | None
    #: The name of the worker itself.
    worker_key: str | None
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
    found = _fitting(state, wanted, before, most=limit + 1)
    rows = [listed(task) for _, task in found[:limit]]
    return TaskPage(rows, found[limit - 1][0] if len(found) > limit else None)


def fitting_tasks(state: State, wanted: TaskFilter, *, most: int) -> list[Task]:
    """Return up to so many of the tasks that fit, heard of last first."""
    return [task for _, task in _fitting(state, wanted, None, most=most)]


def _fitting(state: State, wanted: TaskFilter, before: int | None, *, most: int) -> list[tuple[int, Task]]:
    """Return the tasks that fit, heard of last first, with their numbers as they were when looked at.

    Those of which something is heard meanwhile have numbers above all others, and so are on no later page.
    """
    fits = _Fit(wanted)
    found: list[tuple[int, Task]] = []

    def fitting(tasks: Iterable[Task]) -> Iterator[tuple[int, Task]]:
        numbers = ((task.heard, task) for task in tasks)
        return (each for each in numbers if (before is None or each[0] < before) and fits(each[1]))

    for reach in _REACHES:
        tasks, last = state.freeze_while(_latest, state, reach)
        found += sorted(islice(fitting(tasks), most - len(found)), key=_number, reverse=True)
        if last is None or len(found) >= most:
            return found
        before = last if before is None else min(before, last)
    # A million are copied in a twentieth of a second, in any order. In order it would take twenty times as
    # long, and meanwhile no event could be taken.
    everything: list[Task] = state.freeze_while(list, dict.values(state.tasks))
    return found + nlargest(most - len(found), fitting(everything), key=_number)


def _latest(state: State, most: int) -> tuple[list[Task], int | None]:
    """Return the tasks heard of last, in order, and the number of the last; None if there are no others."""
    tasks = list(islice(reversed(state.tasks.values()), most))
    return tasks, tasks[-1].heard if len(tasks) < len(state.tasks) else None


_number: Final = itemgetter(0)


def listed(task: Task) -> ListedTask:
    """Return the row of a task."""
    known = task.facts
    described, succeeded, raised = known.description, known.succeeded, known.raised
    raised_text = None if raised is None else raised.exception
    return ListedTask(
        uuid=visible(task.uuid, _NAME_CHARS),
        key=task.uuid,
        name=_shown(task.name, _NAME_CHARS),
        state=visible(known.state, 40),
        worker=_shown(task.host, _NAME_CHARS),
        worker_key=task.host,
        queue=None if known.sent is None else _shown(known.sent.queue, _NAME_CHARS),
        args=None if described is None else _shown(described.args),
        kwargs=None if described is None else _shown(described.kwargs),
        attempts=task.attempts,
        sent_at=_moment(known.sent),
        received_at=_moment(known.received),
        started_at=_moment(known.started),
        state_at=_moment(known.decided_by),
        runtime=None if succeeded is None else number_of(succeeded.runtime),
        outcome=_shown(raised_text if succeeded is None else succeeded.result),
    )


def _moment(event: TaskEvent | None) -> float | None:
    return None if event is None else number_of(event.timestamp)


def _shown(text: str | None, most: int = _TEXT_CHARS) -> str | None:
    return visible(text, most) if text else None


class _Fit:
    """Tells whether a task fits: what is quick to know first."""

    def __init__(self, wanted: TaskFilter) -> None:
        self._wanted = wanted
        self._name = _glob(wanted.name)
        self._worker = _glob(wanted.worker)
        self._text = wanted.text.casefold() if wanted.text else None
        self._since = -inf if wanted.since is None else wanted.since
        self._until = inf if wanted.until is None else wanted.until
        self._has_span = (self._since, self._until) != (-inf, inf)

    def __call__(self, task: Task) -> bool:
        wanted = self._wanted
        if wanted.states and (task.kind[0] if task.kind else task.state) not in wanted.states:
            return False
        if self._name is not None and not self._name.match(task.name or ""):
            return False
        if self._worker is not None and not self._worker.match(task.host or ""):
            return False
        if wanted.root is not None and wanted.root != task.uuid and not _has_root(task, wanted.root):
            return False
        if self._has_span and not self._is_within(task):
            return False
        return self._text is None or self._says(task, self._text)

    def _is_within(self, task: Task) -> bool:
        # What decided is one of the events, and most tasks have none of that time: to look is quicker.
        if not any(self._since <= event.timestamp < self._until for event in task.history):
            return False
        decided_by = _facts_of(task).decided_by
        return decided_by is not None and self._since <= decided_by.timestamp < self._until

    def _says(self, task: Task, text: str) -> bool:
        if text in task.uuid.casefold() or text in (task.name or "").casefold():
            return True
        return any(text in told.casefold() for told in _texts(task.history))


def _has_root(task: Task, root: str) -> bool:
    # As with times: few tasks have an event that says so.
    if not any(isinstance(event, Described) and event.root_id == root for event in task.history):
        return False
    described = _facts_of(task).description
    return described is not None and described.root_id == root


def _facts_of(task: Task) -> facts.Facts:
    # Not from the task itself: it would keep the facts of all, which take as much room as their events.
    return facts.read(task.history)


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
