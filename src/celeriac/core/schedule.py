"""What waits for its moment."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Schedule"]

_T = TypeVar("_T")
#: So many removed entries may stay in the heap however few are left: fewer are not worth the tidying.
_SLACK: Final = 16


class _Entry(NamedTuple, Generic[_T]):
    at: float
    #: How many were added before it: what is due at one moment leaves in the order it came.
    number: int
    item: _T


class Schedule(Generic[_T]):
    """Items, each with a key and a moment, in the order of their moments and then of their coming.

    To add, to remove and to take what is due costs little however many wait, and what was removed
    takes up no room for long.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[_T]] = {}
        #: Moment, number and key of each entry, and of some that were removed.
        self._heap: list[tuple[float, int, int]] = []
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

    def add(self, key: int, at: float, item: _T) -> None:
        """Let an item wait until ``at``; one that waited under the same key waits no more."""
        self._entries[key] = _Entry(at, self._added, item)
        heappush(self._heap, (at, self._added, key))
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
        return found

    def _drop_removed(self) -> None:
        while self._heap and not self._is_there(self._heap[0]):
            heappop(self._heap)

    def _is_there(self, place: tuple[float, int, int]) -> bool:
        entry = self._entries.get(place[2])
        return entry is not None and entry.number == place[1]

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = [(entry.at, entry.number, key) for key, entry in self._entries.items()]
            heapify(self._heap)
