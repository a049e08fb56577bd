"""The cluster: its workers and its tasks, from events in any order."""

from collections import OrderedDict, deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from operator import attrgetter
from sys import intern
from typing import Final

from msgspec.structs import force_setattr

from celeriac.core.ranking import Ranking, rank
from celeriac.core.task import Task
from celeriac.core.worker import Worker
from celeriac.errors import CallerError
from celeriac.model.events import TASK_EVENTS, Event, Gap, Received, Sent, TaskEvent, WorkerEvent
from celeriac.model.states import READY_STATES

__all__ = ["ClusterState"]

#: Gaps that are remembered: a day with one every quarter of an hour.
MAX_GAPS: Final = 100

#: The longest list of tasks that is kept between calls; a longer one is made from all tasks.
MAX_LIMIT: Final = 1000
#: How many kinds of lists are kept between calls: 64 MB, if each of them has grown to its full length.
MAX_RANKINGS: Final = 32

_Attribute = Callable[[Task], str | None]
_Listed = Iterator[tuple[str, Task]]


class TaskView(Mapping[str, set[Task]]):
    """Tasks by one of their attributes: ``view[key]`` as a set, ``view(key)`` newest first.

    A set is made from all tasks each time; a list with a limit is kept between calls. A key that no task
    has gives an empty set.
    """

    def __init__(
        self, state: "ClusterState", attribute: _Attribute, in_order: Callable[..., _Listed]
    ) -> None:
        self._state = state
        self._attribute = attribute
        self._in_order = in_order

    def __getitem__(self, key: str) -> set[Task]:
        return {task for task in self._state.all_tasks() if self._attribute(task) == key}

    def __contains__(self, key: object) -> bool:
        return any(self._attribute(task) == key for task in self._state.all_tasks())

    def __iter__(self) -> Iterator[str]:
        return iter(self._grouped())

    def __len__(self) -> int:
        return len(self._grouped())

    def items(self) -> ItemsView[str, set[Task]]:
        """Return each key and its tasks."""
        return self._grouped().items()

    def values(self) -> ValuesView[set[Task]]:
        """Return the tasks of each key."""
        return self._grouped().values()

    def __call__(
        self, key: str, limit: int | None = None, reverse: bool = True
    ) -> Iterator[tuple[str, Task]]:
        """Yield ``(uuid, task)`` in display order, the newest first unless ``reverse`` is false."""
        return self._in_order(limit, newest_first=reverse, attribute=self._attribute, key=key)

    def _grouped(self) -> dict[str, set[Task]]:
        groups: dict[str, set[Task]] = {}
        for task in self._state.all_tasks():
            key = self._attribute(task)
            if key is not None:
                groups.setdefault(key, set()).add(task)
        return groups


class ClusterState:
    """What the events of a cluster add up to. Time is given, and so is the lock if threads share it.

    Tasks and workers are bounded. The task least recently heard of goes first, and the worker
    that least recently spoke of itself.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        max_workers_in_memory: int = 5000,
        max_tasks_in_memory: int = 10_000,
        on_node_join: Callable[[Worker], object] | None = None,
        on_node_leave: Callable[[Worker], object] | None = None,
        on_drift: Callable[[Worker], object] | None = None,
        mutex: AbstractContextManager[object] | None = None,
    ) -> None:
        if min(max_workers_in_memory, max_tasks_in_memory) < 1:
            raise CallerError("max_workers_in_memory and max_tasks_in_memory must be at least 1")
        self.max_workers_in_memory = max_workers_in_memory
        self.max_tasks_in_memory = max_tasks_in_memory
        self.on_node_join = on_node_join
        self.on_node_leave = on_node_leave
        self.on_drift = on_drift
        #: Called with a task and the event that was news of it, and when that came; with neither for one that
        #: was restored. The lock is held.
        self.on_task: Callable[[Task, TaskEvent | None, float | None], object] | None = None
        #: Called with a task that is not in memory any more.
        self.on_forget: Callable[[Task], object] | None = None
        self.workers: OrderedDict[str, Worker] = OrderedDict()
        self.tasks: OrderedDict[str, Task] = OrderedDict()
        self.event_count = 0
        #: How many tasks were received, duplicates included.
        self.task_count = 0
        #: Events of tasks so far; unlike the counts it never begins anew, so that lists stay in order.
        self._heard = 0
        self._now = now
        self._lock = mutex or nullcontext()
        #: The last times when events may have been missed, as our receiver told.
        self.gaps: deque[Gap] = deque(maxlen=MAX_GAPS)
        #: The ids of the tasks in memory by the task that sent them, itself in memory or not.
        self._children: dict[str, set[str]] = {}
        self._ranking = lru_cache(MAX_RANKINGS)(self._make_ranking)
        self.tasks_by_type = TaskView(self, attrgetter("name"), self._in_order)
        self.tasks_by_worker = TaskView(self, attrgetter("host"), self._in_order)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: events={self.event_count} tasks={self.task_count}>"

    def apply(self, event: Event, received_at: float | None = None) -> tuple[Task | Worker, bool] | None:
        """Apply one event with its time of receipt; return its subject, and whether that is new.

        The caller holds the lock, if there is one. Without a time of receipt the event does not count as
        a heartbeat: it may be old.
        """
        self.event_count += 1
        if type(event) in TASK_EVENTS:  # isinstance is slower, and every event passes here
            return self._apply_task(event, received_at)  # type: ignore[arg-type]
        if isinstance(event, WorkerEvent):
            return self._apply_worker(event, received_at)
        if isinstance(event, Gap):
            self.gaps.append(event)
        elif event.group == "worker" and (worker := self.workers.get(event.hostname)) is not None:
            worker.see(received_at)
        return None

    # -- what people ask

    def all_tasks(self) -> list[Task]:
        """Return the tasks in memory, the least recently seen first."""
        with self._lock:
            return list(self.tasks.values())

    def itertasks(self, limit: int | None = None) -> Iterator[tuple[str, Task]]:
        """Yield ``(uuid, task)``, the least recently seen first."""
        return ((task.uuid, task) for task in self.all_tasks()[:limit])

    def tasks_by_time(self, limit: int | None = None, reverse: bool = True) -> Iterator[tuple[str, Task]]:
        """Yield ``(uuid, task)`` in display order, the newest first unless ``reverse`` is false."""
        return self._in_order(limit, newest_first=reverse)

    tasks_by_timestamp = tasks_by_time

    def task_types(self) -> list[str]:
        """Return the names of the tasks in memory, sorted."""
        return sorted(self.tasks_by_type)

    def alive_workers(self) -> Iterator[Worker]:
        """Yield the workers seen within their window."""
        with self._lock:
            workers = list(self.workers.values())
        return (worker for worker in workers if worker.alive)

    def children_of(self, uuid: str) -> set[Task]:
        """Return the tasks in memory that the task ``uuid`` sent, itself in memory or not."""
        with self._lock:
            return {self.tasks[child] for child in self._children.get(uuid, ())}

    def count_children(self, uuid: str) -> int:
        """Return how many tasks in memory the task ``uuid`` sent."""
        with self._lock:
            return len(self._children.get(uuid, ()))

    def _in_order(
        self,
        limit: int | None,
        *,
        newest_first: bool,
        attribute: _Attribute | None = None,
        key: str | None = None,
    ) -> _Listed:
        """Return ``(uuid, task)`` in display order, of all tasks or of those with this value of an attribute.

        Up to a limit of :data:`MAX_LIMIT` a call looks only at the tasks that changed since the previous one.
        """
        if limit is None or limit > MAX_LIMIT:
            tasks = self.all_tasks()
            if attribute is not None:
                tasks = [task for task in tasks if attribute(task) == key]
            tasks.sort(key=rank, reverse=newest_first)
            tasks = tasks[:limit]
        else:
            with self._lock:
                tasks = self._ranking(bool(newest_first), attribute, key).first(max(0, limit))
        return ((task.uuid, task) for task in tasks)

    def _make_ranking(self, newest_first: bool, attribute: _Attribute | None, key: str | None) -> Ranking:
        if attribute is None:
            return Ranking(self.tasks, newest_first=newest_first)
        return Ranking(self.tasks, newest_first=newest_first, accepts=lambda task: attribute(task) == key)

    # -- what people do

    def clear_tasks(self, ready: bool = True) -> None:
        """Forget the tasks that have ended; with ``ready`` false, all of them."""
        with self._lock:
            for task in self.all_tasks():
                if not ready or task.state in READY_STATES:
                    self._forget(task.uuid)

    def clear(self, ready: bool = True) -> None:
        """Forget the workers, the counts, and the tasks as :meth:`clear_tasks` does."""
        with self._lock:
            self.workers.clear()
            self.gaps.clear()
            self.clear_tasks(ready)
            self.event_count = 0
            self.task_count = 0

    def replace(
        self,
        *,
        workers: Iterable[Worker],
        tasks: Iterable[Task],
        gaps: Iterable[Gap],
        event_count: int,
        task_count: int,
    ) -> None:
        """Replace the content by this, in this order; callbacks are not called.

        Beyond the limits the last items are kept.
        """
        with self._lock:
            self.clear(ready=False)
            kept = deque(workers, self.max_workers_in_memory)
            self.workers.update((worker.hostname, worker) for worker in kept)
            for task in deque(tasks, self.max_tasks_in_memory):
                self.tasks[task.uuid] = task
                self._heard += 1
                task.heard = self._heard
                self._move_child(task.uuid, old=None, new=task.parent_link)
                if self.on_task is not None:
                    self.on_task(task, None, None)
            self.gaps.extend(gaps)
            self.event_count, self.task_count = event_count, task_count

    # -- tasks

    def _apply_task(self, event: TaskEvent, received_at: float | None) -> tuple[Task, bool]:
        uuid, hostname = event.uuid, event.hostname
        if type(event) is Sent:
            force_setattr(event, "hostname", intern(hostname))
        else:
            worker = self.workers.get(hostname) or self._add_worker(hostname)
            worker.own(event, received_at)
            if type(event) is Received:
                self.task_count += 1
        task = self.tasks.get(uuid)
        created = task is None
        if task is None:
            task = self._add_task(uuid)
        else:
            self.tasks.move_to_end(uuid)
            force_setattr(event, "uuid", task.uuid)
        # Rankings rely on this order of ``tasks``: call nobody until the task has its event.
        self._heard += 1
        task.heard = self._heard
        parent, past = task.parent_link, task.history
        task.apply(event)
        if task.parent_link is not parent:
            self._move_child(uuid, old=parent, new=task.parent_link)
        if self.on_task is not None and task.history is not past:
            self.on_task(task, event, received_at)
        return task, created

    def _add_task(self, uuid: str) -> Task:
        if len(self.tasks) >= self.max_tasks_in_memory:
            self._forget(next(iter(self.tasks)))
        task = Task(uuid, self)
        self.tasks[uuid] = task
        return task

    def _forget(self, uuid: str) -> None:
        task = self.tasks.pop(uuid)
        if task.parent_link is not None:
            self._move_child(uuid, old=task.parent_link, new=None)
        if self.on_forget is not None:
            self.on_forget(task)

    def _move_child(self, uuid: str, *, old: str | None, new: str | None) -> None:
        """Keep the children of each task; a task without children has no entry, so none is left behind."""
        if old is not None:
            siblings = self._children[old]
            siblings.remove(uuid)
            if not siblings:
                del self._children[old]
        if new is not None:
            self._children.setdefault(new, set()).add(uuid)

    # -- workers

    def _add_worker(self, hostname: str) -> Worker:
        worker = self.workers[hostname] = Worker(hostname, now=self._now)
        if len(self.workers) > self.max_workers_in_memory:
            _, forgotten = self.workers.popitem(last=False)
            if forgotten.is_member and self.on_node_leave is not None:
                self.on_node_leave(forgotten)
        return worker

    def _apply_worker(self, event: WorkerEvent, received_at: float | None) -> tuple[Worker, bool]:
        worker = self.workers.get(event.hostname)
        created = worker is None
        if worker is None:
            worker = self._add_worker(event.hostname)
        self.workers.move_to_end(worker.hostname)
        was_member, old_pid = worker.is_member, worker.pid
        worker.receive(event, received_at)
        if worker.is_drifting and not worker.drift_told:
            worker.drift_told = True
            if self.on_drift is not None:
                self.on_drift(worker)
        is_restart = was_member and worker.is_member and worker.pid != old_pid
        if was_member and (is_restart or not worker.is_member) and self.on_node_leave is not None:
            self.on_node_leave(worker)
        if worker.is_member and (is_restart or not was_member) and self.on_node_join is not None:
            self.on_node_join(worker)
        return worker, created
