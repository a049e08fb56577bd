"""``celeriac history``: answers from the tables that the pipeline publishes."""

from decimal import Decimal
from enum import StrEnum
from time import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Format, Output
from celeriac.cli.history_answer import (
    NOTHING,
    Per,
    Place,
    Plot,
    QueueGlob,
    TaskGlob,
    WorkerGlob,
    draw,
    open_tables,
)
from celeriac.cli.option import add_command, add_common
from celeriac.cli.progress import Progress
from celeriac.cli.session import Session
from celeriac.cli.time_range import Since, Until, read_one, read_range
from celeriac.errors import CallerError
from celeriac.views import history as views
from celeriac.views.cell import foreign_cell, foreign_value, moment_of
from celeriac.views.log import count_text
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.history.warehouse import Side

__all__ = ["history"]

#: Rows of somebody's SELECT that are shown in columns, unless more are asked for.
_SHOWN: Final = 1000
_SPAN: Final = ".."

history = typer.Typer(no_args_is_help=True)
add_common(
    history,
    help="Query the tables of celeriac pipeline, or of celeriac up. Needs no Spark.",
)


class Ranking(StrEnum):
    """The orders of task names."""

    SLOWEST = "slowest"
    FAILING = "failing"
    RETRIED = "retried"


class Step(StrEnum):
    """The interval of a time series."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


@add_command(history, "tables")
def tables(session: Session, *, place: Place = None, out: Output = PLAIN) -> Code:
    """List the tables: rows, days, size, and the time of their publication.

    For example:
      celeriac history tables
      celeriac history tables --warehouse s3://bucket/warehouse --json
    """
    with open_tables(session, place) as warehouse:
        rows = views.table_rows(warehouse.tables.values())
        manifest = warehouse.refresh()
    out.write_rows(views.TableRow, rows, empty=NOTHING)
    when = moment_of(manifest.published_at)
    events = count_text(manifest.events, "event")
    output.say(f"published {when}, version {manifest.version}, from {events} of {manifest.log}")
    return Code.OK


@add_command(history, "top")
def top(
    session: Session,
    *,
    by: Annotated[Ranking, typer.Option("--by", help="Order of the tasks.")] = Ranking.SLOWEST,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Number of tasks.")] = 10,
    plot: Plot = False,
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Show the slowest tasks (by mean run time), or those with most failures or retries.

    Every attempt of a task counts.

    For example:
      celeriac history top --since 7d
      celeriac history top --by failing --since 2026-11-01 --until 2026-11-08 --plot
    """
    begin_at, end_at = read_range(since, until)
    with open_tables(session, place) as warehouse:
        found = warehouse.top(by.value, begin_at, end_at, limit)
    if plot:
        draw(views.top_plot(found, by=by.value, width=output.terminal_width()), out)
    else:
        out.write_rows(views.TopRow, views.top_rows(found), empty=NOTHING)
    return Code.OK


@add_command(history, "latency")
def latency(
    session: Session,
    *,
    task: TaskGlob = None,
    worker: WorkerGlob = None,
    queue: QueueGlob = None,
    since: Since = None,
    until: Until = None,
    by: Annotated[Step | None, typer.Option("--by", help="Interval of the time series (UTC).")] = None,
    per: Per = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Number of rows, with --per.")
    ] = 50,
    plot: Plot = False,
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Show queue wait and run time of tasks: p50, p95 and p99.

    For example:
      celeriac history latency --task shop.pay --since 7d --by hour
      celeriac history latency --task 'shop.*' --since 1d --by minute --plot
      celeriac history latency --per worker --since 1d
    """
    if per and (by or plot):
        raise CallerError("--per excludes --by and --plot. Leave them out")
    begin_at, end_at = read_range(since, until)
    if per:
        with open_tables(session, place) as warehouse:
            parts = warehouse.latency_per(
                per.value, begin_at, end_at, task=task, worker=worker, queue=queue, limit=limit
            )
        out.write_rows(views.PartRow, views.part_rows(parts), empty=NOTHING)
        return Code.OK
    step = by or (Step.HOUR if plot else None)
    with open_tables(session, place) as warehouse:
        found = warehouse.latency(
            task, begin_at, end_at, by=None if step is None else step.value, worker=worker, queue=queue
        )
    if plot and step is not None:
        from celeriac.history.span import WIDTHS  # noqa: PLC0415 - half of a start

        lines = views.latency_plot(found, step=WIDTHS[step.value], width=output.terminal_width())
        draw(lines, out)
    else:
        out.write_rows(views.LatencyRow, views.latency_rows(found), empty=NOTHING)
    return Code.OK


@add_command(history, "task")
def task_(
    session: Session,
    *,
    id: Annotated[str, typer.Argument(metavar="ID", help="Task id.")],  # noqa: A002
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="URL", help="Event log, if it has moved since the tables were made."),
    ] = None,
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Show one task: attempts, events, arguments, and its result or error.

    Arguments and results are read from the event log, as long as it has them.

    For example:
      celeriac history task 68e5ff95-2212-42cb-8152-9e980b6fbf45
      celeriac history task 68e5ff95-2212-42cb-8152-9e980b6fbf45 --json | jq .traceback
    """
    from celeriac.views import story as stories  # noqa: PLC0415 - half of a start

    with open_tables(session, place, log) as warehouse:
        story = warehouse.task(id)
    if not out.write_object(stories.task_dict(story)):
        for name, text in stories.task_lines(story):
            output.write(f"{name:<10}  {text}".rstrip())
        for heads, rows in (stories.attempt_rows(story), stories.timeline_rows(story)):
            if rows:
                output.write("")
                output.write_table(tuple(head.upper() for head in heads), rows, {})
        if story.unread:
            output.say(stories.unread_text(story))
    for note in story.notes:
        output.say(note)
    return Code.OK


@add_command(history, "workflow")
def workflow(
    session: Session,
    *,
    root: Annotated[
        str,
        typer.Argument(metavar="ROOT", help="Id of the first task, or of any other task of the workflow."),
    ],
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Show the tasks of a workflow: parents and children, start and run time.

    CRITICAL marks the critical path.

    For example:
      celeriac history workflow 68e5ff95-2212-42cb-8152-9e980b6fbf45
    """
    from celeriac.views import story as stories  # noqa: PLC0415 - half of a start

    with open_tables(session, place) as warehouse:
        story = warehouse.workflow(root)
    if out.format in (Format.JSON, Format.JSONL):
        out.write_object(foreign_value(stories.workflow_dict(story)))
    elif out.format is Format.CSV:
        out.write_rows(stories.WorkflowRow, stories.workflow_rows(story))
    else:
        for name, text in stories.workflow_lines(story):
            output.write(f"{name:<13}  {text}")
        output.write("")
        out.write_rows(stories.WorkflowRow, stories.workflow_rows(story))
    if len(story.tasks) < story.size:
        output.say(f"First {len(story.tasks):,} of {story.size:,} tasks")
    return Code.OK


@add_command(history, "workers")
def workers(
    session: Session,
    *,
    since: Since = None,
    until: Until = None,
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Show worker sessions: start, end and its reason, restarts, clock drift.

    For example:
      celeriac history workers --since 1d
    """
    begin_at, end_at = read_range(since, until)
    with open_tables(session, place) as warehouse:
        found = warehouse.workers(begin_at, end_at)
    out.write_rows(views.SessionRow, views.session_rows(found), empty=NOTHING)
    return Code.OK


@add_command(history, "compare")
def compare(
    session: Session,
    *,
    left: Annotated[str, typer.Argument(metavar="A", help="Task name, or a time range: 14d..7d")],
    right: Annotated[str, typer.Argument(metavar="B", help="The other side: 7d..now")],
    task: TaskGlob = None,
    worker: WorkerGlob = None,
    queue: QueueGlob = None,
    since: Since = None,
    until: Until = None,
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Compare two tasks, or two time ranges: attempts, failures, queue wait and run time.

    A time range is START..END; one of them may be left out. RATIO is B / A.

    For example:
      celeriac history compare shop.pay shop.pay_v2 --since 7d
      celeriac history compare 14d..7d 7d..now --task 'shop.*' --worker 'celery@web*'
      celeriac history compare ..2026-11-14T10:00Z 2026-11-14T10:00Z..
    """
    sides = _side(left), _side(right)
    if isinstance(sides[0], str) != isinstance(sides[1], str):
        raise CallerError("A and B must be two task names or two time ranges. Write a range as 14d..7d")
    if not isinstance(sides[0], str) and (since or until):
        raise CallerError("--since and --until are for task names. Leave them out with time ranges")
    if isinstance(sides[0], str) and task:
        raise CallerError("--task is for time ranges. Leave it out with task names")
    begin_at, end_at = read_range(since, until)
    with open_tables(session, place) as warehouse:
        found = warehouse.compare(*sides, task=task, since=begin_at, until=end_at, worker=worker, queue=queue)
    rows = views.comparison_rows(found)
    if not out.is_table:
        out.write_rows(views.ComparisonRow, rows)
    else:
        heads = ("MEASURE", visible(found.left, 60), visible(found.right, 60), "RATIO")
        texts = views.comparison_texts(rows)
        cells = [(name, output.Number(one), output.Number(two), ratio) for name, one, two, ratio in texts]
        output.write_table(heads, cells, {})
    return Code.OK


@add_command(history, "sql")
def sql(
    session: Session,
    *,
    text: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT in DuckDB's SQL.")],
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=0,
            metavar="N",
            help="Number of rows, 0 for all. Default: 1000 in a table, else all.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Stop the query after SECONDS.")
    ] = 60.0,
    place: Place = None,
    out: Output = PLAIN,
) -> Code:
    """Run one SQL SELECT over the tables. It can read the tables, and nothing else.

    For example:
      celeriac history sql "SELECT name, count(*) FROM tasks WHERE state = 'FAILURE' GROUP BY name"
      celeriac history sql "SHOW TABLES"
    """
    most = limit if limit is not None else _SHOWN if out.is_table else 0
    with open_tables(session, place) as warehouse:
        found = warehouse.sql(text, timeout=timeout).fetch(most + 1 if most else None)
    rows = found.rows[:most] if most else found.rows
    if out.format is Format.CSV:
        out.write_records(found.columns, rows)
    elif not out.is_table:
        out.write_records(found.columns, [[foreign_value(value) for value in row] for row in rows])
    else:
        shown = [[_cell(value) for value in row] for row in rows]
        output.write_table([visible(name, 60) for name in found.columns], shown, {})
    if not found.rows:
        output.say("no rows")
    if len(rows) < len(found.rows):
        output.say(f"First {len(rows):,} rows. --limit 0 shows all")
    return Code.OK


@add_command(history, "export")
def export(
    session: Session,
    *,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table, one of celeriac history tables.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="Target: postgresql://user:password@host/name, delta:FOLDER, FILE.parquet or FILE.csv.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Table name in PostgreSQL, or schema.table. Default: history_TABLE.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    place: Place = None,
) -> Code:
    """Export a table to PostgreSQL, a Delta table, one Parquet file or CSV.

    The target has the whole export or nothing. A second export replaces rows: tasks and attempts by id,
    other tables by day. --since and --until select whole days (UTC).

    For example:
      celeriac history export tasks --to postgresql://ops@db/reports --since 2d
      celeriac history export rollups_hour --to delta:/srv/lake/rollups
      celeriac history export attempts --to attempts.parquet
    """
    begin_at, end_at = read_range(since, until)
    with open_tables(session, place) as warehouse, Progress("exporting") as progress:
        done = warehouse.export(table, to, since=begin_at, until=end_at, name=name, progress=progress)
    output.write(f"{count_text(done.rows, 'row')} of {table} written to {visible(done.target, 400)}")
    return Code.OK


def _cell(value: object) -> object:
    """Return a value of any table as a cell: numbers stay numbers, which stand to the right."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return output.Number(foreign_cell(value)) if is_number else foreign_cell(value)


def _side(text: str) -> "Side":
    """Return what one side of a comparison is: a name as it is, or the two moments of a span."""
    if _SPAN not in text:
        return text
    begin, _, end = text.partition(_SPAN)
    now = time()
    return read_one(begin, "start of a time range", now), read_one(end, "end of a time range", now)
