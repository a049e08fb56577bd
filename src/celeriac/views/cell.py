"""Values of the tables of the pipeline, as a cell shows them and as JSON holds them."""

from datetime import UTC, datetime
from math import isfinite
from typing import Final

from celeriac.views.text import number_text, visible

__all__ = ["foreign_cell", "foreign_value", "moment_of", "name_text", "number_of", "shown", "text_of"]

_NAME_CHARS: Final = 90
_TEXT_CHARS: Final = 400
_UNKNOWN: Final = "(unknown)"


def foreign_value(value: object) -> object:
    """Return a value of a table as JSON can hold it: no number that is none, and bytes in hexadecimal."""
    match value:
        case float():
            return value if isfinite(value) else None
        case bytes() | bytearray():
            return value.hex()
        case list() | tuple():
            return [foreign_value(each) for each in value]
        case dict():
            return {str(name): foreign_value(each) for name, each in value.items()}
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def foreign_cell(value: object) -> str:
    """Return a value of a table as a cell shows it."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return number_text(value)
        case _:
            return visible(foreign_value(value), _TEXT_CHARS)


def shown(value: object) -> object:
    """Return a text that is safe to show, and all else as it is."""
    return visible(value, _NAME_CHARS) if isinstance(value, str) else value


def name_text(name: str | None) -> str:
    """Return a name that is safe to show, also of what nobody heard the name."""
    return _UNKNOWN if name is None else visible(name, _NAME_CHARS)


def text_of(text: str | None) -> str:
    """Return a text that is safe to show; empty for none."""
    return "" if text is None else visible(text, _NAME_CHARS)


def number_of(value: float | None) -> float | None:
    """Return a number that JSON can hold."""
    return value if value is None or isfinite(value) else None


def moment_of(at: float | None) -> str | None:
    """Return a moment as ISO 8601 in UTC; None for none."""
    if at is None:
        return None
    try:
        told = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):  # a peer may say any number
        return None
    return told.isoformat(timespec="milliseconds" if told.microsecond else "seconds").replace("+00:00", "Z")
