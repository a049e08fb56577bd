"""What happens now: how many events of each kind come, and how long attempts wait and run, over an hour.

A few hundred numbers for each moment that is kept, whatever the load: times are counted in steps of 8 %.
"""

from collections import Counter
from collections.abc import Iterable
from math import exp, log
from typing import Final, NamedTuple

from celeriac.core.attempt import Attempt
from celeriac.model.events import Custom, TaskEvent

__all__ = ["KEPT", "STEP", "Pulse", "Times", "Window", "kind_of"]

#: Seconds that are counted as one moment.
STEP: Final = 5.0
#: Moments that are kept: an hour.
KEPT: Final = 720

#: The shortest time that is told from none, and how much longer each next one is.
_LEAST: Final = 1e-4
_GROWTH: Final = log(1.08)
#: Eleven days; what takes longer is counted as this.
_MOST: Final = 1 + int(log(1e6 / _LEAST) / _GROWTH)
_CUSTOM: Final = "custom"


def kind_of(event: TaskEvent) -> str:
    """Return what an event is counted as: what it says of its task; ``custom`` if that is not known to us."""
    return _CUSTOM if type(event) is Custom else event.subject


class Times:
    """How often something took how long. Values are right to within 4 %."""

    __slots__ = ("counts",)

    def __init__(self, parts: "Iterable[Times]" = ()) -> None:
        #: How many there are of each step.
        self.counts: Counter[int] = Counter()
        for part in parts:
            self.counts.update(part.counts)

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[0 if seconds <= _LEAST else min(1 + int(log(seconds / _LEAST) / _GROWTH), _MOST)] += 1

    def quantile(self, share: float) -> float | None:
        """Return what ``share`` of them took at the most; None if there are none."""
        wanted = share * len(self)
        seen = 0
        for step, count in sorted(self.counts.items()):
            seen += count
            if seen >= wanted:
                return 0.0 if step == 0 else _LEAST * exp((step - 0.5) * _GROWTH)
        return None


class Moment:
    """What came within one step."""

    __slots__ = ("events", "run", "wait")

    def __init__(self) -> None:
        # No Counter, to write into which takes four times as long.
        self.events: dict[str, int] = {}
        self.wait = Times()
        self.run = Times()


class Window(NamedTuple):
    """What came within a span of time."""

    begin_at: float
    seconds: float
    #: How many events came, by what they say of a task: ``received``, ``failed``; ``custom`` for all others.
    events: Counter[str]
    wait: Times
    run: Times


class Pulse:
    """Counts events of tasks by when they came, and attempts by when their end came."""

    def __init__(self) -> None:
        self._moments: dict[int, Moment] = {}

    def take(self, event: TaskEvent, ended: Attempt | None, at: float) -> None:
        """Count an event that was news, the attempt that it ended, and when it came by our clock."""
        moment = self._moment(int(at // STEP))
        if moment is None:
            return
        kind = kind_of(event)
        moment.events[kind] = moment.events.get(kind, 0) + 1
        if ended is None:
            return
        if ended.wait is not None:
            moment.wait.add(ended.wait)
        if ended.run is not None:
            moment.run.add(ended.run)

    def window(self, until: float, seconds: float) -> Window:
        """Return what came in so many seconds, the last step being that of ``until``."""
        steps = max(1, round(seconds / STEP))
        return self._window(int(until // STEP) - steps + 1, steps)

    def windows(self, until: float, seconds: float, count: int) -> list[Window]:
        """Return the last windows of so many seconds each, the oldest first."""
        steps = max(1, round(seconds / STEP))
        last = int(until // STEP)
        return [self._window(last - number * steps + 1, steps) for number in range(count, 0, -1)]

    def _window(self, first: int, steps: int) -> Window:
        moments = [m for step in range(first, first + steps) if (m := self._moments.get(step)) is not None]
        events: Counter[str] = Counter()
        for moment in moments:
            events.update(moment.events)
        return Window(
            first * STEP,
            steps * STEP,
            events,
            Times(moment.wait for moment in moments),
            Times(moment.run for moment in moments),
        )

    def _moment(self, step: int) -> Moment | None:
        """Return where to count; None for what came before all that is kept."""
        moment = self._moments.get(step)
        if moment is None:
            newest = max(self._moments, default=step)
            if step <= newest - 2 * KEPT:
                # Our clock was set back; what came before that is of no moment to come.
                self._moments.clear()
                newest = step
            elif step <= newest - KEPT:
                return None
            moment = self._moments[step] = Moment()
            for old in [each for each in self._moments if each <= max(step, newest) - KEPT]:
                del self._moments[old]
        return moment
