"""How a recorder gets on, as people read it."""

from typing import Final

from celeriac.node.recorder import Progress
from celeriac.views.text import visible

__all__ = ["bytes_text", "progress_line"]

_STATES: Final = {
    "recording": "recording",
    "disk": "THE DISK TAKES NOTHING",
    "dropping": "DROPPING EVENTS",
    "link": "NO LINK",
    "stopping": "ending",
    "stopped": "ended",
}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_ERROR_CHARS: Final = 300


def progress_line(progress: Progress, *, rate: float | None, size: int | None) -> str:
    """Return one line: ``rate`` in events a second, ``size`` of the log in bytes; None if it is not known."""
    seals = f" ({progress.pending_seals} to seal)" if progress.pending_seals else ""
    parts = [
        f"{_STATES.get(progress.state, visible(progress.state))}:",
        f"{progress.recorded:,} events",
        "" if rate is None else f"{rate:,.0f}/s",
        "" if progress.lag is None else f"lag {progress.lag:.1f} s",
        "" if size is None else f"{bytes_text(size)} on disk",
        f"{progress.segments:,} segments{seals}",
        f"{progress.pending:,} pending",
        f"{progress.dropped:,} dropped",
        f"{progress.refused:,} refused" if progress.refused else "",
        f"{progress.gaps:,} gaps",
        visible(progress.last_error, _ERROR_CHARS) if progress.last_error else "",
    ]
    return "  ".join(part for part in parts if part)


def bytes_text(size: float) -> str:
    """Return how many bytes something has, to three digits or so."""
    for unit in _UNITS:
        if size < _THOUSAND or unit == _UNITS[-1]:
            break
        size /= _THOUSAND
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
