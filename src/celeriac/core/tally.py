"""How many tasks there are of each name in each state, known at any moment without looking at them all."""

from collections import Counter
from typing import TypeAlias

from celeriac.core import facts
from celeriac.core.task import Task

__all__ = ["Kind", "Tally"]

#: The state and the name of a task.
Kind: TypeAlias = tuple[str, str | None]


class Tally:
    """Counts the tasks of a cluster state, which tells of each that changed and of each that is forgotten."""

    def __init__(self) -> None:
        #: How many tasks there are of each kind; none that no task is of.
        self.counts: Counter[Kind] = Counter()
        #: Each kind once: a million tasks share a few hundred.
        self._kinds: dict[Kind, Kind] = {}

    def take(self, task: Task) -> None:
        """Count a task as what it is now."""
        # Not from the task itself: it would keep the facts, which take as much room as its events.
        now = (facts.read(task.history).state, task.name)
        if now != task.kind:
            self.leave(task)
            task.kind = self._kinds.setdefault(now, now)
            self.counts[now] += 1

    def leave(self, task: Task) -> None:
        """Count a task no more."""
        kind, task.kind = task.kind, None
        if kind is None:
            return
        self.counts[kind] -= 1
        if not self.counts[kind]:
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
