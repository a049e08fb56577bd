"""How many tasks there are of each name in each state, known at any moment without looking at them all."""

from collections import Counter
from typing import Final, TypeAlias

from celeriac.core import facts
from celeriac.core.task import Task
from celeriac.model.events import Received, Sent, Succeeded, TaskEvent
from celeriac.model.states import PENDING, RECEIVED, SUCCESS

__all__ = ["Kind", "Tally"]

#: The state and the name of a task.
Kind: TypeAlias = tuple[str, str | None]


#: What a task is of which nothing but this is known, and what one becomes by it of which only clients spoke.
_FIRST: Final[dict[type[TaskEvent], str]] = {Sent: PENDING, Received: RECEIVED}


def _state_of(task: Task, event: TaskEvent | None) -> str:
    if type(event) is Succeeded:  # which outranks all else
        return SUCCESS
    if event is not None and type(event) in _FIRST:
        was = PENDING if len(task.history) == 1 else None if task.kind is None else task.kind[0]
        if was == PENDING:
            return _FIRST[type(event)]
    # Not from the task itself: it would keep the facts, which take as much room as its events.
    return facts.read(task.history).state


class Tally:
    """Counts the tasks of a cluster state, which tells of each that changed and of each that is forgotten."""

    def __init__(self) -> None:
        #: How many tasks there are of each kind; none that no task is of.
        # No Counter, to write into which takes four times as long.
        self.counts: dict[Kind, int] = {}
        #: Each kind once: a million tasks share a few hundred.
        self._kinds: dict[Kind, Kind] = {}

    def take(self, task: Task, event: TaskEvent | None = None) -> None:
        """Count a task as what it is now, by the event that was the last news of it if there is one."""
        now = (_state_of(task, event), task.name)
        if now != task.kind:
            self.leave(task)
            task.kind = self._kinds.setdefault(now, now)
            self.counts[now] = self.counts.get(now, 0) + 1

    def leave(self, task: Task) -> None:
        """Count a task no more."""
        kind, task.kind = task.kind, None
        if kind is None:
            return
        left = self.counts[kind] - 1
        if left:
            self.counts[kind] = left
        else:
            del self.counts[kind], self._kinds[kind]

    @property
    def by_state(self) -> Counter[str]:
        """How many tasks are in each state."""
        counts: Counter[str] = Counter()
        for (state, _), count in list(self.counts.items()):
            counts[state] += count
        return counts

    @property
    def by_name(self) -> Counter[str | None]:
        """How many tasks there are of each name."""
        counts: Counter[str | None] = Counter()
        for (_, name), count in list(self.counts.items()):
            counts[name] += count
        return counts
