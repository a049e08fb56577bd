"""Spans of time: which days of a table they touch, and which hours and minutes they are made of."""

from datetime import UTC, datetime
from math import ceil, floor, inf, isfinite
from typing import Final, Literal, NamedTuple

from celeriac.errors import CallerError

__all__ = ["EVER", "WIDTHS", "By", "Days", "Parts", "Span", "check_times", "day_of"]

By = Literal["minute", "hour", "day"]
#: Seconds.
WIDTHS: Final[dict[By, float]] = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0}


class Days(NamedTuple):
    """UTC dates, both ends included; an empty text leaves an end open."""

    first: str = ""
    last: str = ""

    def has(self, day: str) -> bool:
        """Tell whether a date is one of them."""
        return self.first <= day and (not self.last or day <= self.last)


#: All of them.
EVER: Final = Days()


class Parts(NamedTuple):
    """A span put together from whole hours, and from minutes before and after them."""

    since: float
    hours_from: float
    hours_to: float
    until: float

    @property
    def has_hours(self) -> bool:
        """Tell whether there is a whole hour in it."""
        return self.hours_from < self.hours_to

    @property
    def has_minutes(self) -> bool:
        """Tell whether there is more than whole hours in it."""
        return self.since < self.hours_from or self.hours_to < self.until


class Span(NamedTuple):
    """From a moment on, and until before another; None leaves an end open."""

    since: float | None = None
    until: float | None = None

    @property
    def begin_at(self) -> float:
        """The first moment, before all others if it is open."""
        return -inf if self.since is None else self.since

    @property
    def end_at(self) -> float:
        """The end, after all moments if it is open."""
        return inf if self.until is None else self.until

    @property
    def days(self) -> Days:
        """The UTC dates that it touches."""
        return Days(
            "" if self.since is None else day_of(self.since), "" if self.until is None else day_of(self.until)
        )

    def parts(self, by: By | None) -> Parts:
        """Return how it is put together: of minutes alone if they are to be told apart.

        It begins with the whole minute that ``since`` is in, as nothing finer is counted.
        """
        since = floor(self.begin_at / 60) * 60.0 if isfinite(self.begin_at) else -inf
        if by == "minute":
            return Parts(since, self.end_at, self.end_at, self.end_at)
        hours_from = ceil(since / 3600) * 3600.0 if isfinite(since) else -inf
        hours_to = floor(self.end_at / 3600) * 3600.0 if isfinite(self.end_at) else inf
        if hours_from >= hours_to:
            return Parts(since, self.end_at, self.end_at, self.end_at)
        return Parts(since, hours_from, hours_to, self.end_at)

    def checked(self) -> "Span":
        """Return the same; CallerError if it ends before it begins."""
        if self.begin_at > self.end_at:
            raise CallerError("since is later than until: swap them")
        return self


def check_times(by: By | None, span: Span, *, most: int) -> None:
    """Raise CallerError if a span that has an end has more times of a length than are told at once."""
    if by is None:
        return
    if span.since is None:
        if by != "day":
            raise CallerError("the range has no start: set since, or group by day or longer intervals")
        return
    count = (span.end_at - span.since) / WIDTHS[by]
    if count > most:
        raise CallerError(
            f"the range has {count:,.0f} intervals, more than the limit of {most:,}: use longer intervals"
        )


def day_of(at: float) -> str:
    """Return the UTC date of a moment."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        raise CallerError(f"{at!r} is outside the range of dates: give seconds since the epoch") from None
