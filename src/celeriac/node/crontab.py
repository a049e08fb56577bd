"""Crontabs: ticks by the calendar of a zone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from math import inf
from typing import Any, Final

from cronsim import CronSim, CronSimError

from celeriac.core.beat import Span
from celeriac.errors import ImproperlyConfigured

__all__ = ["Calendar", "Field", "crontab"]

#: What a field of a crontab is given as: a number, several, or a text such as ``*/5`` or ``mon-fri``.
Field = int | str | Iterable[int]
#: Ticks that are counted one by one; of more only the latest is looked for.
_MOST_COUNTED: Final = 1000
#: Where that search begins, in seconds before the end.
_FIRST_LOOK: Final = 3600.0
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: The least and the greatest number of each field, and names for them.
_RANGES: Final[dict[str, tuple[int, int, tuple[str, ...]]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day_of_month": (1, 31, ()),
    "month_of_year": (1, 12, _MONTHS),
    "day_of_week": (0, 6, _DAYS),
}


@dataclass(frozen=True)
class crontab:  # noqa: N801 - as Celery spells it
    """A calendar schedule: ``crontab(minute=0, hour=3)`` is due each day at three.

    Arguments, their order and their values are those of Celery. All five fields must match; a string of five
    fields, which is read like cron, is due if one of two day fields matches.
    """

    minute: Field = "*"
    hour: Field = "*"
    day_of_week: Field = "*"
    day_of_month: Field = "*"
    month_of_year: Field = "*"

    def text(self) -> str:
        """Return the five fields in the order of cron; raises ImproperlyConfigured for a bad one."""
        return " ".join(_field_text(name, getattr(self, name)) for name in _RANGES)


class Calendar:
    """The ticks of a crontab of five fields in a zone.

    Where clocks are put forward, what was to be in the hour that is left out is due at its end. Where they
    are put back, what is due at some hour is due in the first of the two; what is due each hour, in both.
    """

    def __init__(self, text: str, zone: tzinfo, *, needs_both_days: bool = False) -> None:
        self.text = text
        self._zone = zone
        self._needs_both_days = needs_both_days
        if len(text.split()) != len(_RANGES):
            raise ImproperlyConfigured(
                f"invalid crontab {text!r:.80}: give five fields, such as '*/5 * * * *'"
            )
        try:
            self._simulator(0.0)
        except (CronSimError, AssertionError) as error:
            told = str(error).lower() or "bad"
            raise ImproperlyConfigured(f"invalid crontab {text!r:.80} ({told}): correct that field") from None

    def next_after(self, moment: float) -> float:
        """Return the first tick after a moment; infinite if there is none within fifty years."""
        return next(self._ticks(moment), inf)

    def latest(self, *, after: float, until: float) -> Span | None:
        """Return the latest tick after one moment and not after another."""
        latest, count = -inf, 0
        for at in self._ticks(after):
            if at > until:
                return Span(latest, count - 1) if count else None
            if count >= _MOST_COUNTED:
                return Span(self._last_until(until), count - 1)
            latest, count = at, count + 1
        return Span(latest, count - 1) if count else None

    def _last_until(self, until: float) -> float:
        """Return the latest tick up to a moment, of which there are many."""
        back = _FIRST_LOOK
        while self.next_after(until - back) > until:
            back *= 2
        latest = -inf
        for at in self._ticks(until - back):
            if at > until:
                break
            latest = at
        return latest

    def _ticks(self, after: float) -> Iterator[float]:
        """Yield the ticks after a moment, each later than the one before."""
        last = after
        for moment in self._simulator(after):
            at = moment.timestamp()
            # Two may fall on one moment, or on one that is over, where clocks are changed.
            if at > last:
                yield at
                last = at

    def _simulator(self, after: float) -> CronSim:
        simulator = CronSim(self.text, datetime.fromtimestamp(after, self._zone))
        if self._needs_both_days:
            simulator.day_and = True
        return simulator


def _field_text(name: str, given: Any) -> str:
    least, greatest, names = _RANGES[name]
    if isinstance(given, str):
        parts = given.replace(" ", "").lower().split(",")
    elif isinstance(given, Iterable):
        parts = [str(each) for each in sorted(set(given))]
    else:
        parts = [str(given)]
    try:
        return ",".join(_unwrapped(part, least, greatest, names) for part in parts)
    except ValueError:
        raise ImproperlyConfigured(
            f"crontab {name} is {given!r:.80}: give a number from {least} to {greatest}, a list, or a "
            "string such as '*/5' or '1-3'"
        ) from None


def _unwrapped(part: str, least: int, greatest: int, names: tuple[str, ...]) -> str:
    """Return a part of a field as cron knows it: a range over the end, such as ``22-3``, as its numbers."""
    span, _, step = part.partition("/")
    if span == "*":
        return part
    first, dash, last = span.partition("-")
    begin = _number(first, least, greatest, names)
    if not dash:
        return f"{begin}/{int(step)}" if step else str(begin)
    end = _number(last, least, greatest, names)
    if begin <= end:
        return f"{begin}-{end}/{int(step)}" if step else f"{begin}-{end}"
    # Celery: a range may pass the end, as in fri-mon.
    numbers = [*range(begin, greatest + 1), *range(least, end + 1)]
    return ",".join(str(number) for number in sorted(numbers[:: int(step or 1)]))


def _number(text: str, least: int, greatest: int, names: tuple[str, ...]) -> int:
    # Celery: names are told by their first three letters.
    number = names.index(text[:3]) + least if text[:3] in names else int(text)
    if not least <= number <= greatest:
        raise ValueError(text)
    return number
