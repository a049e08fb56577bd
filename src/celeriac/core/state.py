"""The cluster: its workers and its tasks, from events in any order."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest, nsmallest
from itertools import islice
from operator import attrgetter
from sys import intern

from msgspec.structs import force_setattr

from celeriac.core.index import Index
from celeriac.core.task import Task
from celeriac.core.worker import Worker
from celeriac.model.events import Described, Event, Received, Sent, TaskEvent, WorkerEvent
from celeriac.model.states import READY_STATES

__all__ = ["ClusterState"]

#: Display order of the latest events, and the id to part those that tie.
_by_time = attrgetter("latest.clock", "latest.timestamp", "latest.hostname", "latest.pid", "uuid")


class TaskView:
    """The tasks under each key of an index: ``view[key]`` as a set, ``view(key)`` newest first."""

    def __init__(self, state: "ClusterState", index: Index) -> None:
        self._state = state
        self._index = index

    def __getitem__(self, key: str) -> set[Task]:
        return {self._state.tasks[task_id] for task_id in self._index.get(key, ())}

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __call__(
        self, key: str, limit: int | None = None, reverse: bool = True
    ) -> Iterator[tuple[str, Task]]:
        """Yield ``(uuid, task)`` in display order, the newest first unless ``reverse`` is false."""
        return _in_order(self[key], limit, newest_first=reverse)


class ClusterState:
    """What the events of a cluster add up to. Pure: one thread, and time is given.

    Tasks and workers are bounded; the ones least recently heard of go first.
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
    ) -> None:
        self.max_workers_in_memory = max_workers_in_memory
        self.max_tasks_in_memory = max_tasks_in_memory
        self.on_node_join = on_node_join
        self.on_node_leave = on_node_leave
        self.on_drift = on_drift
        self.workers: OrderedDict[str, Worker] = OrderedDict()
        self.tasks: OrderedDict[str, Task] = OrderedDict()
        self.event_count = 0
        #: How many tasks were received, duplicates included.
        self.task_count = 0
        self._now = now
        self._by_type = Index()
        self._by_worker = Index()
        self._by_parent = Index()
        self.tasks_by_type = TaskView(self, self._by_type)
        self.tasks_by_worker = TaskView(self, self._by_worker)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: events={self.event_count} tasks={self.task_count}>"

    def apply(self, event: Event) -> tuple[Task | Worker, bool] | None:
        """Take one event; return what it is about, and whether that is new to us."""
        self.event_count += 1
        if isinstance(event, TaskEvent):
            return self._apply_task(event)
        if isinstance(event, WorkerEvent):
            return self._apply_worker(event)
        if event.group == "worker" and (worker := self.workers.get(event.hostname)) is not None:
            worker.see(event)
        return None

    # -- what people ask

    def itertasks(self, limit: int | None = None) -> Iterator[tuple[str, Task]]:
        """Yield ``(uuid, task)``, the least recently heard of first."""
        return islice(self.tasks.items(), limit)

    def tasks_by_time(self, limit: int | None = None, reverse: bool = True) -> Iterator[tuple[str, Task]]:
        """Yield ``(uuid, task)`` in display order, the newest first unless ``reverse`` is false."""
        return _in_order(self.tasks.values(), limit, newest_first=reverse)

    tasks_by_timestamp = tasks_by_time

    def task_types(self) -> list[str]:
        """Return the names of the tasks in memory, sorted."""
        return sorted(self._by_type)

    def alive_workers(self) -> Iterator[Worker]:
        """Yield the workers heard of within their window."""
        return (worker for worker in self.workers.values() if worker.alive)

    def children_of(self, uuid: str) -> set[Task]:
        """Return the tasks in memory that the task ``uuid`` sent, itself in memory or not."""
        return {self.tasks[child] for child in self._by_parent.get(uuid, ())}

    # -- what people do

    def clear_tasks(self, ready: bool = True) -> None:
        """Forget the tasks that have ended; with ``ready`` false, all of them."""
        for task in list(self.tasks.values()):
            if not ready or task.state in READY_STATES:
                self._forget(task)

    def clear(self, ready: bool = True) -> None:
        """Forget the workers, the counts, and the tasks as :meth:`clear_tasks` does."""
        self.workers.clear()
        self.clear_tasks(ready)
        self.event_count = 0
        self.task_count = 0

    # -- tasks

    def _apply_task(self, event: TaskEvent) -> tuple[Task, bool]:
        task = self.tasks.get(event.uuid)
        created = task is None
        if task is None:
            task = self.tasks[event.uuid] = Task(event.uuid, self)
            if len(self.tasks) > self.max_tasks_in_memory:
                self._forget(next(iter(self.tasks.values())))
        else:
            self.tasks.move_to_end(task.uuid)
            # Equal text, one copy: the events of a task share its id.
            force_setattr(event, "uuid", task.uuid)
        if isinstance(event, Sent):
            force_setattr(event, "hostname", intern(event.hostname))
        else:
            worker = self._worker(event.hostname)
            force_setattr(event, "hostname", worker.hostname)
            worker.see(event)
        task.apply(event)
        self._index(task, event)
        return task, created

    def _index(self, task: Task, event: TaskEvent) -> None:
        """File the task under its name, worker and parent, if the event may have changed them."""
        is_moved = event.hostname is not task.host and not isinstance(event, Sent)
        if isinstance(event, Described):
            if event.name == task.name:
                force_setattr(event, "name", task.name)
            is_moved = is_moved or event.name != task.name or event.parent_id != task.parent_link
            self.task_count += isinstance(event, Received)
        if is_moved:
            facts = task.facts
            name = None if facts.description is None else facts.description.name
            self._file(task, name=name, host=facts.worker, parent=facts.parent_link)

    def _file(self, task: Task, *, name: str | None, host: str | None, parent: str | None) -> None:
        self._by_type.move(task.uuid, old=task.name, new=name)
        self._by_worker.move(task.uuid, old=task.host, new=host)
        self._by_parent.move(task.uuid, old=task.parent_link, new=parent)
        task.name, task.host, task.parent_link = name, host, parent

    def _forget(self, task: Task) -> None:
        del self.tasks[task.uuid]
        self._file(task, name=None, host=None, parent=None)

    # -- workers

    def _worker(self, hostname: str) -> Worker:
        worker = self.workers.get(hostname)
        if worker is None:
            worker = self.workers[hostname] = Worker(hostname, now=self._now)
            if len(self.workers) > self.max_workers_in_memory:
                self.workers.popitem(last=False)
        return worker

    def _apply_worker(self, event: WorkerEvent) -> tuple[Worker, bool]:
        created = event.hostname not in self.workers
        worker = self._worker(event.hostname)
        self.workers.move_to_end(worker.hostname)
        was_member, old_pid = worker.is_member, worker.pid
        worker.receive(event)
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


def _in_order(tasks: Iterable[Task], limit: int | None, *, newest_first: bool) -> Iterator[tuple[str, Task]]:
    if limit is None:
        ordered = sorted(tasks, key=_by_time, reverse=newest_first)
    else:
        ordered = (nlargest if newest_first else nsmallest)(limit, tasks, key=_by_time)
    return ((task.uuid, task) for task in ordered)
