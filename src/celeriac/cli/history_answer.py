"""Options that the commands of ``celeriac history`` share."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.format_option import Output
from celeriac.cli.session import Session
from celeriac.config.settings import WAREHOUSE_FOLDER
from celeriac.errors import CallerError

if TYPE_CHECKING:
    from celeriac.history import Warehouse

__all__ = [
    "NOTHING",
    "Part",
    "Per",
    "Place",
    "Plot",
    "QueueGlob",
    "TaskGlob",
    "WorkerGlob",
    "draw",
    "open_tables",
]

NOTHING: Final = "No attempts match. celeriac history tables shows the days that the tables have"

Place = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="URL",
        help=f"Tables: a folder or URL. Default: the setting warehouse_url, {WAREHOUSE_FOLDER}.",
    ),
]
Plot = Annotated[bool, typer.Option("--plot", help="Draw a chart.")]
TaskGlob = Annotated[
    str | None, typer.Option("--task", metavar="GLOB", help="Only tasks with this name, such as 'shop.*'.")
]
WorkerGlob = Annotated[
    str | None, typer.Option("--worker", metavar="GLOB", help="Only attempts of this worker.")
]
QueueGlob = Annotated[str | None, typer.Option("--queue", metavar="GLOB", help="Only tasks of this queue.")]


class Part(StrEnum):
    """The groups of attempts."""

    TASK = "task"
    WORKER = "worker"
    QUEUE = "queue"


Per = Annotated[
    Part | None,
    typer.Option("--per", help="Group by task, worker or queue, busiest first."),
]


def open_tables(session: Session, place: str | None, log: str | None = None) -> "Warehouse":
    """Return the warehouse that a command is about; raises CallerError if nothing is published there."""
    from celeriac.history import open as open_warehouse  # noqa: PLC0415 - read as it is meant

    return open_warehouse(place or session.settings.warehouse_url, log=log)


def draw(lines: Iterable[str], out: Output) -> None:
    """Write the lines of a plot."""
    if not out.is_table:
        raise CallerError("--plot draws for people. Leave it out with -o and --json")
    drawn = False
    for line in lines:
        output.write(line)
        drawn = True
    if not drawn:
        output.say(NOTHING)
