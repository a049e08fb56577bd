"""What the commands that read a log have in common."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.session import Session
from celeriac.errors import CallerError
from celeriac.node.replay import Replay
from celeriac.views.measure import read_moment, read_speed

if TYPE_CHECKING:
    from celeriac.store.event_log import EventLog

__all__ = [
    "From",
    "LogPlace",
    "Speed",
    "Until",
    "is_log",
    "moments_of",
    "open_log",
    "open_replay",
    "say_damage",
]

LogPlace = Annotated[
    str | None,
    typer.Argument(
        metavar="[LOG]",
        show_default=False,
        help="The log: a folder, or a URL such as s3://bucket/history; else the setting log_url.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="MOMENT",
        help="Only what happened from then on: 2026-11-14T10:00, with Z or +01:00 if it is not local time, "
        "2026-11-14, -2h or now.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="MOMENT", help="Only what happened until then.")
]
Speed = Annotated[
    str | None,
    typer.Option(
        "--speed", metavar="SPEED", help="As it happened, so many times as fast: 10x, 0.5x, or max."
    ),
]


def is_log(place: str) -> bool:
    """Tell whether a log may be kept where the settings say, which nobody asked for."""
    return "://" in place or Path(place).expanduser().is_dir()


def open_log(session: Session, place: str | None) -> "EventLog":
    """Return the log that a command is about; raises CallerError if there is none."""
    log = session.app.history.log(place)
    if not log.recorders():
        raise CallerError(
            f"{log.place.url} holds no log: name another, or have celeriac record write one there"
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
    since_at, until_at = moments_of(since, until)
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


def moments_of(since: str | None, until: str | None) -> tuple[float | None, float | None]:
    """Return the moments of --from and --until, and tell how they were understood."""
    now = time()
    begin_at, end_at = _moment_of(since, "--from", now), _moment_of(until, "--until", now)
    if begin_at is not None and end_at is not None and begin_at > end_at:
        raise CallerError("--from is later than --until: swap them")
    return begin_at, end_at


def _moment_of(text: str | None, option: str, now: float) -> float | None:
    if text is None:
        return None
    moment = read_moment(text, option=option, now=now)
    if moment.note:
        output.say(moment.note)
    return moment.at


def say_damage(damage: Sequence[str]) -> Code:
    """Tell what could not be read, and return what that means for the command."""
    for each in damage:
        output.say(f"damaged: {each}")
    if damage:
        output.say("all else was read; celeriac log verify tells what is wrong and what to do")
    return Code.FAILED if damage else Code.OK
