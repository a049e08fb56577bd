"""What somebody asks of the history, as the address of the page has it: so that a link can be shared."""

from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, NamedTuple, get_args

from celeriac.errors import CallerError
from celeriac.history.span import By, Span, check_times
from celeriac.history.times import Per

__all__ = [
    "AGAINST",
    "BY",
    "EXACT",
    "MOST_CHARS",
    "PER",
    "RANGES",
    "TABS",
    "HistoryQuery",
    "input_text",
    "moment_of",
]

#: What is asked for, by the name that the address has for it.
TABS: Final = {
    "latency": "Latency",
    "top": "Slowest and failing",
    "compare": "Compare",
    "sessions": "Workers",
}
EXACT: Final = "exact"
_LENGTHS: Final = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}
RANGES: Final = {
    "hour": "Last hour",
    "day": "Last 24 hours",
    "week": "Last 7 days",
    "month": "Last 30 days",
    EXACT: "Custom range",
}
#: What times are told apart; the whole is one of them.
BY: Final = {"": "None", "minute": "Minute", "hour": "Hour", "day": "Day"}
#: What attempts are told apart by.
PER: Final[dict[Per, str]] = {"task": "Task", "worker": "Worker", "queue": "Queue"}
#: What a time is compared with.
AGAINST: Final = {
    "before": "Previous period",
    "yesterday": "Same time yesterday",
    "last-week": "Same time last week",
    EXACT: "Custom range",
}
#: Points that a chart can show, and a table can be read of.
_MOST_TIMES: Final = 3000
#: What is longer is cut.
MOST_CHARS: Final = 200
_END_OF_TIME: Final = 4_102_444_800.0

Range = tuple[float | None, float | None]


class HistoryQuery(NamedTuple):
    """What is asked. Texts are empty where nothing is said; moments are seconds of the epoch."""

    tab: str = "latency"
    task: str = ""
    worker: str = ""
    queue: str = ""
    range: str = "day"
    since: float | None = None
    until: float | None = None
    by: str = "hour"
    per: str = "task"
    against: str = "before"
    other_since: float | None = None
    other_until: float | None = None

    def checked(self) -> "HistoryQuery":
        """Return it with what is not known left at its default, as links may be old or cut."""
        usual = HistoryQuery()
        range_ = self.range if self.range in RANGES else usual.range
        if self.since is not None or self.until is not None:
            range_ = EXACT
        return self._replace(
            tab=self.tab if self.tab in TABS else usual.tab,
            by=self.by if self.by in BY else usual.by,
            per=self.per if self.per in PER else usual.per,
            range=range_,
            against=self.against if self.against in AGAINST else usual.against,
            task=self.task[:MOST_CHARS],
            worker=self.worker[:MOST_CHARS],
            queue=self.queue[:MOST_CHARS],
            since=_moment(self.since),
            until=_moment(self.until),
            other_since=_moment(self.other_since),
            other_until=_moment(self.other_until),
        )

    def address(self) -> dict[str, Any]:
        """Return what the address of it says: all that is not as usual."""
        told = {
            name: value
            for name, value in self._asdict().items()
            if value != HistoryQuery._field_defaults[name]
        }
        if self.by == "":
            told["by"] = "none"  # what is empty is left out of an address
        if self.range == EXACT:
            told.pop("range", None)
        return told

    def span(self, now: float) -> Range:
        """Return the time that is asked about; ``now`` is the moment that is shown."""
        if self.range != EXACT:
            return now - _LENGTHS[self.range], now
        return self.since, now if self.until is None else min(self.until, now)

    def other_span(self, now: float) -> Range:
        """Return the time that it is compared with. Raises CallerError if there is none."""
        if self.against == EXACT:
            return self.other_since, self.other_until
        since, until = self.span(now)
        if since is None or until is None:
            raise CallerError("Custom range needs a start to be compared with the previous period.")
        back = {"yesterday": 86_400.0, "last-week": 7 * 86_400.0}.get(self.against, until - since)
        return since - back, until - back

    @property
    def parts(self) -> Per:
        """What attempts are told apart by."""
        return next((each for each in get_args(Per) if each == self.per), "task")

    def times(self, now: float) -> By | None:
        """Return what times are told apart. Raises CallerError for too many of them."""
        by = next((each for each in get_args(By) if each == self.by), None)
        check_times(by, Span(*self.span(now)), most=_MOST_TIMES)
        return by


def _moment(at: float | None) -> float | None:
    return at if at is not None and isfinite(at) and 0 <= at < _END_OF_TIME else None


def input_text(at: float | None) -> str:
    """Return a moment as a field of a browser has it, in UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def moment_of(text: str | None) -> float | None:
    """Return the moment of such a field; None if it is empty. Raises CallerError for what is no moment."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise CallerError("Invalid time. Use a date and a time in UTC: 2026-11-16 07:30") from None
