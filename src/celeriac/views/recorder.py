"""How a recorder gets on, as people read it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from celeriac.node.recorder import Progress
from celeriac.store.recorder_status import RecorderStatus, ailment_of
from celeriac.views.format import format_duration, format_rate, format_size
from celeriac.views.text import visible

__all__ = ["RecorderRow", "progress_line", "recorder_rows"]

_STATES: Final = {
    "starting": "starting",
    "recording": "recording",
    "disk": "DISK FULL OR READ-ONLY",
    "dropping": "DROPPING EVENTS",
    "link": "DISCONNECTED",
    "stopping": "stopping",
    "stopped": "stopped",
}
_ERROR_CHARS: Final = 300
_NAME_CHARS: Final = 80
#: A recorder that was silent for a day, while another records, was given up or renamed.
_GIVEN_UP: Final = 86_400.0


class RecorderRow(NamedTuple):
    """A recorder, by its last status. Every text is safe to show."""

    name: str
    #: What is wrong with it; empty if it is alive and well.
    ailment: str
    #: Seconds that the last event was late by when it was on the disk; None if there was none yet.
    lag: float | None
    #: Since it began: events for which there was no room, and times that events may be missing for.
    dropped: int
    gaps: int

    @property
    def is_recording(self) -> bool:
        """Whether what happens now is recorded."""
        return not self.ailment


def recorder_rows(statuses: Sequence[RecorderStatus], *, as_of: float) -> list[RecorderRow]:
    """Return the recorders that matter; where none records, the one that did last."""
    # Whether a process is there says nothing: it may be that of another container.
    rows = [(each, ailment_of(each, now=as_of, is_alive=lambda _: True)) for each in statuses]
    if all(ailment for _, ailment in rows):
        rows = sorted(rows, key=lambda row: -row[0].updated_at)[:1]
    else:
        rows = [(each, ailment) for each, ailment in rows if not ailment or not _is_given_up(each, as_of)]
    return sorted(
        RecorderRow(visible(each.name, _NAME_CHARS), visible(ailment), each.lag, each.dropped, each.gaps)
        for each, ailment in rows
    )


def _is_given_up(status: RecorderStatus, as_of: float) -> bool:
    return status.state == "stopped" or as_of - status.updated_at > _GIVEN_UP


def progress_line(progress: Progress, *, rate: float | None, size: int | None) -> str:
    """Return one line: ``rate`` in events a second, ``size`` of the log in bytes; None if it is not known."""
    seals = f" ({progress.pending_seals} to seal)" if progress.pending_seals else ""
    parts = [
        f"{_STATES.get(progress.state, visible(progress.state))}:",
        f"{progress.recorded:,} events",
        "" if rate is None else format_rate(rate),
        "" if progress.lag is None else f"lag {format_duration(progress.lag)}",
        "" if size is None else f"{format_size(size)} on disk",
        f"{progress.segments:,} segments{seals}",
        f"{progress.pending:,} pending",
        f"{progress.dropped:,} dropped",
        f"{progress.refused:,} refused" if progress.refused else "",
        f"{progress.gaps:,} gaps",
        visible(progress.last_error, _ERROR_CHARS) if progress.last_error else "",
    ]
    return "  ".join(part for part in parts if part)
