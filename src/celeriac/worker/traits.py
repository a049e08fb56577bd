"""What holds for all runs of a task in this worker: its own options, and the settings where it has none."""

from typing import NamedTuple, Self, TypeVar

from celeriac.config import Settings
from celeriac.node.task import Task

__all__ = ["Traits"]

_T = TypeVar("_T")


class Traits(NamedTuple):
    """How a worker treats the runs of one task."""

    #: Whether its message is acknowledged when it has ended, not when it begins.
    acks_late: bool
    #: Whether, then, a run that failed is acknowledged too.
    acks_failures: bool
    #: Whether, then, a run whose process died goes back to its queue.
    requeues_lost: bool
    stores_results: bool
    stores_errors: bool
    #: Whether it is stored that a run has begun.
    tracks_start: bool
    sends_events: bool
    time_limit: float | None
    soft_time_limit: float | None
    rate_limit: str | float | None

    @classmethod
    def of(cls, task: Task | None, settings: Settings) -> Self:
        """Return the traits of a task; of one that is not known here, if there is none."""
        if task is None:
            return cls(
                acks_late=False,
                acks_failures=True,
                requeues_lost=False,
                stores_results=not settings.task_ignore_result,
                stores_errors=True,
                tracks_start=False,
                sends_events=True,
                time_limit=None,
                soft_time_limit=None,
                rate_limit=None,
            )
        return cls(
            acks_late=_or(task.acks_late, settings.task_acks_late),
            acks_failures=_or(task.acks_on_failure_or_timeout, settings.task_acks_on_failure_or_timeout),
            requeues_lost=_or(task.reject_on_worker_lost, settings.task_reject_on_worker_lost),
            stores_results=not _or(task.ignore_result, settings.task_ignore_result),
            stores_errors=_or(task.store_errors_even_if_ignored, settings.task_store_errors_even_if_ignored),
            tracks_start=_or(task.track_started, settings.task_track_started),
            sends_events=task.send_events,
            time_limit=_or(task.time_limit, settings.task_time_limit),
            soft_time_limit=_or(task.soft_time_limit, settings.task_soft_time_limit),
            rate_limit=_or(task.rate_limit, settings.task_default_rate_limit),
        )


def _or(own: _T | None, setting: _T) -> _T:
    return setting if own is None else own
