"""``celeriac export``: what is in a log, for other systems."""

import logging
import os
from typing import Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.log_reading import LogPlace, open_log, say_damage
from celeriac.cli.option import add_command, add_common
from celeriac.cli.progress import Progress
from celeriac.cli.session import Session
from celeriac.cli.time_range import Since, Until, read_range
from celeriac.errors import ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.node.replay import Replay
from celeriac.views.trace import task_spans

__all__ = ["export"]

#: Tasks that are held until they are complete: those of hours of a busy cluster, some hundred megabytes.
_IN_MEMORY: Final = 100_000

export = typer.Typer(no_args_is_help=True)
add_common(export, help="Export an event log to other systems. For tables, see celeriac history export.")


@add_command(export, "otel")
def otel(
    session: Session,
    *,
    log: LogPlace = None,
    since: Since = None,
    until: Until = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="OTLP endpoint over HTTP. Default: OTEL_EXPORTER_OTLP_ENDPOINT, this machine.",
        ),
    ] = None,
    service: Annotated[
        str, typer.Option("--service", metavar="NAME", help="Service name of the traces.")
    ] = "celery",
) -> Code:
    """Send finished tasks of an event log as OpenTelemetry traces.

    A workflow is a trace, a task a span from the time when it was sent to its end, and each attempt a child
    span. A second export sends the same spans with the same ids. Damaged parts of the log are named, all
    else is sent, and the exit code is 1.

    For example:
      celeriac export otel --since 1h
      celeriac export otel s3://bucket/history --endpoint http://collector:4318 --service shop
    """
    try:
        from celeriac.integrations.otel import DEFAULT_ENDPOINT, SpanSender  # noqa: PLC0415  (needs the extra)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"Traces need {error.name}, which is not installed: pip install 'celeriac[otel]'"
        ) from error
    # What goes wrong is raised here; the library would tell it too, each time that it tries.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    begin_at, end_at = read_range(since, until)
    session.place_option = "--endpoint URL"
    place = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT
    with Progress("reading") as progress, SpanSender(place, service=service) as sender:
        replay = Replay(
            open_log(session, log),
            since=begin_at,
            until=end_at,
            progress=progress,
            max_tasks_in_memory=_IN_MEMORY,
        )
        # A task that has to make room is as complete as it gets.
        replay.state.on_forget = lambda task: sender.send(task_spans(task))
        state = replay.run()
        for task in state.all_tasks():
            sender.send(task_spans(task))
    output.say(f"{sender.sent:,} spans sent to {sanitize_url(place)}")
    return say_damage(replay.damage)
