"""``celeriac status``: the nodes and their status."""

from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.option import Selection
from celeriac.cli.replies import outcome_of, say_who_is_missing
from celeriac.cli.session import Session
from celeriac.cli.viewing import Viewing, view_cluster
from celeriac.views.cluster import StatusRow, status_rows

if TYPE_CHECKING:
    from celeriac.node.inspect import Replies

__all__ = ["status"]

#: How often is looked whether all have told how they are.
_LOOK_EVERY: Final = 0.05
_STYLES: Final = {"online": "green", "silent": "bold yellow", "absent": "bold red", "error": "bold red"}

Listen = Annotated[
    float,
    typer.Option(
        "--listen",
        min=0.0,
        metavar="SECONDS",
        help="Time to listen for heartbeats, which have the load. Workers send one every 2 seconds.",
    ),
]


def status(
    session: Session,
    *,
    listen: Listen = 2.5,
    selection: Selection = Selection(),  # noqa: B008  (frozen)
    out: Output = PLAIN,
) -> Code:
    """Show the status of all nodes.

    Silent: sends heartbeats, but does not answer. Absent: named with -d, but not seen. The exit code is 0
    if at least one node answers and all are fine, 1 if a node is silent, absent or answers with an error,
    69 if no node answers.

    For example:
      celeriac status
      celeriac status -d celery@web1,celery@web2 --timeout 5
      celeriac status --listen 0 --json
    """
    began_at = monotonic()
    with view_cluster(session.app) as view:
        replies = session.app.control.inspect(timeout=selection.timeout, **selection.options()).ping()
        while monotonic() < began_at + listen and not _have_all_told(view, replies):
            view.check()
            sleep(_LOOK_EVERY)
    if selection.is_everyone:
        _add_silent(view, replies)
    rows = status_rows(replies, view.state.workers)
    out.write_rows(StatusRow, rows, styles=_STYLES)
    say_who_is_missing(replies)
    return outcome_of(replies)


def _have_all_told(view: Viewing, replies: "Replies") -> bool:
    """Tell whether a full heartbeat of each node that answered was heard."""
    # Celery: a heartbeat on request leaves out the load.
    workers = [view.state.workers.get(name) for name in replies]
    return all(worker is not None and worker.active is not None for worker in workers)


def _add_silent(view: Viewing, replies: "Replies") -> None:
    """Count as silent whoever was heard later than the call lasted."""
    alive = {worker.hostname for worker in view.state.alive_workers()}
    replies.silent = sorted({*replies.silent} | (alive - replies.keys() - replies.errors.keys()))
