"""What every way of running tasks offers to a worker."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from celeriac.model.outcome import Outcome
from celeriac.model.task_request import TaskRequest

__all__ = ["Job", "Listener", "Pool"]


class Job(NamedTuple):
    """One run of a task, handed to a pool."""

    #: Tells this run from all others of the worker, also of the same task.
    key: int
    request: TaskRequest
    #: The worker it runs in.
    hostname: str
    #: Where its message came from.
    exchange: str = ""
    routing_key: str = ""
    priority: int = 0
    is_redelivered: bool = False
    #: The queue it waited in; empty if that is not known.
    queue: str = ""
    #: What holds for this run, whoever said so: its message, its task, the settings.
    time_limit: float | None = None
    soft_time_limit: float | None = None


class Listener(Protocol):
    """Who is told how the jobs of a pool go. Any thread may call it; it never raises, and never waits."""

    def started(self, key: int, *, pid: int, at: float) -> None:
        """Tell that a job has begun, in which process, and when by the wall clock."""

    def told(self, key: int, kind: str, fields: Mapping[str, Any]) -> None:
        """Tell that a task sends an event of a type of its own."""

    def progressed(self, key: int, state: str, result: bytes) -> None:
        """Tell that a task wants a state of its own stored, with JSON to go with it."""

    def ended(self, key: int, outcome: Outcome) -> None:
        """Tell how a job ended; the last word of every job, said once."""


class Pool(Protocol):
    """A number of tasks that run at a time. For one thread at a time, but for what its jobs do."""

    #: As the command line names it.
    name: str
    #: How many tasks run at a time.
    size: int
    #: Whether :meth:`submit` runs a job by itself, and returns when it has ended.
    runs_in_place: bool
    #: Whether tasks run in the worker's own process, which ends with a task that ends its process.
    shares_process: bool

    def start(self, listener: Listener) -> None:
        """Make ready to run tasks."""

    def submit(self, job: Job) -> None:
        """Run a job as soon as there is room. Never waits for it, unless the pool runs it by itself."""

    def discard(self, key: int) -> bool:
        """Forget a job that has not begun; say whether that was so. Nobody is told of it any more."""

    def terminate(self, key: int, signal_number: int) -> bool:
        """End a job that runs, and say whether the pool can. Its outcome has the cause ``terminated``."""

    def grow(self, count: int = 1) -> None:
        """Run more tasks at a time."""

    def shrink(self, count: int = 1) -> None:
        """Run fewer tasks at a time; those that run go on. At least one is left."""

    def tick(self, now: float) -> None:
        """Do what is due, by a monotonic clock; called several times a second."""

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing more, wait until what runs has ended, and end; say whether all of it did."""

    def kill(self) -> None:
        """End at once. Of jobs that run nobody is told any more."""

    def info(self) -> dict[str, Any]:
        """Return what ``stats`` tells of the pool, under the names that Celery gave it."""
