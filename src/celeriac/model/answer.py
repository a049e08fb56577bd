"""What is answered from the tables of the pipeline: records that every face prints.

Moments are seconds of the epoch, durations are seconds. None stands for what the tables do not know.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from celeriac.model.events import TaskEvent

__all__ = [
    "AttemptTimes",
    "Comparison",
    "Exported",
    "Spread",
    "TableSize",
    "TaskStory",
    "Top",
    "WorkerSession",
    "WorkflowStory",
    "WorkflowTask",
]


class Spread(NamedTuple):
    """How a duration is distributed. Count, mean and maximum are exact, the others within 1.4 % of rank."""

    #: How many durations there are.
    known: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class AttemptTimes(NamedTuple):
    """The attempts of a span of time: how many there were, how they ended, how long they waited and ran."""

    #: The first moment of the span, if spans of one length are told apart.
    at: float | None
    attempts: int
    succeeded: int
    failed: int
    retried: int
    revoked: int
    wait: Spread
    run: Spread

    @property
    def failed_share(self) -> float | None:
        """Which part of the attempts raised for good."""
        return self.failed / self.attempts if self.attempts else None


class Top(NamedTuple):
    """The attempts of the tasks of one name, or of one worker or queue."""

    name: str | None
    times: AttemptTimes


class Comparison(NamedTuple):
    """Two sides, each with its name and its attempts."""

    left: str
    right: str
    left_times: AttemptTimes
    right_times: AttemptTimes


class TaskStory(NamedTuple):
    """All that is known of a task. Rows are as their tables have them, without ``course`` and ``history``."""

    task: dict[str, Any]
    attempts: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    #: What the log still has: ``args``, ``kwargs``, ``result``, ``exception``, ``traceback``.
    payload: dict[str, str]
    #: Why something of it is missing.
    notes: list[str]
    #: Whole where the log still has them.
    events: Sequence[TaskEvent] = ()
    #: How many of them are told by the tables alone, without what they say beside.
    unread: int = 0


class WorkflowTask(NamedTuple):
    """A task of a workflow; those below it follow it, in the order in which they began."""

    uuid: str
    name: str | None
    state: str | None
    worker: str | None
    parent_id: str | None
    #: How many tasks are above it.
    depth: int
    begin_at: float | None
    end_at: float | None
    run: float | None
    is_critical: bool
    #: How it was sent: ``chain``, ``group`` or, inferred, ``body`` of a chord; None if that cannot be told.
    kind: str | None = None
    #: The number, within the workflow, of the group that it is one of.
    group: int | None = None
    #: The number of the group that it waited for, if it is held for the body of a chord.
    waits_for: int | None = None


class WorkflowStory(NamedTuple):
    """The tasks that one task brought about, with itself."""

    root_id: str
    name: str | None
    tasks: list[WorkflowTask]
    #: How many there are, should not all of them be in ``tasks``.
    size: int
    succeeded: int
    failed: int
    open: int
    begin_at: float | None
    end_at: float | None
    #: The line of tasks that ended last; None in too large a workflow, and where not all tasks are known.
    critical_path: tuple[str, ...] | None
    #: The seconds that those ran.
    critical_run: float | None
    #: Whether there are more tasks than are in ``tasks``; the counts may be of those alone.
    is_cut: bool = False

    @property
    def makespan(self) -> float | None:
        """Seconds from the first event to the last."""
        if self.begin_at is None or self.end_at is None:
            return None
        return self.end_at - self.begin_at


class WorkerSession(NamedTuple):
    """A time that a worker process was there, over midnight too."""

    worker: str
    pid: int | None
    begin_at: float
    end_at: float
    #: ``offline`` if it said so, ``lost`` if it fell silent, ``open`` if it may still be there.
    ending: str
    is_restart: bool
    active_max: int | None
    processed: int | None
    load_max: float | None
    drift: float | None
    software: str | None


class Exported(NamedTuple):
    """Result of an export."""

    rows: int
    #: Where to, without secrets.
    target: str


class TableSize(NamedTuple):
    """What there is of a table."""

    name: str
    rows: int
    bytes: int
    files: int
    days: int
    first_day: str | None
    last_day: str | None
    meaning: str
