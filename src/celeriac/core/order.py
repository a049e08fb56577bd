"""The two orders of events, defined here and nowhere else.

*Display order* is what people read: by Lamport clock, so that a cause comes
before its effect across the cluster. *Task order* picks the last of several events
of one task: by timestamp, because a task hops between workers without carrying
a clock along. Both are strict and total.
"""

from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Event, Sent, TaskEvent

__all__ = ["DisplayKey", "TaskKey", "display_key", "task_key"]

DisplayKey = tuple[int, float, str, int]
TaskKey = tuple[float, int, str, int, str, int]


def display_key(event: Event) -> DisplayKey:
    """Order events by clock, then timestamp, then sender.

    An event without a clock has the place that its receiver's clock gives it. Out of the log it has the
    clock 0, and comes before all events with a clock.
    """
    return (event.display_clock, event.timestamp, event.hostname, event.pid)


def task_key(event: TaskEvent) -> TaskKey:
    """Identify an event among those of its task, and order it by time.

    Two events with equal keys are one event delivered twice.
    """
    # Celery: each receiver overwrites the clock of task-sent with its own. The clock that a receiver gives to
    # an event without one is not part of the key either: two receipts of one event differ in it.
    clock = NO_CLOCK if isinstance(event, Sent) else event.clock
    retries: int = getattr(event, "retries", 0)
    return (event.timestamp, clock, event.hostname, event.pid, event.subject, retries)
