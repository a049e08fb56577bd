"""The units of the columns of a row: declared beside the field, shown by :mod:`celeriac.views.format`."""

from collections.abc import Callable
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from celeriac.views.format import (
    format_count,
    format_duration,
    format_iso,
    format_percent,
    format_rate,
    format_size,
)

__all__ = ["Bytes", "Count", "Rate", "Seconds", "Share", "Timestamp", "formats"]

Seconds = Annotated[float, "seconds"]
Bytes = Annotated[int, "bytes"]
Share = Annotated[float, "share"]
Rate = Annotated[float, "rate"]
Count = Annotated[int, "count"]
Timestamp = Annotated[str, "timestamp"]

_FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "seconds": format_duration,
    "bytes": format_size,
    "share": format_percent,
    "rate": format_rate,
    "count": format_count,
    "timestamp": format_iso,
}


def formats(row: Any) -> list[Callable[[Any], str] | None]:
    """Return how people read each field of a kind of row; None for a field without a unit."""
    hints = get_type_hints(row, include_extras=True)
    return [_format_of(hints[name]) for name in row._fields]


def _format_of(hint: Any) -> Callable[[Any], str] | None:
    if get_origin(hint) is Annotated:
        return _FORMATS.get(hint.__metadata__[0])
    return next(filter(None, map(_format_of, get_args(hint))), None)
