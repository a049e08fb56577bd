"""Rows for what a beat sends, and when."""

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

from celeriac.node.schedule_entry import ScheduleEntry
from celeriac.views.text import visible

__all__ = ["ScheduleRow", "schedule_rows"]

_NAME_CHARS: Final = 80


class ScheduleRow(NamedTuple):
    """An entry of a schedule. Every text is safe to show."""

    name: str
    task: str
    schedule: str
    #: When it is due next, by the zone of the schedule.
    next: str


def schedule_rows(entries: Iterable[ScheduleEntry], *, now: float, zone: tzinfo) -> list[ScheduleRow]:
    """Return a row for each entry; the first that is due stands first."""
    due = sorted((entry.rhythm.next_after(now), entry.name, entry) for entry in entries)
    return [
        ScheduleRow(
            visible(entry.name, _NAME_CHARS),
            visible(entry.task, _NAME_CHARS),
            visible(entry.when, _NAME_CHARS),
            datetime.fromtimestamp(next_at, zone).isoformat(" ", "seconds" if next_at % 1 == 0 else "auto"),
        )
        for next_at, _, entry in due
    ]
