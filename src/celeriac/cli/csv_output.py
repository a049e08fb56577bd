"""CSV on standard output."""

import csv
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from io import StringIO
from typing import Final

from celeriac.history.export import guarded
from celeriac.views.cell import foreign_value
from celeriac.views.text import visible

__all__ = ["write_csv"]

#: No text of a table is longer.
_CELL_CHARS: Final = 1_000_000


def write_csv(names: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Write CSV to standard output, in UTF-8; no cell is a formula or moves a cursor."""
    sheet = StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(map(_cell, names))
    for row in rows:
        writer.writerow(map(_cell, row))
    sys.stdout.flush()
    sys.stdout.buffer.write(sheet.getvalue().encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _cell(value: object) -> object:
    """Return a value as a cell of CSV; a number stays one, whatever its type."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    cell = guarded(foreign_value(value))
    return visible(cell, _CELL_CHARS) if isinstance(cell, str) else cell
