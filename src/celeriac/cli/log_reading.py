"""Options and checks of the commands that read an event log."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.home import SAMPLE, read_owner
from celeriac.cli.session import Session
from celeriac.cli.time_range import read_range
from celeriac.config.settings import LOG_FOLDER
from celeriac.errors import CallerError
from celeriac.masking import sanitize_url
from celeriac.node.replay import Replay
from celeriac.views.measure import read_speed

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.store.event_log import EventLog

__all__ = [
    "LogOption",
    "LogPlace",
    "Speed",
    "find_log",
    "open_log",
    "open_replay",
    "say_damage",
]

LogPlace = Annotated[
    str | None,
    typer.Argument(
        metavar="LOG",
        show_default=False,
        help="Event log: a folder, or a URL such as s3://bucket/history. Default: the setting log_url, "
        f"{LOG_FOLDER}.",
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        help="Read this event log, not the live cluster: a folder, or a URL such as s3://bucket/history. "
        f"Default with --since, --until or --speed: the setting log_url, {LOG_FOLDER}.",
    ),
]
Speed = Annotated[
    str | None,
    typer.Option("--speed", metavar="SPEED", help="Replay the events at this speed: 1x, 10x, 0.5x, or max."),
]


def find_log(app: "Celeriac", named: str | None = None) -> str | None:
    """Return the log that a live view reads as well: the one that is named, else that of the settings.

    None if nobody named one, and the default place has none, or one of another cluster.
    """
    place = named or app.conf.log_url
    if named is not None or "://" in place:
        return place
    if not Path(place).expanduser().is_dir():
        return None
    if app.conf.sources()["log_url"] == "default":
        owner = read_owner(Path(place))
        if owner not in ("", SAMPLE, sanitize_url(app.conf.broker_url)):
            output.say(f"{place} is not read: it is the event log of {owner}. To read it, name it with --log")
            return None
    return place


def open_log(session: Session, place: str | None) -> "EventLog":
    """Return the log that a command is about; raises CallerError if there is none."""
    log = session.app.history.log(place)
    if not log.recorders():
        raise CallerError(
            f"No event log in {log.place.url}. Start celeriac up or celeriac record, or name another log"
        )
    return log


def open_replay(
    session: Session,
    log: "EventLog",
    *,
    since: str | None,
    until: str | None,
    speed: str | None,
    task: str | None = None,
    worker: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Replay:
    """Return the replay that options ask for."""
    since_at, until_at = read_range(since, until)
    settings = session.app.conf
    return Replay(
        log,
        since=since_at,
        until=until_at,
        speed=None if speed is None else read_speed(speed, option="--speed"),
        task=task,
        worker=worker,
        progress=progress,
        max_workers_in_memory=settings.max_workers_in_memory,
        max_tasks_in_memory=settings.max_tasks_in_memory,
    )


def say_damage(damage: Sequence[str]) -> Code:
    """Tell what could not be read, and return what that means for the command."""
    for each in damage:
        output.say(f"damaged: {each}")
    if damage:
        output.say("All else was read. celeriac log verify names each problem and its fix")
    return Code.FAILED if damage else Code.OK
