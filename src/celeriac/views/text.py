"""Text from peers made safe to show: nothing in it moves a cursor, hides, or runs on for ever."""

import json
from collections.abc import Iterable
from typing import Final

__all__ = [
    "CUT_MARK",
    "cells",
    "json_text",
    "number_text",
    "visible",
    "visible_lines",
]

CUT_MARK: Final = "…"
#: A line of a terminal holds less; what is longer is in the JSON.
_LINE_CHARS: Final = 200
#: A report of a node has a few hundred lines.
_LINES: Final = 1000


def visible(text: object, most: int = _LINE_CHARS) -> str:
    r"""Return a text in one line of up to ``most`` characters, with all that does not print spelled out.

    Escape codes, line ends, marks that turn the direction of writing, spaces without
    width: each becomes ``\x1b``, ``\n``, ``\u202e``. A backslash stays as it is, so
    the result is for people, and not to be read back.
    """
    told = text if isinstance(text, str) else str(text)
    shown = told[: most + 1]
    if not shown.isprintable():
        shown = "".join(map(_spelled, shown))
    return shown if len(shown) <= most else shown[: most - 1] + CUT_MARK


def visible_lines(text: str, most: int = _LINE_CHARS) -> list[str]:
    """Return a text of several lines, each made visible; the lines beyond a thousand are counted."""
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    shown = [visible(line.expandtabs(), most) for line in lines[:_LINES]]
    left = len(lines) - len(shown)
    return [*shown, f"{CUT_MARK} and {left} lines more"] if left else shown


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON that a terminal can show: all that does not print is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    # Outside of its texts JSON has nothing to escape but the line ends that indent it.
    return "\n".join(
        line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")
    )


def number_text(number: float | None) -> str:
    """Return a number to the thousandth, and nothing for none."""
    if number is None:
        return ""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _spelled(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    # JSON's own encoder leaves the delete character as it is.
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


def cells(row: Iterable[object]) -> list[str]:
    """Return what the columns of a row show."""
    return [_cell(value) for value in row]


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case int() | float():
            return number_text(value)
        case tuple():
            return " ".join(map(_cell, value))
        case _:
            return str(value)
