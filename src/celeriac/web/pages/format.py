"""How pages write numbers, moments and durations. Moments are told in UTC, and say so."""

from datetime import UTC, datetime
from typing import Final

__all__ = [
    "UNKNOWN",
    "clock_text",
    "count_text",
    "duration_text",
    "iso_text",
    "moment_text",
    "rate_text",
    "state_class",
]

UNKNOWN: Final = "-"
_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_STATES: Final = frozenset(
    {"PENDING", "RECEIVED", "STARTED", "SUCCESS", "FAILURE", "RETRY", "REVOKED", "REJECTED"}
    | {"ALIVE", "SUSPECT", "LOST", "LEFT"}
)


def moment_text(at: float | None) -> str:
    """Return a moment with its day: ``2026-11-16 07:31:05 UTC``."""
    told = _read(at)
    return UNKNOWN if told is None else told.strftime("%Y-%m-%d %H:%M:%S UTC")


def iso_text(told: str | None) -> str:
    """Return a moment that is told in ISO 8601, in UTC, as pages write it."""
    return UNKNOWN if told is None else f"{told[:19].replace('T', ' ')} UTC"


def clock_text(at: float | None) -> str:
    """Return the time of the day alone, to the millisecond: ``07:31:05.250``."""
    told = _read(at)
    return UNKNOWN if told is None else f"{told:%H:%M:%S}.{told.microsecond // 1000:03d}"


def _read(at: float | None) -> datetime | None:
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):  # a peer may say any number
        return None


def duration_text(seconds: float | None) -> str:
    """Return a duration with three digits that matter: ``1.25 s``, ``340 ms``, ``2 h 5 min``."""
    if seconds is None:
        return UNKNOWN
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    return sign + (_short_text(seconds) if seconds < 59.95 else _long_text(round(seconds)))


def _short_text(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _long_text(seconds: int) -> str:
    # From the largest unit that it has one of, down to the next.
    for large, small in (("d", "h"), ("h", "min"), ("min", "s")):
        whole, rest = divmod(seconds, _UNITS[large])
        if whole:
            return f"{whole} {large} {rest // _UNITS[small]} {small}"
    return f"{seconds} s"


def count_text(count: float | None) -> str:
    """Return a count in groups of three digits: ``12,345``."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def rate_text(rate: float | None) -> str:
    """Return how often something happens within a second: ``3.2/s``."""
    if rate is None:
        return UNKNOWN
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def state_class(state: str | None) -> str:
    """Return the class that the style sheet has for a state; one for all that tasks make up themselves."""
    return f"state state-{state.lower()}" if state in _STATES else "state"
