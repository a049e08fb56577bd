"""``celeriac status``: the nodes and their status."""

from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.option import Selection
from celeriac.cli.replies import outcome_of, say_who_is_missing
from celeriac.cli.session import Session
from celeriac.cli.viewing import Viewing, view_cluster
from celeriac.views.cluster import StatusRow, node_names, status_rows

if TYPE_CHECKING:
    from celeriac.node.control import Control
    from celeriac.node.inspect import Replies

__all__ = ["status"]

#: How often is looked whether all have told how they are.
_LOOK_EVERY: Final = 0.05
#: A heartbeat can overtake task events, which Celery sends once a second.
_GRACE: Final = 1.5
#: Seconds for task events; workers that are idle send none, however long it listens.
_EVENTS_WINDOW: Final = 2.5
_STYLES: Final = {
    "off": "bold yellow",
    "online": "green",
    "silent": "bold yellow",
    "absent": "bold red",
    "error": "bold red",
}

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
    69 if no node answers. EVENTS shows whether a worker sends task events; it is empty while no task runs.

    For example:
      celeriac status
      celeriac status -d celery@web1,celery@web2 --timeout 5
      celeriac status --listen 0 --json
    """
    began_at = monotonic()
    with view_cluster(session.app) as view:
        replies = session.app.control.inspect(timeout=selection.timeout, **selection.options()).ping()
        events = _TaskEvents(session.app.control, view, selection.timeout)
        if listen:
            events.begin([*replies], are_named=not selection.is_everyone)
        while (now := monotonic()) < began_at + listen:
            if _have_all_told(view, replies) and (events.are_known or now > began_at + _EVENTS_WINDOW):
                break
            view.check()
            sleep(_LOOK_EVERY)
        events.end()
    if selection.is_everyone:
        _add_silent(view, replies)
    rows = status_rows(replies, view.state.workers, events.known)
    out.write_rows(StatusRow, rows, styles=_STYLES)
    if without := [row.name for row in rows if row.events == "off"]:
        from celeriac.views.alert import ENABLE_EVENTS  # noqa: PLC0415

        output.say(f"task events are off: {node_names(without)}; turn them on: {ENABLE_EVENTS}")
    say_who_is_missing(replies)
    return outcome_of(replies)


class _TaskEvents:
    """Finds out which workers send task events: those that start tasks meanwhile and send none do not."""

    def __init__(self, control: "Control", view: Viewing, timeout: float) -> None:
        self._control = control
        self._view = view
        self._timeout = timeout
        self._started: dict[str, int] = {}
        self._senders: set[str] = set()
        #: Whether each worker sends task events, of those where that is known.
        self.known: dict[str, bool] = {}

    def begin(self, names: list[str], *, are_named: bool) -> None:
        """Count the tasks that these workers have started."""
        # Recorders and dashboards reply to a ping, but not to this. Replies of all nodes take the whole
        # timeout anyway, as those to the ping did.
        counts = self._count(names if are_named else None)
        self._started = {name: count for name, count in counts.items() if name in names}

    def end(self) -> None:
        """Count them again, and look for the events of the difference."""
        after = self._count(list(self._started))
        busy = {name for name, count in after.items() if count > self._started[name]}
        until = monotonic() + _GRACE
        while not busy <= self._take_senders() and monotonic() < until:
            self._view.check()
            sleep(_LOOK_EVERY)
        self.known = {**dict.fromkeys(busy, False), **dict.fromkeys(self._senders, True)}

    @property
    def are_known(self) -> bool:
        """Whether listening longer tells nothing more."""
        return self._started.keys() <= self._take_senders()

    def _take_senders(self) -> set[str]:
        from celeriac.model.events import Sent, TaskEvent  # noqa: PLC0415 - not for --help

        # Programs that send tasks publish task-sent events, whatever workers do.
        taken = self._view.taken()
        self._senders |= {e.hostname for e in taken if isinstance(e, TaskEvent) and not isinstance(e, Sent)}
        return self._senders

    def _count(self, names: list[str] | None) -> dict[str, int]:
        from celeriac.node.worker_setup import count_started_tasks  # noqa: PLC0415 - not for --help

        return count_started_tasks(self._control, names, self._timeout)


def _have_all_told(view: Viewing, replies: "Replies") -> bool:
    """Tell whether a full heartbeat of each node that answered was heard."""
    # Celery: a heartbeat on request leaves out the load.
    workers = [view.state.workers.get(name) for name in replies]
    return all(worker is not None and worker.active is not None for worker in workers)


def _add_silent(view: Viewing, replies: "Replies") -> None:
    """Count as silent whoever was heard later than the call lasted."""
    alive = {worker.hostname for worker in view.state.alive_workers()}
    replies.silent = sorted({*replies.silent} | (alive - replies.keys() - replies.errors.keys()))
