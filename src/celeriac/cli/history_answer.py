"""What the questions of ``celeriac history`` have in common: their options, and how answers are written."""

import csv
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from celeriac.cli import output
from celeriac.cli.session import Session
from celeriac.errors import CallerError
from celeriac.views.cell import foreign_value
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.history import Warehouse

__all__ = [
    "AsCsv",
    "Part",
    "Per",
    "Place",
    "Plot",
    "QueueGlob",
    "TaskGlob",
    "WorkerGlob",
    "draw",
    "open_tables",
    "write_csv",
    "write_rows",
]

#: No text of a table is longer.
_CELL_CHARS: Final = 1_000_000
_NOTHING: Final = "nothing is known of that; celeriac history tables tells of which days something is"

Place = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="URL",
        help="Where the tables are, a folder or URL; else the setting warehouse_url.",
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Write CSV.")]
Plot = Annotated[bool, typer.Option("--plot", help="Draw it.")]
TaskGlob = Annotated[
    str | None, typer.Option("--task", metavar="GLOB", help="Only tasks of this name, such as 'shop.*'.")
]
WorkerGlob = Annotated[
    str | None, typer.Option("--worker", metavar="GLOB", help="Only what this node tried.")
]
QueueGlob = Annotated[
    str | None, typer.Option("--queue", metavar="GLOB", help="Only what was sent to this queue.")
]


class Part(StrEnum):
    """What attempts are told apart by."""

    TASK = "task"
    WORKER = "worker"
    QUEUE = "queue"


Per = Annotated[
    Part | None,
    typer.Option("--per", help="Tell tasks, workers or queues apart, those with most attempts first."),
]


def open_tables(session: Session, place: str | None, log: str | None = None) -> "Warehouse":
    """Return the warehouse that a command is about; raises CallerError if nothing is published there."""
    from celeriac.history import open as open_warehouse  # noqa: PLC0415 - read as it is meant

    return open_warehouse(place or session.settings.warehouse_url, log=log)


def write_rows(kind: Any, rows: Sequence[Any], *, as_json: bool, as_csv: bool) -> None:
    """Write rows of one kind."""
    names: tuple[str, ...] = kind._fields
    if as_json:
        output.write_json([row._asdict() for row in rows], indent=2)
    elif as_csv:
        write_csv(names, rows)
    elif rows:
        output.write_table(tuple(name.upper() for name in names), rows, {})
    else:
        output.say(_NOTHING)


def draw(lines: Iterable[str], as_json: bool, as_csv: bool) -> None:
    """Write the lines of a plot."""
    if as_json or as_csv:
        raise CallerError("--plot is for people: leave it out with --json or --csv")
    drawn = False
    for line in lines:
        output.write(line)
        drawn = True
    if not drawn:
        output.say(_NOTHING)


def write_csv(names: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Write CSV to standard output, in UTF-8; nothing in it is a formula, or moves a cursor."""
    sheet = StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(map(_csv_cell, names))
    for row in rows:
        writer.writerow(map(_csv_cell, row))
    sys.stdout.flush()
    sys.stdout.buffer.write(sheet.getvalue().encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _csv_cell(value: object) -> object:
    """Return a value as a cell of CSV; a number stays one, whatever its type."""
    from celeriac.history.export import guarded  # noqa: PLC0415 - only who writes CSV loads it

    if isinstance(value, Decimal):
        return value
    cell = guarded(foreign_value(value))
    return visible(cell, _CELL_CHARS) if isinstance(cell, str) else cell
