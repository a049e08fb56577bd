"""``celeriac beat``: sends tasks by a schedule, on several hosts at once."""

import os
from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

import celeriac
from celeriac.cli import output
from celeriac.cli.app_option import load_own
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.session import Session
from celeriac.cli.worker_log import logging_to
from celeriac.cli.worker_option import Log
from celeriac.errors import CallerError, ConnectionLost, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.model.election import Level
from celeriac.node.beat import Scheduler
from celeriac.node.leadership import MAX_NAME_CHARS
from celeriac.node.schedule_entry import ScheduleEntry, read_schedule, read_zone
from celeriac.node.term import check_level, lease_key
from celeriac.node.tick_sender import TickSender
from celeriac.views.format import format_duration
from celeriac.views.schedule import ScheduleRow, schedule_rows
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.app import Celeriac

__all__ = ["beat"]

#: So many entries, or a URL, and still a row.
_ROW_CHARS: Final = 900
_MOST_ENTRIES: Final = 20

Name = Annotated[
    str,
    typer.Option(
        "--name", metavar="NAME", help="Schedule name. Only one of the beats with the same name sends."
    ),
]
Ttl = Annotated[
    float | None,
    typer.Option(
        "--ttl",
        min=0.5,
        metavar="SECONDS",
        help="Seconds before an unresponsive leader is replaced. Default: beat_ttl.",
    ),
]
Show = Annotated[bool, typer.Option("--show", help="Show the schedule and the next times, and exit.")]
_LOG: Final = Log()


def beat(
    session: Session,
    *,
    name: Name = "beat",
    ttl: Ttl = None,
    show: Show = False,
    out: Output = PLAIN,
    log: Log = _LOG,
) -> Code:
    """Send tasks by the beat_schedule of an app (-A MODULE:APP), or of the settings of this folder.

    Run it on several hosts: one of them sends.

    If its process dies, another one continues after ttl and 2 seconds at the latest. No tick is sent
    twice. Ctrl-C or SIGTERM: gives up the lease, and exits.

    For example:
      celeriac beat -A shop.tasks:app
      celeriac beat -A shop.tasks:app --ttl 5 --name reports
      celeriac beat -A shop.tasks:app --show
    """
    app = _app(session)
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise CallerError(f"Invalid --name. Use up to {MAX_NAME_CHARS} printable characters")
    now = time()
    entries = read_schedule(app.conf, now=now, tasks=app.tasks)
    if not entries:
        raise ImproperlyConfigured("beat_schedule is empty. Add an entry with a task and a schedule")
    if show or not out.is_table:
        out.write_rows(ScheduleRow, schedule_rows(entries.values(), now=now, zone=read_zone(app.conf)))
        return Code.OK
    lease = app.conf.beat_ttl if ttl is None else ttl
    scheduler = Scheduler(
        name,
        entries,
        leadership=lambda: app.leadership(name, ttl=lease),
        leader=lambda: _leader(app, name),
        sender=TickSender(app.connection, settings=app.conf),
        settings=app.conf,
        tasks=app.tasks,
        origin=app.hostname,
    )
    with logging_to(log.logfile, level="debug" if session.is_debug else log.loglevel.value):
        for line in banner(app, name, entries, ttl=lease):
            output.say(line)
        scheduler.run()
        app.close()
    return Code.OK


def banner(app: "Celeriac", name: str, entries: Mapping[str, ScheduleEntry], *, ttl: float) -> list[str]:
    """Return the lines of the start; raises ImproperlyConfigured for too low a level."""
    conf = app.conf
    shown = [f"{entry.name} ({entry.when})" for entry in entries.values()]
    more = f" and {len(shown) - _MOST_ENTRIES} more" if shown[_MOST_ENTRIES:] else ""
    rows = {
        "broker": sanitize_url(conf.broker_url),
        "guarantee": _level_text(app),
        "lease": format_duration(ttl),
        "zone": conf.timezone,
        "schedule": ", ".join(shown[:_MOST_ENTRIES]) + more,
    }
    return [
        f"celeriac {celeriac.__version__}, beat {visible(name)}, process {os.getpid()}",
        *(f"  {head:<9} {visible(text, _ROW_CHARS)}" for head, text in rows.items()),
    ]


def _level_text(app: "Celeriac") -> str:
    """Return how far the promise of one leader holds."""
    arbiter = app.arbiter
    try:
        level = arbiter.look()
    except ConnectionLost as error:
        return f"unknown: {error}"
    check_level(arbiter, Level[app.conf.election_min_level])
    url = app.conf.election_url
    place = "" if url is None else f" at {sanitize_url(url)}"
    return f"level {level.name}{place}: {arbiter.reason}"


def _leader(app: "Celeriac", name: str) -> str:
    record = app.arbiter.read(lease_key(name))
    return f"{visible(record.owner)} (token {record.token})" if record is not None else ""


def _app(session: Session) -> "Celeriac":
    if session.app_name is None:
        return session.app
    app = load_own(session.app_name, "beat")
    if session.broker:
        app.configure(broker_url=session.broker)
    return app
