"""What a log keeps, and how it stays in few files: decisions about segments, by what their names say.

Age is counted by our own time of receipt: a worker whose clock is a year ahead keeps nothing alive. A
segment goes as a whole, once all that is in it is old enough, so each is rewritten once at most.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from celeriac.core.coverage import Span, is_within, join
from celeriac.errors import ImproperlyConfigured

__all__ = ["HOUR", "Piece", "Plan", "beyond_size", "check_ages", "merges", "plan", "received_until"]

HOUR: Final = 3600.0


class Piece(NamedTuple):
    """A segment, as far as is to be decided about it."""

    #: When the hour began in which its first row was received.
    hour_at: float
    span: Span
    size: int
    #: The last moment in it, by the clocks of the senders.
    end_at: float
    path: str


class Plan(NamedTuple):
    """What is to be done with which segments."""

    #: All that is in them is too old.
    drop: list[Piece]
    #: Only what belongs to tasks that failed is to stay.
    trim: list[Piece]


def check_ages(*, keep: float | None, keep_failures: float | None) -> None:
    """Refuse ages that contradict each other."""
    for name, age in (("log_keep", keep), ("log_keep_failures", keep_failures)):
        if age is not None and age < 0:
            raise ImproperlyConfigured(f"{name} is {age:g} seconds: give 0 or more, or none to keep all")
    if keep_failures is not None and keep is not None and keep_failures < keep:
        raise ImproperlyConfigured(
            f"log_keep_failures ({keep_failures:g} seconds) is less than log_keep ({keep:g}): failures are "
            "kept at least as long as other events. Raise it, or remove it"
        )


def received_until(piece: Piece) -> float:
    """Return the latest that a row of a segment can have been received."""
    # A segment is sealed when its hour ends, and what came while it was is in it too: what senders say
    # tells of that. Beyond an hour it is their clock that is wrong.
    hour_end = piece.hour_at + HOUR
    return min(max(piece.end_at, hour_end), hour_end + HOUR)


def plan(
    pieces: Iterable[Piece],
    *,
    keep: float | None,
    keep_failures: float | None,
    now: float,
    trimmed: Iterable[Span] = (),
) -> Plan:
    """Decide by age and outcome what becomes of segments.

    Events are kept for ``keep`` seconds, those of tasks that failed for ``keep_failures``; None of the
    first keeps all, and of the second is as of the first. What was ``trimmed`` before is not again.
    """
    check_ages(keep=keep, keep_failures=keep_failures)
    made = Plan([], [])
    if keep is None:
        return made
    longest = keep if keep_failures is None else keep_failures
    done = join(trimmed)
    for piece in sorted(pieces):
        age = now - received_until(piece)
        if age > longest:
            made.drop.append(piece)
        elif age > keep and not is_within(piece.span, done):
            made.trim.append(piece)
    return made


def beyond_size(pieces: Iterable[Piece], *, max_bytes: int | None) -> list[Piece]:
    """Return the oldest segments, as few as have to go for the rest to fit."""
    ordered = sorted(pieces)
    excess = 0 if max_bytes is None else sum(piece.size for piece in ordered) - max_bytes
    going: list[Piece] = []
    for piece in ordered:
        if excess <= 0:
            break
        going.append(piece)
        excess -= piece.size
    return going


def merges(
    pieces: Iterable[Piece], *, target_bytes: int, now: float, gone: Iterable[Span] = ()
) -> list[list[Piece]]:
    """Return which segments to make one of each.

    Those of one recorder and one hour whose numbers follow on each other, up to ``target_bytes`` in all.
    An hour that is not over gets more of them, and waits. Numbers that are ``gone`` on purpose part
    nothing; any others do, for a merged segment would hide that they are missing.
    """
    removed = join(gone)
    by_hour = sorted(pieces, key=lambda piece: (piece.hour_at, piece.span))
    made: list[list[Piece]] = []
    for (hour_at, _), group in groupby(by_hour, key=lambda piece: (piece.hour_at, piece.span.recorder)):
        if hour_at + HOUR <= now:
            made.extend(run for run in _runs(list(group), target_bytes, removed) if len(run) > 1)
    return made


def _runs(group: Sequence[Piece], target_bytes: int, gone: Sequence[Span]) -> Iterator[list[Piece]]:
    """Part the segments of an hour into runs that may each become one."""
    run: list[Piece] = []
    size = 0
    for piece in group:
        is_next = bool(run) and _follows(run[-1].span, piece.span, gone)
        if not is_next or size + piece.size > target_bytes:
            if run:
                yield run
            run, size = [], 0
        run.append(piece)
        size += piece.size
    if run:
        yield run


def _follows(before: Span, after: Span, gone: Sequence[Span]) -> bool:
    if after.first <= before.last:
        return False
    between = Span(before.recorder, before.last + 1, after.first - 1)
    return between.first > between.last or is_within(between, gone)
