"""The first tasks in display order, without a look at every task for each request.

A screen asks for the ten newest of a million tasks every second, and thousands of events arrive in between.
To keep all tasks sorted would cost time at every event. A ranking costs nothing at an event: the work is done
when it is read.

``ClusterState.tasks`` is in the order of the last events. So the tasks that changed since a ranking was read
are the last ones there, down to the number of the last event that the ranking has seen. To read a ranking is
to add their keys to a short sorted list of keys, and to return the tasks of the first keys.

Invariant: the list has the key of every task that comes before the *bound*, the last key of the list when it
was made. A key may be outdated, because its task changed or is gone; it counts only while it is the key of
its task. If too few remain, the list is made again from all tasks, and twice as long, so that this is rare.
The lock of the state is held meanwhile, for less than a microsecond a task. A ranking keeps at most twice
:data:`MAX_KEYS` keys, which is 2 MB.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from heapq import nlargest, nsmallest
from typing import Final

from celeriac.core.order import display_key
from celeriac.core.task import Task

__all__ = ["RankKey", "Ranking", "rank"]

#: The display key of the latest event of a task, and the id of the task.
RankKey = tuple[int, float, str, int, str]
#: The fewest keys to keep. A key takes 100 bytes.
MIN_KEYS: Final = 64
#: At most one of this many tasks has its key kept, unless the limit asks for more.
TASKS_PER_KEY: Final = 8
#: The most keys to keep, unless the limit asks for more. With fewer, all tasks are read more often.
MAX_KEYS: Final = 10_000


def rank(task: Task) -> RankKey:
    """Return the place of a task in display order: that of its latest event, then its id."""
    return (*display_key(task.latest), task.uuid)  # type: ignore[arg-type]  # a task in memory has an event


class Ranking:
    """The first tasks in display order, of all tasks or of those that ``accepts`` allows.

    The caller holds the lock of the state.
    """

    def __init__(
        self,
        tasks: OrderedDict[str, Task],
        *,
        newest_first: bool,
        accepts: Callable[[Task], bool] = lambda _: True,
    ) -> None:
        self._tasks = tasks
        self._newest_first = newest_first
        self._accepts = accepts
        #: Keys in ascending order, and how many there were when all tasks were read.
        self._keys: list[RankKey] = []
        self._size = -1
        #: The last key when the list was made; None if no task was left out.
        self._bound: RankKey | None = None
        #: The number of the last event that was seen.
        self._seen = 0

    def first(self, limit: int) -> list[Task]:
        """Return the first tasks, at most ``limit``."""
        if limit <= self._size:
            self._add_changed()
            tasks = self._read(limit)
            if len(tasks) >= limit or self._bound is None:
                return tasks
        self._rebuild(limit)
        return self._read(limit)

    def _add_changed(self) -> None:
        """Add the keys of the tasks that changed since the last call."""
        seen = self._seen
        for task in reversed(self._tasks.values()):
            if task.heard <= seen:
                break
            key = rank(task)
            if (self._bound is None or (key > self._bound) is self._newest_first) and self._accepts(task):
                self._add(key)
        self._see()

    def _add(self, key: RankKey) -> None:
        keys, size = self._keys, self._size
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            return
        keys.insert(place, key)
        if len(keys) > 2 * size:
            keys[:] = [each for each in keys if self._task_of(each) is not None]
            if len(keys) > size:
                self._keys = keys[-size:] if self._newest_first else keys[:size]
                self._bound = self._last()

    def _rebuild(self, limit: int) -> None:
        """Make the list from all tasks."""
        size = max(MIN_KEYS, 2 * limit, min(2 * self._size, len(self._tasks) // TASKS_PER_KEY, MAX_KEYS))
        tasks = self._tasks.values()
        # Most keys are in the order of the events, so each way begins with those that are likely to stay.
        if self._newest_first:
            keys = nlargest(size, (rank(task) for task in reversed(tasks) if self._accepts(task)))[::-1]
        else:
            keys = nsmallest(size, (rank(task) for task in tasks if self._accepts(task)))
        self._keys, self._size = keys, size
        self._bound = self._last() if len(keys) == size else None
        self._see()

    def _last(self) -> RankKey:
        return self._keys[0 if self._newest_first else -1]

    def _see(self) -> None:
        if self._tasks:
            self._seen = next(reversed(self._tasks.values())).heard

    def _read(self, limit: int) -> list[Task]:
        """Return the tasks of the first keys, and drop the outdated keys among them."""
        tasks: list[Task] = []
        keys: list[RankKey] = []
        count = 0
        for key in reversed(self._keys) if self._newest_first else self._keys:
            if len(tasks) >= limit:
                break
            count += 1
            if (task := self._task_of(key)) is not None:
                tasks.append(task)
                keys.append(key)
        if len(keys) < count:
            if self._newest_first:
                self._keys[-count:] = keys[::-1]
            else:
                self._keys[:count] = keys
        return tasks

    def _task_of(self, key: RankKey) -> Task | None:
        """Return the task that has this key; None if the key is outdated."""
        task = self._tasks.get(key[-1])
        return task if task is not None and rank(task) == key and self._accepts(task) else None
