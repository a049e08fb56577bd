"""Numbers with units as people read them: durations, sizes, timestamps and rates.

Dashboard, terminal and commands format each of them here, so that the same value reads the same everywhere.
Programs read raw values instead, in JSON and CSV.
"""

from datetime import UTC, datetime, tzinfo
from typing import Final

__all__ = [
    "UNKNOWN",
    "format_count",
    "format_duration",
    "format_iso",
    "format_percent",
    "format_rate",
    "format_size",
    "format_time",
    "format_timestamp",
]

#: Shown in place of a value that is not known, unless the caller names another text.
UNKNOWN: Final = "-"
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_duration(seconds: float | None, *, unknown: str = UNKNOWN) -> str:
    """Return a duration with three significant digits: ``340 ms``, ``1.25 s``, ``2 h 5 min``."""
    if seconds is None:
        return unknown
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    return sign + (_short(seconds) if seconds < 59.95 else _long(round(seconds)))


def _short(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _long(seconds: int) -> str:
    # From the largest unit that it has one of, down to the next.
    for large, small in (("d", "h"), ("h", "min"), ("min", "s")):
        whole, rest = divmod(seconds, _SECONDS[large])
        if whole:
            left = rest // _SECONDS[small]
            return f"{whole:,} {large} {left} {small}" if left else f"{whole:,} {large}"
    return f"{seconds} s"


def format_size(size: float | None, *, unknown: str = UNKNOWN) -> str:
    """Return a number of bytes to one decimal, in binary units as options take them: ``1.5 MiB``."""
    if size is None:
        return unknown
    for unit in _SIZE_UNITS:
        if size < 1024 or unit == _SIZE_UNITS[-1]:
            break
        size /= 1024
    return f"{size:,.1f}".removesuffix(".0") + f" {unit}"


def format_timestamp(at: float | None, zone: tzinfo | None = UTC, *, unknown: str = UNKNOWN) -> str:
    """Return date, time and time zone: ``2026-11-16 07:31:05 UTC``. A zone of None is the local one."""
    read = _read(at, zone)
    return unknown if read is None else f"{read:%Y-%m-%d %H:%M:%S %Z}"


def format_iso(text: str | None, *, unknown: str = UNKNOWN) -> str:
    """Return an ISO 8601 timestamp, as rows of :mod:`celeriac.views` hold it, as a timestamp in UTC."""
    return unknown if text is None else format_timestamp(datetime.fromisoformat(text).timestamp())


def format_time(at: float | None, zone: tzinfo | None = UTC, *, unknown: str = UNKNOWN) -> str:
    """Return the time of day to the millisecond: ``07:31:05.250``. A zone of None is the local one."""
    read = _read(at, zone)
    return unknown if read is None else f"{read:%H:%M:%S}.{read.microsecond // 1000:03d}"


def format_rate(rate: float | None, *, unknown: str = UNKNOWN) -> str:
    """Return a number per second: ``3.2/s``."""
    if rate is None:
        return unknown
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def format_count(count: float | None, *, unknown: str = UNKNOWN) -> str:
    """Return a count in groups of three digits: ``12,345``."""
    return unknown if count is None else f"{count:,.0f}"


def format_percent(share: float | None, *, unknown: str = UNKNOWN) -> str:
    """Return a share of one in percent, to one decimal: ``12.5 %``."""
    return unknown if share is None else f"{100 * share:.1f} %"


def _read(at: float | None, zone: tzinfo | None) -> datetime | None:
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):  # a peer may send any number
        return None
