"""What waits for its moment."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Schedule", "time_aside"]

_T = TypeVar("_T")
#: So many removed entries may stay in the heap however few are left: fewer are not worth the tidying.
_SLACK: Final = 16
#: Seconds that an item may spend outside of a schedule that is full, longest first. A transport may need a
#: queue for each, so they are few. The longest is shorter than a worker remembers revoked tasks (3 hours).
#: Shorter lengths move items more often; longer ones make a revoke take effect later.
_TIMES_ASIDE: Final = (3600.0, 60.0, 5.0)


def time_aside(wait: float) -> float:
    """Return how long an item that waits for so many seconds may leave; 0 if it is due too soon to leave.

    It returns before half of its wait is over, so that it is back in time.
    """
    return next((seconds for seconds in _TIMES_ASIDE if 2 * seconds <= wait), 0.0)


#: Moment, number and key of an item.
_Place = tuple[float, int, int]


class _Entry(NamedTuple, Generic[_T]):
    at: float
    #: How many were added before it: what is due at one moment leaves in the order it came.
    number: int
    item: _T


class Schedule(Generic[_T]):
    """Items, each with a key and a moment, in the order of their moments and then of their coming.

    To add, to remove, to take what is due and to find the latest costs little however many wait, and what was
    removed takes up no room for long.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[_T]] = {}
        #: Moment, number and key of each entry, and of some that were removed.
        self._heap: list[_Place] = []
        #: The same with the signs of moment and number changed: the latest in front.
        self._latest: list[_Place] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[_T]:
        """Yield the items in the order they are due; what is added meanwhile is not among them."""
        for entry in sorted(self._entries.values(), key=lambda each: each[:2]):
            yield entry.item

    @property
    def next_at(self) -> float | None:
        """When the first item is due; None if none waits."""
        self._drop_removed()
        return self._heap[0][0] if self._heap else None

    @property
    def latest(self) -> tuple[float, _T] | None:
        """The item that is due last, with its moment; of several the newest. None if none waits."""
        while self._latest and not self._is_there(_opposite(self._latest[0])):
            heappop(self._latest)
        if not self._latest:
            return None
        entry = self._entries[self._latest[0][2]]
        return entry.at, entry.item

    def add(self, key: int, at: float, item: _T) -> None:
        """Let an item wait until ``at``; one that waited under the same key waits no more."""
        self._entries[key] = _Entry(at, self._added, item)
        place = (at, self._added, key)
        heappush(self._heap, place)
        heappush(self._latest, _opposite(place))
        self._added += 1
        self._tidy()

    def remove(self, key: int) -> _T | None:
        """Let an item wait no more, and return it; None if none waits under this key."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._tidy()
        return entry.item

    def due(self, now: float) -> list[_T]:
        """Take out and return what was to wait until ``now`` at the latest."""
        found: list[_T] = []
        while (at := self.next_at) is not None and at <= now:
            _, _, key = heappop(self._heap)
            found.append(self._entries.pop(key).item)
        self._tidy()
        return found

    def _drop_removed(self) -> None:
        while self._heap and not self._is_there(self._heap[0]):
            heappop(self._heap)

    def _is_there(self, place: _Place) -> bool:
        entry = self._entries.get(place[2])
        return entry is not None and entry.number == place[1]

    def _tidy(self) -> None:
        if max(len(self._heap), len(self._latest)) > 2 * len(self._entries) + _SLACK:
            self._heap = [(entry.at, entry.number, key) for key, entry in self._entries.items()]
            self._latest = [_opposite(place) for place in self._heap]
            heapify(self._heap)
            heapify(self._latest)


def _opposite(place: _Place) -> _Place:
    return -place[0], -place[1], place[2]
