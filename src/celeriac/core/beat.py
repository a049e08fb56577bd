"""Which ticks of a schedule are due, and what of them was told: the rules of a periodic scheduler."""

from collections.abc import Mapping
from math import floor, inf
from typing import Final, NamedTuple, Protocol

__all__ = ["FORGET_AFTER", "Beat", "Due", "Every", "Item", "Rhythm", "Span", "Tick"]

#: A week: for so long an entry that is gone from the schedule is remembered, in case it comes back.
FORGET_AFTER: Final = 7 * 24 * 3600.0
#: Parts of a second that moments are told in: a million.
_DIGITS: Final = 6


class Span(NamedTuple):
    """Ticks that lie between two moments."""

    #: The latest of them.
    at: float
    #: How many there are before it; of a long time perhaps more.
    skipped: int


class Rhythm(Protocol):
    """When something is due: moments that are the same wherever they are counted."""

    def next_after(self, moment: float) -> float:
        """Return the first tick after a moment; infinite if there is none."""

    def latest(self, *, after: float, until: float) -> Span | None:
        """Return the latest tick after one moment and not after another."""


class Every(NamedTuple):
    """Ticks at whole multiples of some seconds since 1970."""

    seconds: float

    def next_after(self, moment: float) -> float:
        """Return the first tick after a moment."""
        number = floor(moment / self.seconds)
        # By what is told, not by what is counted: the division may be off by a hair.
        while self._at(number) <= moment:
            number += 1
        return self._at(number)

    def latest(self, *, after: float, until: float) -> Span | None:
        """Return the latest tick after one moment and not after another."""
        number = floor(until / self.seconds) + 1
        while self._at(number) > until:
            number -= 1
        at = self._at(number)
        return None if at <= after else Span(at, round((at - self.next_after(after)) / self.seconds))

    def _at(self, number: int) -> float:
        return round(number * self.seconds, _DIGITS)


class Item(NamedTuple):
    """One entry of a schedule, as far as time goes."""

    rhythm: Rhythm
    #: For how many seconds a tick is worth sending; None for as long as it is the latest.
    lasts: float | None = None


class Tick(NamedTuple):
    """One moment of one entry."""

    entry: str
    at: float
    #: How many before it were never sent.
    skipped: int = 0


class Due(NamedTuple):
    """What is to be told of a moment: to be noted first, and then sent."""

    ticks: list[Tick]
    #: Those that are too late to be sent.
    stale: list[Tick]
    #: Whether there is something to note, be it that an entry is new.
    is_news: bool


class Beat:
    """One leader's view of a schedule; ``noted`` is the last tick of each entry that was ever told.

    No tick is due that is not later than the last one of its entry, whatever the clock does. Of several
    that were missed the latest is due, once. An entry that nobody knew begins with its next tick.
    """

    def __init__(self, items: Mapping[str, Item], noted: Mapping[str, float]) -> None:
        self._items = dict(items)
        self._last: dict[str, float] = {name: noted[name] for name in items if name in noted}
        self._gone: dict[str, float] = {name: at for name, at in noted.items() if name not in items}
        self._next: dict[str, float] = {}

    @property
    def next_at(self) -> float:
        """When something is due; infinite if nothing ever is. Known after the first :meth:`tick`."""
        return min(self._next.values(), default=inf)

    def tick(self, now: float) -> Due:
        """Take what is due: it counts as told, so it is to be noted before anything else is done."""
        due = Due([], [], is_news=False)
        for name, item in self._items.items():
            if name not in self._last:
                self._last[name] = now
                due = due._replace(is_news=True)
            if self._next.get(name, -inf) <= now:
                self._take(name, item, now, due)
        return due._replace(is_news=True) if due.ticks or due.stale else due

    def note(self, now: float) -> dict[str, float]:
        """Return the last tick of each entry; then of those that are gone and not forgotten, newest first."""
        gone = sorted(self._gone.items(), key=lambda each: (-each[1], each[0]))
        return self._last | {name: at for name, at in gone if now - at < FORGET_AFTER}

    def ahead(self, now: float) -> dict[str, float]:
        """Return by how many seconds the last tick of an entry is later than now, where it is."""
        return {name: at - now for name, at in self._last.items() if at > now}

    def _take(self, name: str, item: Item, now: float, due: Due) -> None:
        span = item.rhythm.latest(after=self._last[name], until=now)
        if span is not None:
            self._last[name] = span.at
            is_stale = item.lasts is not None and now - span.at > item.lasts
            (due.stale if is_stale else due.ticks).append(Tick(name, *span))
        self._next[name] = item.rhythm.next_after(max(self._last[name], now))
