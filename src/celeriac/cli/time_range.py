"""``--since`` and ``--until``: the time range of a command."""

from time import time
from typing import Annotated

import typer

from celeriac.cli import output
from celeriac.errors import CallerError
from celeriac.views.measure import read_time

__all__ = ["AsOf", "Since", "Until", "read_one", "read_range"]

_FORMS = "7d or 2h ago, 2026-11-14T10:00Z, or now"

Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help=f"Start of the time range: {_FORMS}.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End of the time range. Same forms as --since.")
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="State of the cluster as of this time. Default: the last event."
    ),
]


def read_range(since: str | None, until: str | None) -> tuple[float | None, float | None]:
    """Return the timestamps of a time range; raises CallerError for what is none."""
    now = time()
    begin_at, end_at = read_one(since, "--since", now), read_one(until, "--until", now)
    if begin_at is not None and end_at is not None and begin_at > end_at:
        raise CallerError("--since is later than --until. Swap them.")
    return begin_at, end_at


def read_one(text: str | None, option: str, now: float) -> float | None:
    """Return one timestamp; a local time is written as it was understood."""
    if not text:
        return None
    found = read_time(text, option=option, now=now)
    if found.note:
        output.say(found.note)
    return found.at
