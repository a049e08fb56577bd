"""``celeriac record``: keeps the history of the cluster."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.home import claim_log
from celeriac.cli.log_reading import LogPlace
from celeriac.cli.session import Session
from celeriac.errors import CallerError
from celeriac.masking import sanitize_url
from celeriac.node.history import redactor_of
from celeriac.node.record_health import RecordHealth, ailment
from celeriac.node.recorder import Progress, Recorder
from celeriac.node.rehearsal import Masked, Rehearsal
from celeriac.node.stop_signals import stop_command
from celeriac.node.supervisor import Supervisor
from celeriac.store.disk_use import DiskUse
from celeriac.store.place import place_for
from celeriac.store.spool import Spool
from celeriac.views.recorder import progress_line
from celeriac.views.text import visible

if TYPE_CHECKING:
    from rich.live import Live

    from celeriac.app import Celeriac

__all__ = ["record"]

#: A name is part of that of a queue, which RabbitMQ gives 255 bytes.
_MAX_NAME_BYTES: Final = 200
#: Where nobody looks on, one line for each so many seconds.
_LINE_EVERY: Final = 10.0
_RATE_OVER: Final = 2.0
_EXAMPLE_CHARS: Final = 120

Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Recorder name, one per recorder of a cluster. Default: log_recorder, the host name.",
    ),
]
SpoolFolder = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        metavar="FOLDER",
        help="Spool folder on a local disk, where events are written first. Default: log_spool.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Write nothing and leave no queue behind; show the values that would be redacted."
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Check that the recorder of this name is healthy, and exit.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Stop after N events.")]
Span = Annotated[float | None, typer.Option("--for", min=0.0, metavar="SECONDS", help="Stop after SECONDS.")]


def record(
    session: Session,
    *,
    place: LogPlace = None,
    name: Name = None,
    spool: SpoolFolder = None,
    dry_run: DryRun = False,
    check: Check = False,
    limit: Limit = None,
    seconds: Span = None,
) -> Code:
    """Record the events of the cluster in an event log, until Ctrl-C or SIGTERM.

    On RabbitMQ a queue keeps the events while no recorder of this name runs. On Redis nothing does: run
    two recorders with two names, and the log has the events that either received. The end seals all
    events; a second Ctrl-C exits at once, and loses nothing that is recorded.

    For example:
      celeriac record
      celeriac record s3://bucket/history --name eu-1
      celeriac record --dry-run --for 60
      celeriac record --check && echo healthy
    """
    history = session.app.history
    who = name or history.recorder_name
    if not who.isprintable() or len(who.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        raise CallerError(f"Invalid --name. Use printable text of up to {_MAX_NAME_BYTES} bytes")
    if dry_run:
        return _rehearse(session.app, who, limit, seconds)
    folder = Spool(spool or history.spool(place), who).folder
    if check:
        return _check(folder, who)
    url = place or session.app.conf.log_url
    where = place_for(url)
    _claim(session.app, place)
    use = DiskUse(Path(where.url) if where.is_local else folder)
    health = RecordHealth(folder, name=who, log=where.url, use=use, supervisor=Supervisor(os.environ))
    display = Display()

    def take(progress: Progress) -> None:
        if recorder.opened is not None:
            health.recorder = recorder.opened.recorder
        health.take(progress)
        display.show(progress, size=health.size)

    recorder = history.Recorder(place, name=who, spool=spool, on_turn=take)
    broker = sanitize_url(session.app.conf.broker_url)
    _say(f"recording {broker} in {where.url}, as {visible(who)}; stop with {stop_command()}")
    _run(recorder, display, limit, seconds, on_error=health.fail)
    return Code.OK


def _claim(app: "Celeriac", place: str | None) -> None:
    """Keep two clusters out of one log, where nobody has named a log of their own."""
    if place is None and app.conf.sources()["log_url"] == "default":
        claim_log(Path(app.conf.log_url), sanitize_url(app.conf.broker_url))


def _run(
    recorder: Recorder,
    display: "Display",
    limit: int | None,
    seconds: float | None,
    *,
    on_error: Callable[[BaseException], object] | None = None,
) -> None:
    try:
        with display:
            recorder.run(limit=limit, timeout=seconds)
    except KeyboardInterrupt:
        _end_at_once()
    except Exception as error:
        # Not before it has the spool: else another recorder of this name has, and tells of itself.
        if on_error is not None and recorder.opened is not None:
            on_error(error)
        raise
    _say(progress_line(recorder.progress, rate=None, size=None))


def _end_at_once() -> None:
    """End the process, whatever its threads do: what is recorded stays, and the next start seals it."""
    _say("stopped at once; all recorded events are kept")
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(Code.INTERRUPTED)


def _say(line: str) -> None:
    """Say it if that is possible: messages may go to the very disk that is full, or to nobody any more."""
    with suppress(OSError, ValueError):
        output.say(line)


def _check(folder: Path, who: str) -> Code:
    wrong = ailment(folder)
    output.write(f"recorder {visible(who)}: {visible(wrong, 500) if wrong else 'healthy'}")
    return Code.FAILED if wrong else Code.OK


def _rehearse(app: "Celeriac", who: str, limit: int | None, seconds: float | None) -> Code:
    display = Display()
    rehearsal = Rehearsal(redactor_of(app.conf))
    recorder = Recorder(
        app.connection(),
        rehearsal,
        settings=app.conf,
        clock=app.clock,
        name=who,
        hostname=app.hostname,
        is_passing=True,
        on_turn=lambda progress: display.show(progress, size=None),
    )
    _say(f"dry run: nothing is written; {stop_command()} stops it and shows what would be redacted")
    _run(recorder, display, limit, seconds)
    masked = rehearsal.masked()
    if masked:
        rows = [each._replace(example=visible(each.example, _EXAMPLE_CHARS)) for each in masked]
        output.write_rows(Masked, rows, {})
    else:
        output.write("No value would be redacted in the events received")
    return Code.OK


class Display:
    """Shows how a recorder gets on: a line that changes, or one from time to time where nobody looks.

    What cannot be shown is not: a terminal that is gone, or a disk that is full, ends nothing.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._live: Live | None = None
        self._line_at = monotonic() + _LINE_EVERY
        self._rate: float | None = None
        self._counted = (monotonic(), 0)

    def __enter__(self) -> Self:
        if self._is_terminal:
            from rich.console import Console  # noqa: PLC0415  (slow to load)
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            with suppress(OSError, ValueError):
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError, ValueError):
                live.stop()

    def show(self, progress: Progress, *, size: int | None) -> None:
        """Take how it is now."""
        now = monotonic()
        counted_at, count = self._counted
        if now - counted_at >= _RATE_OVER:
            self._rate = (progress.recorded - count) / (now - counted_at)
            self._counted = (now, progress.recorded)
        line = progress_line(progress, rate=self._rate, size=size)
        if self._live is not None:
            from rich.text import Text  # noqa: PLC0415

            with suppress(OSError, ValueError):
                self._live.update(Text(line), refresh=True)
        elif now >= self._line_at:
            self._line_at = now + _LINE_EVERY
            _say(line)
