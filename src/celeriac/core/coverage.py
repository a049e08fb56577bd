"""Which of a recorder's numbers a log has: each event has the next one, so one that is missing is noticed."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from math import inf
from operator import attrgetter
from typing import NamedTuple

__all__ = ["Span", "is_within", "join", "missing", "overlapping"]


class Span(NamedTuple):
    """Numbers of one recorder, both ends included."""

    recorder: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last} of {self.recorder}"

    @property
    def size(self) -> int:
        """How many numbers they are."""
        return self.last - self.first + 1


def join(spans: Iterable[Span]) -> list[Span]:
    """Return the same numbers in as few spans as can be, sorted."""
    joined: list[Span] = []
    for span in sorted(spans):
        before = joined[-1] if joined else None
        if before is not None and before.recorder == span.recorder and span.first <= before.last + 1:
            joined[-1] = before._replace(last=max(before.last, span.last))
        else:
            joined.append(span)
    return joined


def missing(spans: Iterable[Span], *, first: int) -> list[Span]:
    """Return the numbers that nobody has, from ``first`` to the last that each recorder is known to have."""
    holes: list[Span] = []
    for recorder, known in groupby(join(spans), attrgetter("recorder")):
        for before, after in pairwise((Span(recorder, first, first - 1), *known)):
            if after.first > before.last + 1:
                holes.append(Span(recorder, before.last + 1, after.first - 1))
    return holes


def overlapping(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """Return the pairs of spans that share numbers: each with the one before it that reaches furthest."""
    pairs: list[tuple[Span, Span]] = []
    furthest: Span | None = None
    for span in sorted(spans):
        if furthest is not None and furthest.recorder == span.recorder:
            if span.first <= furthest.last:
                pairs.append((furthest, span))
            if span.last <= furthest.last:
                continue
        furthest = span
    return pairs


def is_within(span: Span, joined: Sequence[Span]) -> bool:
    """Return whether one of some joined spans has all the numbers of a span."""
    place = bisect_right(joined, (span.recorder, span.first, inf)) - 1
    return place >= 0 and joined[place].recorder == span.recorder and span.last <= joined[place].last
