"""Moments, spans of time, sizes and speeds, as people write them."""

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

from celeriac.errors import CallerError
from celeriac.model.events import MAX_TIMESTAMP
from celeriac.views.text import visible

__all__ = ["Moment", "read_moment", "read_size", "read_span", "read_speed"]

_DAY: Final = 86_400.0
_SPANS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY, "w": 7 * _DAY, "y": 365 * _DAY}
_SIZES: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_NUMBER: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([a-zA-Z]*)", re.ASCII)

_MOMENTS: Final = (
    "2026-11-14T10:00 (local time), 2026-11-14T10:00Z or +01:00, 2026-11-14 (its midnight), "
    "-2h for ago (s, m, h, d, w, y), or now"
)


class Moment(NamedTuple):
    """A moment, and how it was understood."""

    at: float
    #: What to tell whoever wrote it without a zone; empty if there is nothing to tell.
    note: str = ""


def read_moment(text: str, *, option: str, now: float, zone: tzinfo | None = None) -> Moment:
    """Return the moment that a text names; one without a zone is meant in ours, and that is said."""
    plain = text.strip()
    if plain.lower() == "now":
        return Moment(now)
    if plain.startswith("-"):
        ago = _scaled(plain[1:], _SPANS)
        found = None if ago is None else Moment(now - ago)
    else:
        found = _named(plain, option, zone)
    if found is None or found.at < 0:
        raise _unreadable(option, text, "a moment", _MOMENTS)
    if found.at >= MAX_TIMESTAMP:
        raise CallerError(f"{option} {visible(text, 40)!r} is too late: name a moment before the year 2100")
    return found


def _named(text: str, option: str, zone: tzinfo | None) -> Moment | None:
    try:
        named = datetime.fromisoformat(text)
        if named.tzinfo is not None:
            return Moment(named.timestamp())
        # An hour that a change of clocks leaves out or brings twice is told as it was taken.
        local = named.replace(tzinfo=zone) if zone is not None else named.astimezone()
        return Moment(local.timestamp(), f"{option} {text} is taken for local time, {local.isoformat()}")
    except (ValueError, OverflowError, OSError):
        return None


def read_span(text: str, *, option: str) -> float | None:
    """Return seconds; None for ever."""
    seconds = 0.0 if text.strip() == "0" else _scaled(text, _SPANS)
    if seconds is None:
        raise _unreadable(option, text, "a span of time", "30s, 15m, 12h, 90d, 4w, 1y, or 0 for ever")
    return seconds or None


def read_size(text: str, *, option: str) -> int | None:
    """Return bytes; None for no limit."""
    size = _scaled(text.strip().upper().removesuffix("B").removesuffix("I"), _SIZES)
    if size is None:
        raise _unreadable(option, text, "a size", "500M, 10G, 1T, a number of bytes, or 0 for no limit")
    return int(size) or None


def read_speed(text: str, *, option: str) -> float | None:
    """Return how many times as fast as it happened; None for as fast as can be."""
    plain = text.strip().lower()
    if plain == "max":
        return None
    speed = _scaled(plain, {"x": 1.0, "": 1.0})
    if not speed:
        raise _unreadable(option, text, "a speed", "10x, 0.5x, or max")
    return speed


def _scaled(text: str, units: Mapping[str, float]) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    return float(match[1]) * units[match[2]] if match is not None and match[2] in units else None


def _unreadable(option: str, text: str, what: str, forms: str) -> CallerError:
    return CallerError(f"{option} {visible(text, 40)!r} is not {what}: write {forms}")
