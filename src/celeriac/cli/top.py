"""``celeriac top``: a cluster in the terminal, live or at a time of the past."""

import os
import pwd
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.log_reading import LogOption, Speed, find_log, open_log, open_replay, say_damage
from celeriac.cli.progress import Progress
from celeriac.cli.session import Session
from celeriac.cli.time_range import AsOf, Since, read_range
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.node.history import redactor_of
from celeriac.node.replay import Replay
from celeriac.store.audit import Actor, Audit
from celeriac.views.measure import read_speed
from celeriac.views.reply import reply_texts
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.store.event_log import EventLog
    from celeriac.tui.sight import Sight
    from celeriac.tui.top import Revoke

__all__ = ["top"]

#: How long the answers of workers to a revoke are waited for.
_PATIENCE: Final = 2.0

AllowControl = Annotated[bool, typer.Option("--allow-control", help="Allow to revoke tasks from the screen.")]
AuditFile = Annotated[
    Path | None,
    typer.Option(
        "--audit",
        metavar="FILE",
        help="Audit log file: one JSON line per revoke, with your OS user. Default: no audit log.",
    ),
]


def top(
    session: Session,
    *,
    log: LogOption = None,
    until: AsOf = None,
    since: Since = None,
    speed: Speed = None,
    allow_control: AllowControl = False,
    audit: AuditFile = None,
) -> Code:
    """Watch a cluster in the terminal: workers, tasks, and the events of each task.

    Enter opens a task, / searches, ? shows all keys, q quits. If there is an event log, the hour before the
    start is read from it. With --log, --until, --since or --speed it shows a time of the past. Secrets are
    masked. Needs: pip install 'celeriac[tui]'.

    For example:
      celeriac top --broker redis://127.0.0.1:6379/0
      celeriac top --allow-control --audit /var/log/celeriac/audit.jsonl
      celeriac top --log /var/lib/celeriac/log --until 2026-11-14T10:00
      celeriac top --log s3://bucket/history --since 1h --speed 10x
    """
    is_past = any(given is not None for given in (log, until, since, speed))
    if is_past and allow_control:
        raise CallerError("--allow-control is for a live cluster. Leave it out with an event log")
    _check_terminal(session)
    _check_package()
    with ExitStack() as stack:
        if not is_past:
            revoke = _revoke(session, audit) if allow_control else None
            _show(_live(session, stack), revoke)
            return Code.OK
        history = open_log(session, log)
        if speed is None:
            sight = _past(session, history, since=since, until=until)
        else:
            sight = _played(session, history, stack, read_range(since, until), speed)
        _show(sight)
        return say_damage(list(history.damage))


def _check_terminal(session: Session) -> None:
    if not session.is_attended() or os.environ.get("TERM", "dumb") == "dumb":
        raise CallerError(
            "celeriac top needs a terminal. Without one, use celeriac status or celeriac events"
        )


def _check_package() -> None:
    try:
        import_module("celeriac.tui.top")
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"celeriac top needs {error.name}, which is not installed: pip install 'celeriac[tui]'"
        ) from error


def _show(sight: "Sight", revoke: "Revoke | None" = None) -> None:
    """Show a sight until somebody quits; raises what else ended it."""
    from celeriac.tui.top import Top  # noqa: PLC0415  (needs the extra)

    face = Top(sight, revoke=revoke)
    with output.log_to(face.tell):
        face.run()
    if face.fault is not None:
        raise face.fault
    sight.check()


def _live(session: Session, stack: ExitStack) -> "Sight":
    from celeriac.node.watcher import Watcher  # noqa: PLC0415
    from celeriac.tui.sight import LiveSight  # noqa: PLC0415

    app = session.app
    stack.callback(app.close)
    watcher = Watcher(
        app.events, hostname=app.hostname, redactor=redactor_of(app.conf), log=_last_hour_of(session)
    )
    stack.enter_context(watcher)
    return LiveSight(watcher, place=visible(sanitize_url(app.conf.broker_url)))


def _last_hour_of(session: Session) -> "EventLog | None":
    """Return the log of the settings, if one is kept there and can be read."""
    place = find_log(session.app)
    if place is None:
        return None
    try:
        return session.app.history.log(place)
    except ImproperlyConfigured as error:  # to look at what happens now needs nothing of it
        output.say(f"{place} is not read: {error}")
        return None


def _revoke(session: Session, audit: Path | None) -> "Revoke":
    control = session.app.control
    # Whoever has the address of the broker may do it: there are no roles at a terminal.
    actor = Actor(_own_name(), "operator")
    noted = None if audit is None else Audit(audit)
    if noted is not None:
        noted.check()

    def revoke(uuid: str) -> Sequence[Mapping[str, object]] | None:
        if noted is not None:
            noted.note(actor, "revoke", targets=[uuid])
        answers = control.revoke(uuid, reply=True, timeout=_PATIENCE)
        if noted is not None:
            noted.note_end(actor, "revoke", replies=reply_texts(answers))
        return answers

    return revoke


def _own_name() -> str:
    """Return who runs this, to the machine: unlike ``USER`` nobody can say it is somebody else."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # in a container a user need not have a name
        return str(number)


def _past(session: Session, history: "EventLog", *, since: str | None, until: str | None) -> "Sight":
    from celeriac.tui.sight import PastSight  # noqa: PLC0415

    with Progress("reading") as progress:
        replay = open_replay(session, history, since=since, until=until, speed=None, progress=progress)
        return PastSight.of(replay, place=visible(history.place.url))


def _played(
    session: Session,
    history: "EventLog",
    stack: ExitStack,
    moments: tuple[float | None, float | None],
    speed: str,
) -> "Sight":
    from celeriac.tui.sight import PlayedSight, Stopwatch  # noqa: PLC0415

    clock = Stopwatch()
    settings = session.app.conf
    replay = Replay(
        history,
        since=moments[0],
        until=moments[1],
        speed=read_speed(speed, option="--speed"),
        max_workers_in_memory=settings.max_workers_in_memory,
        max_tasks_in_memory=settings.max_tasks_in_memory,
        clock=clock,
    )
    return stack.enter_context(PlayedSight(replay, clock, place=visible(history.place.url)))
