"""Reads times, durations, sizes and speeds as users write them."""

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

from celeriac.errors import CallerError
from celeriac.model.events import MAX_TIMESTAMP
from celeriac.views.text import visible

__all__ = ["GivenTime", "read_size", "read_span", "read_speed", "read_time"]

_DAY: Final = 86_400.0
_SPANS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY, "w": 7 * _DAY, "y": 365 * _DAY}
_SIZES: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_NUMBER: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([a-zA-Z]*)", re.ASCII)

_TIMES: Final = "7d, 2h, 2026-11-14T10:00Z or now"


class GivenTime(NamedTuple):
    """A timestamp, and how it was understood."""

    at: float
    #: For a time without a time zone: the local time that it was read as.
    note: str = ""


def read_time(text: str, *, option: str, now: float, zone: tzinfo | None = None) -> GivenTime:
    """Return the time that a text names: ``2h`` or ``-2h`` ago, ISO 8601, or ``now``.

    A time without a time zone is local.
    """
    plain = text.strip()
    if plain.lower() == "now":
        return GivenTime(now)
    ago = _scaled(plain.removeprefix("-"), _SPANS)
    found = _named(plain, option, zone) if ago is None else GivenTime(now - ago)
    if found is None or found.at < 0:
        raise _unreadable(option, text, _TIMES)
    if found.at >= MAX_TIMESTAMP:
        raise CallerError(f"Invalid {option} {visible(text, 40)!r}. Use a time before the year 2100.")
    return found


def _named(text: str, option: str, zone: tzinfo | None) -> GivenTime | None:
    try:
        named = datetime.fromisoformat(text)
        if named.tzinfo is not None:
            return GivenTime(named.timestamp())
        # An hour that a change of clocks skips or repeats is shown as it was read.
        local = named.replace(tzinfo=zone) if zone is not None else named.astimezone()
        return GivenTime(local.timestamp(), f"{option} {text}: local time, {local.isoformat()}")
    except (ValueError, OverflowError, OSError):
        return None


def read_span(text: str, *, option: str) -> float | None:
    """Return seconds; None for no limit."""
    seconds = 0.0 if text.strip() == "0" else _scaled(text, _SPANS)
    if seconds is None:
        raise _unreadable(option, text, "30s, 15m, 12h, 90d, 4w, 1y, or 0 for no limit")
    return seconds or None


def read_size(text: str, *, option: str) -> int | None:
    """Return bytes; None for no limit."""
    size = _scaled(text.strip().upper().removesuffix("B").removesuffix("I"), _SIZES)
    if size is None:
        raise _unreadable(option, text, "500M, 10G, 1T, a number of bytes, or 0 for no limit")
    return int(size) or None


def read_speed(text: str, *, option: str) -> float | None:
    """Return the factor of a replay speed; None for no waiting at all."""
    plain = text.strip().lower()
    if plain == "max":
        return None
    speed = _scaled(plain, {"x": 1.0, "": 1.0})
    if not speed:
        raise _unreadable(option, text, "10x, 0.5x, or max")
    return speed


def _scaled(text: str, units: Mapping[str, float]) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    return float(match[1]) * units[match[2]] if match is not None and match[2] in units else None


def _unreadable(option: str, text: str, forms: str) -> CallerError:
    return CallerError(f"Invalid {option} {visible(text, 40)!r}. Use {forms}.")
