"""The two orders of events, defined here and nowhere else.

*Display order* is what people read: by Lamport clock, so that a cause comes
before its effect across the cluster. *Task order* picks the last of several events
of one task: by timestamp, because a task hops between workers without carrying
a clock along. Both are strict and total.
"""

from collections.abc import Callable
from operator import attrgetter

from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Event, Sent, TaskEvent

__all__ = ["DisplayKey", "TaskKey", "display_key", "task_key"]

DisplayKey = tuple[int, float, str, int]
TaskKey = tuple[float, int, str, int, str, int]


#: Order events by clock, then timestamp, then sender. Events without a valid clock have the
#: clock 0, so they form a bucket of their own before all others, ordered by timestamp.
display_key: Callable[[Event], DisplayKey] = attrgetter("clock", "timestamp", "hostname", "pid")


def task_key(event: TaskEvent) -> TaskKey:
    """Identify an event among those of its task, and order it by time.

    Two events with equal keys are one event delivered twice.
    """
    # Celery: each receiver overwrites the clock of task-sent with its own.
    clock = NO_CLOCK if isinstance(event, Sent) else event.clock
    retries: int = getattr(event, "retries", 0)
    return (event.timestamp, clock, event.hostname, event.pid, event.subject, retries)
