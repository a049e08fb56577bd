"""``celeriac pipeline``: from the history to tables, by Spark."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.log_reading import LogPlace
from celeriac.cli.option import add_command, add_common
from celeriac.cli.progress import Progress
from celeriac.cli.session import Session
from celeriac.cli.time_range import Since, Until, read_range
from celeriac.config.settings import WAREHOUSE_FOLDER
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.masking import sanitize_place
from celeriac.node.stop_signals import stop_signals
from celeriac.views.format import format_duration, format_rate, format_size
from celeriac.views.log import count_text
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.pipeline.job import Pipeline
    from celeriac.pipeline.report import Report

__all__ = ["pipeline"]

#: Differences that are told; more would be of the same kind.
_SHOWN: Final = 20

pipeline = typer.Typer(no_args_is_help=True)
add_common(
    pipeline,
    help="Build tables from an event log, with Spark: tasks, attempts, roll-ups, workers, workflows and "
    "anomalies. celeriac history queries them.",
)


class Mirror(StrEnum):
    """Formats of tables beside the Parquet files, which are always there."""

    DELTA = "delta"
    ICEBERG = "iceberg"


_SPARK: Final = "Spark"


@dataclass(frozen=True)
class Place:
    """Where tables are, and what makes them."""

    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            "-w",
            metavar="URL",
            help="Tables: a folder, or a URL such as s3://bucket/warehouse. Default: the setting "
            f"warehouse_url, {WAREHOUSE_FOLDER}.",
        ),
    ] = None
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            rich_help_panel=_SPARK,
            help="Spark master: local[4], spark://host:7077, yarn, k8s://… Default: spark_master, all CPUs.",
        ),
    ] = None
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote",
            metavar="URL",
            rich_help_panel=_SPARK,
            help="Spark Connect server, sc://host. Default: spark_remote.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="NAME=VALUE",
            rich_help_panel=_SPARK,
            help="Spark setting, such as spark.executor.memory=4g. Repeatable. Goes before spark_conf.",
        ),
    ] = None


Follow = Annotated[bool, typer.Option("--follow", "-f", help="Keep running, until Ctrl-C or SIGTERM.")]
Interval = Annotated[
    float, typer.Option("--interval", min=0.0, metavar="SECONDS", help="Polling interval of --follow.")
]
InFormat = Annotated[
    Mirror | None,
    typer.Option("--mirror", help="Write the tables in this format as well. Spark needs its package."),
]
Sample = Annotated[int, typer.Option("--sample", min=1, metavar="N", help="Number of tasks to compare.")]
WithPlan = Annotated[bool, typer.Option("--plan", help="Show the plan of Spark, too.")]


@add_command(pipeline, "run")
def run(
    session: Session,
    place: Place,
    *,
    log: LogPlace = None,
    follow: Follow = False,
    interval: Interval = 10.0,
    mirror: InFormat = None,
    out: Output = PLAIN,
) -> Code:
    """Add new events of an event log to the tables, and publish them; with --follow, keep running.

    Readers see the old tables or the new ones, and nothing between. A run may be killed at any time: the
    next one continues from the published tables. Segments that cannot be read are named and left out.

    For example:
      celeriac pipeline run
      celeriac pipeline run s3://bucket/history --warehouse s3://bucket/warehouse --master spark://spark:7077
      celeriac pipeline run --follow --interval 30
    """
    with _opened(session, log, place, mirror=mirror and mirror.value, what="reading") as job:
        report = _followed(job, interval) if follow else job.run()
    return _tell(report, out=out)


@add_command(pipeline, "backfill")
def backfill(
    session: Session,
    place: Place,
    *,
    log: LogPlace = None,
    since: Since = None,
    until: Until = None,
    out: Output = PLAIN,
) -> Code:
    """Rebuild a time range of the tables. Safe at any time: no event counts twice.

    For segments that were damaged and restored from a copy, celeriac pipeline run is enough.

    For example:
      celeriac pipeline backfill --since 2026-11-01 --until 2026-11-03
    """
    begin_at, end_at = read_range(since, until)
    with _opened(session, log, place, what="reading") as job:
        report = job.backfill(begin_at, end_at)
    return _tell(report, out=out)


@add_command(pipeline, "compact")
def compact(session: Session, place: Place, *, log: LogPlace = None, out: Output = PLAIN) -> Code:
    """Merge the small files of each day, so that queries are faster.

    Run it once a day where --follow is used.

    For example:
      celeriac pipeline compact
    """
    with _opened(session, log, place, what="writing") as job:
        done = job.compact()
    if not out.write_object(done._asdict()):
        saved = f"{format_size(done.bytes_before)} became {format_size(done.bytes_after)}"
        output.write(f"{count_text(done.files_before, 'file')} merged into {done.files_after:,}; {saved}")
    return Code.OK


@add_command(pipeline, "verify")
def verify(
    session: Session, place: Place, *, log: LogPlace = None, sample: Sample = 1000, out: Output = PLAIN
) -> Code:
    """Compare random tasks of the tables with their events in the log.

    The exit code is 1 if one differs.

    For example:
      celeriac pipeline verify --sample 10000
    """
    with _opened(session, log, place, what="comparing") as job:
        found = job.verify(sample)
    if not out.write_object(
        {**found._asdict(), "differences": [each._asdict() for each in found.differences]}
    ):
        for each in found.differences[:_SHOWN]:
            told = f"{each.column} is {each.table!r} in the table and {each.memory!r} by its events"
            output.write(visible(f"{each.uuid}: {told}"))
        wrong = len({each.uuid for each in found.differences})
        compared = f"{count_text(found.tasks, 'task')} with {count_text(found.events, 'event')} compared"
        output.write(f"{compared}: {f'{wrong:,} differ' if wrong else 'no differences'}")
        if found.expired:
            output.say(f"{count_text(found.expired, 'task')} skipped: the log has not all of their events")
    return Code.FAILED if found.differences else Code.OK


@add_command(pipeline, "explain")
def explain(
    session: Session,
    place: Place,
    *,
    log: LogPlace = None,
    with_plan: WithPlan = False,
    out: Output = PLAIN,
) -> Code:
    """Show what a run would read, with an estimate from the rate of earlier runs.

    For example:
      celeriac pipeline explain --plan
    """
    with _opened(session, log, place, what="planning") as job:
        found = job.explain()
    if out.write_object(found._asdict()):
        return Code.OK
    new = f"{count_text(found.events, 'event')} in {count_text(found.segments, 'segment')}"
    output.write(f"new: {new}, {format_size(found.bytes)}")
    output.write(
        "time: no estimate yet" if found.seconds is None else f"time: about {format_duration(found.seconds)}"
    )
    if with_plan and found.plan:
        output.write(found.plan)
    return Code.OK


def _tell(report: "Report", *, out: Output) -> Code:
    if not out.is_table:
        told = {
            "events": report.events,
            "tasks": report.tasks,
            "segments": report.segments,
            "days": sorted(report.days),
            "seconds": {phase: round(seconds, 3) for phase, seconds in report.seconds.items()},
            "events_per_s": round(report.rate, 1),
            "faults": report.faults,
        }
        out.write_object(told)
    elif not report.chunks:
        output.write("no new events: the tables are up to date")
    else:
        taken = f"{count_text(report.events, 'event')} of {count_text(report.segments, 'segment')}"
        speed = f"in {format_duration(report.total)}, {format_rate(report.rate)}"
        news = f"{count_text(report.tasks, 'task')} updated on {count_text(len(report.days), 'day')}"
        output.write(f"{taken} {speed}; {news}")
    for each in report.faults:
        output.say(f"skipped: {each}")
    return Code.FAILED if report.faults else Code.OK


def _followed(job: "Pipeline", interval: float) -> "Report":
    """Go on until somebody says stop: what is under way is ended first."""
    stop = threading.Event()
    with stop_signals(lambda *_: stop.set()):
        return job.follow(interval, stop)


@contextmanager
def _opened(
    session: Session, log: str | None, place: Place, *, mirror: str | None = None, what: str
) -> Iterator["Pipeline"]:
    """Have a Spark, and the jobs on it."""
    settings = session.app.conf
    conf = {name: str(value) for name, value in settings.spark_conf.items()} | _pairs(place.conf or ())
    open_session = _loaded("celeriac.pipeline.session").open_session
    made = _loaded("celeriac.pipeline.job").Pipeline
    remote = place.remote or (None if place.master else settings.spark_remote)
    master = place.master or settings.spark_master
    output.say(f"starting Spark on {sanitize_place(remote or master or 'local machine')}")
    with open_session(master=master, remote=remote, conf=conf) as spark, Progress(what) as progress:
        job: Pipeline = made(
            spark,
            log or settings.log_url,
            place.warehouse or settings.warehouse_url,
            mirror=mirror,
            progress=progress,
        )
        yield job


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        name, is_pair, value = each.partition("=")
        if not is_pair or not name.startswith("spark."):
            raise CallerError(f"Invalid --conf {visible(each, 80)!r}. Use spark.NAME=VALUE")
        pairs[name] = value
    return pairs


def _loaded(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"The pipeline needs {error.name}, which is not installed: pip install 'celeriac[pipeline]'"
        ) from error
