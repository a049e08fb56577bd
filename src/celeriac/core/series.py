"""All that happened since somebody began to count, by names of tasks and workers: numbers that only rise."""

from bisect import bisect_left
from typing import Final

from celeriac.core.attempt import Attempt
from celeriac.core.pulse import kind_of
from celeriac.model.events import TaskEvent

__all__ = ["BOUNDS", "MAX_NAMES", "OTHER", "Histogram", "Series"]

#: Names of tasks, and of workers, that are told apart. A peer can send any number of them, and who stores the
#: series pays for each.
MAX_NAMES: Final = 200
#: Stands for all others.
OTHER: Final = "other"
#: Seconds: from what a worker does at once to what takes hours.
BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Histogram:
    """How often something took up to each of :data:`BOUNDS`, and longer."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        #: Not added up; the last is of what took longer than all bounds.
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Series:
    """Counts events and attempts."""

    def __init__(self) -> None:
        #: How many events there were, by the name of the task and what they say of it.
        # No Counter, to write into which takes four times as long.
        self.events: dict[tuple[str, str], int] = {}
        #: The same by the node that sent them.
        self.by_worker: dict[tuple[str, str], int] = {}
        #: How long attempts waited in a queue and ran, by the name of the task.
        self.waits: dict[str, Histogram] = {}
        self.runs: dict[str, Histogram] = {}
        self._names: set[str] = set()
        self._workers: set[str] = set()

    def take(self, event: TaskEvent, ended: Attempt | None, name: str | None) -> None:
        """Count an event that was news, and the attempt that it ended, of a task of this name."""
        kind = kind_of(event)
        label = _label(name or "", self._names)
        of_name, of_worker = (label, kind), (_label(event.hostname, self._workers), kind)
        self.events[of_name] = self.events.get(of_name, 0) + 1
        self.by_worker[of_worker] = self.by_worker.get(of_worker, 0) + 1
        if ended is None:
            return
        if ended.wait is not None:
            _of(label, self.waits).add(ended.wait)
        if ended.run is not None:
            _of(label, self.runs).add(ended.run)


def _of(label: str, histograms: dict[str, Histogram]) -> Histogram:
    histogram = histograms.get(label)
    if histogram is None:
        histogram = histograms[label] = Histogram()
    return histogram


def _label(name: str, known: set[str]) -> str:
    """Return a name as long as there are few, and then what stands for all others."""
    if name not in known:
        if len(known) >= MAX_NAMES:
            return OTHER
        known.add(name)
    return name
