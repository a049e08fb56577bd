"""Where commands write: what was asked for to standard output, all else to standard error.

Whatever a peer had a hand in has passed :mod:`celeriac.views.text` when it gets here, or does so here.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from celeriac.masking import MASK, masked
from celeriac.views.text import cells, json_text, visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Number",
    "console",
    "hide_passwords",
    "log_to",
    "prepare",
    "say",
    "say_lines",
    "silence",
    "terminal_width",
    "write",
    "write_json",
    "write_rows",
    "write_table",
]

#: An error may quote a URL and a reason, and still is one line.
_MESSAGE_CHARS = 1000
#: Wider than any table of ours: only a terminal makes lines break.
_UNBOUNDED = 10_000
#: Of a terminal that does not say.
_USUAL_WIDTH = 80


def prepare() -> None:
    """Let no character that this terminal does not know end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def say(message: str) -> None:
    """Write one line to standard error."""
    print(visible(message, _MESSAGE_CHARS), file=sys.stderr, flush=True)


def say_lines(text: str) -> None:
    """Write several lines, as a trace has them, to standard error."""
    for line in visible_lines(text, _MESSAGE_CHARS):
        print(line, file=sys.stderr, flush=True)


def hide_passwords(text: str) -> str:
    """Return a text of a library, which may quote a URL, without the passwords in it."""
    if "://" not in text:
        return text
    from celeriac.core.secret_url import url_spans  # noqa: PLC0415 - few messages need it

    parts: list[str] = []
    end = 0
    for first, last in sorted(url_spans(text, lambda name: masked(name, "") == MASK)):
        if first >= end:
            parts += text[end:first], MASK
            end = last
    return "".join((*parts, text[end:]))


def terminal_width() -> int:
    """Return how many characters a line of the terminal holds that messages go to."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):  # it is none
        return _USUAL_WIDTH


def ask(question: str) -> bool:
    """Ask at the terminal; whatever is not a yes is a no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def write(line: str) -> None:
    """Write one line to standard output at once: the next one may be long in coming."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write_json(value: object, *, indent: int | None = None) -> None:
    """Write JSON to standard output, in UTF-8 whatever the terminal's encoding, as its standard says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_text(value, indent=indent).encode() + b"\n")
    sys.stdout.buffer.flush()


def console() -> "Console":
    """Return a console on standard output that takes nothing in a text for markup."""
    from rich.console import Console  # noqa: PLC0415  (slow to load)

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def write_rows(kind: Any, rows: Sequence[Sequence[object]], styles: Mapping[str, str]) -> None:
    """Write rows of one kind in columns, each in the unit that the kind declares."""
    from celeriac.views.unit import formats  # noqa: PLC0415 - only who writes rows needs it

    shows = formats(kind)
    shown = [[_in_unit(value, show) for value, show in zip(row, shows, strict=True)] for row in rows]
    write_table([name.upper().replace("_", " ") for name in kind._fields], shown, styles)


def _in_unit(value: object, show: Callable[[Any], str] | None) -> object:
    if show is None or value is None:
        return value
    return Number(show(value)) if isinstance(value, int | float) else show(value)


class Number(str):
    """A number as people read it: it stands at the right of its column."""

    __slots__ = ()


def write_table(heads: Sequence[str], rows: Iterable[Iterable[object]], styles: Mapping[str, str]) -> None:
    """Write rows in columns, numbers to the right; a cell that ``styles`` names is shown in that style."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    is_terminal = sys.stdout.isatty()
    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        is_number = _are_numbers([row[place] for row in listed])
        table.add_column(head, overflow="fold", justify="right" if is_number else "left")
    for row in listed:
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in cells(row)))
    Console(width=None if is_terminal else _UNBOUNDED).print(table)


def _are_numbers(values: list[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float | Decimal | Number) and not isinstance(value, bool) for value in known
    )


def silence() -> None:
    """Send what is still to be written nowhere: who read it is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Line(logging.Handler):
    """Writes records of the log as lines."""

    def __init__(self, write_line: Callable[[str], object]) -> None:
        super().__init__()
        self._write_line = write_line

    def emit(self, record: logging.LogRecord) -> None:
        # A terminal that is closed or a disk that is full ends nothing but the log.
        with suppress(OSError, ValueError):
            text = hide_passwords(record.getMessage())
            self._write_line(visible(f"{record.levelname.lower()}: {text}", _MESSAGE_CHARS))


@contextmanager
def log_to(write_line: Callable[[str], object], *, level: int = logging.WARNING) -> Iterator[None]:
    """Have the log go to a function, line by line, and nowhere else, for a while."""
    root = logging.getLogger()
    handlers, old_level = root.handlers, root.level
    root.handlers = [_Line(write_line)]
    root.setLevel(level)
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(old_level)
