"""How often tasks may begin, and those that wait for it."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Final, Generic, TypeVar

from celeriac.errors import CallerError

__all__ = ["RateLimits", "parse_rate"]

_T = TypeVar("_T")

_SECONDS: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0}
#: Who looks late may let so much go at once that the rate is kept all the same: one second's worth.
_ARREARS: Final = 1.0


def parse_rate(rate: str | float | None) -> float | None:
    """Return how many a second are meant: ``10/s``, ``100/m``, ``5/h``, or a number of them.

    None, 0 and an empty text are no limit, and give None. Raises CallerError for anything else.
    """
    if rate is None or rate == "":
        return None
    count, _, unit = rate.partition("/") if isinstance(rate, str) else (rate, "", "s")
    try:
        # Celery: without a unit it is per second.
        per_second = float(count) / _SECONDS[unit.strip() or "s"]
    except (KeyError, ValueError, TypeError):
        per_second = -1.0
    if isinstance(rate, bool) or not isfinite(per_second) or per_second < 0:
        raise CallerError(
            f"Invalid rate limit string: {rate!r}; give a number, or one such as '10/s', '100/m' or '5/h'"
        )
    return per_second or None


class RateLimits(Generic[_T]):
    """Limits by the names of tasks. What goes beyond its limit waits here, in the order it came.

    As in Celery, tasks of one name begin evenly: at ``10/s`` one may begin each tenth of a
    second. ``now`` is any clock that does not go back.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane[_T]] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def __iter__(self) -> Iterator[_T]:
        """Yield those that wait, name by name in the order they came."""
        for lane in self._lanes.values():
            yield from lane.waiting

    def set(self, name: str, rate: float | None, *, now: float) -> None:
        """Let so many tasks of a name begin in a second, any number for None; what waits goes on waiting."""
        lane = self._lanes.get(name)
        if rate is None and (lane is None or not lane.waiting):
            self._lanes.pop(name, None)
            return
        if lane is None:
            lane = self._lanes[name] = _Lane(now)
        lane.interval = 0.0 if rate is None else 1.0 / rate
        # What waits by an old and slower rate need not.
        lane.free_at = min(lane.free_at, now + lane.interval)

    def enter(self, name: str, item: _T, *, now: float) -> bool:
        """Say whether a task may begin now; if not, it waits until :meth:`due` returns it."""
        lane = self._lanes.get(name)
        if lane is None:
            return True
        if lane.waiting or lane.free_at > now:
            lane.waiting.append(item)
            return False
        lane.free_at = now + lane.interval
        return True

    def due(self, now: float) -> list[_T]:
        """Take out and return those that may begin by now, in the order of their turns."""
        turns: list[tuple[float, int, _T]] = []
        for name, lane in list(self._lanes.items()):
            lane.free_at = max(lane.free_at, now - _ARREARS)
            while lane.waiting and lane.free_at <= now:
                turns.append((lane.free_at, len(turns), lane.waiting.popleft()))
                lane.free_at += lane.interval
            if not lane.waiting and lane.interval == 0:
                del self._lanes[name]
        return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])]

    def next_at(self, now: float) -> float | None:
        """Return when :meth:`due` has something to return, at the earliest ``now``; None if nothing waits."""
        first = min((lane.free_at for lane in self._lanes.values() if lane.waiting), default=None)
        return None if first is None else max(first, now)

    def remove(self, is_unwanted: Callable[[_T], bool]) -> list[_T]:
        """Take out and return those that wait and are unwanted; the others keep their turns."""
        removed: list[_T] = []
        for lane in self._lanes.values():
            kept: deque[_T] = deque()
            for item in lane.waiting:
                (removed if is_unwanted(item) else kept).append(item)
            lane.waiting = kept
        return removed


class _Lane(Generic[_T]):
    """One name: how far apart its tasks begin, when the next may, and who waits."""

    def __init__(self, now: float) -> None:
        self.interval = 0.0
        self.free_at = now
        self.waiting: deque[_T] = deque()
