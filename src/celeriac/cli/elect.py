"""``celeriac elect``: an election among the workers."""

import json
from contextlib import suppress
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.order import Order, confirm
from celeriac.cli.session import Session
from celeriac.errors import CallerError, CeleriacError, PeerError
from celeriac.model.election import Elected, Election, Level, Mode, Record, RecordState
from celeriac.model.events import Event
from celeriac.node.election import TASK_TOPIC, elected_task_id
from celeriac.views.format import format_duration
from celeriac.views.leader import ElectionRow, level_text, node_of
from celeriac.views.text import cells, visible
from celeriac.wire.election import ELECTED_EVENT, check_election, read_message

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.node.receiver import EventReceiver

__all__ = ["elect"]

#: What nodes tell of elections that are decided.
_CLUSTER_EVENTS: Final = "cluster.#"
#: What Celery writes of a call.
_SIGNATURE_KEYS: Final = ("task", "args", "kwargs", "options", "subtask_type", "immutable", "chord_size")
#: What became of what a winner was to do.
_STATES: Final = {
    RecordState.HELD: "has not ended yet",
    RecordState.DONE: "is done",
    RecordState.FAILED: "has failed",
}


class Ending(StrEnum):
    """The outcome if a winner dies before it has acted."""

    ONCE = Mode.ONCE.value
    TAKEOVER = Mode.TAKEOVER.value


Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        show_default=False,
        help="Topic: 'task', to send a task, or one that workers have a handler for.",
    ),
]
Action = Annotated[
    str | None,
    typer.Option(
        "--action",
        metavar="JSON",
        help='Action of the winner; for topic task, such as {"task": "shop.report"}.',
    ),
]
ElectionId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Election id. An id is decided once. Default: a new one."),
]
InMode = Annotated[
    Ending,
    typer.Option("--mode", help="If the winner dies before it has acted: takeover lets another one act."),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Hold the election with any workers. It can stop Celery workers if there are one or two.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Time to wait for the winner."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def elect(
    session: Session,
    *,
    topic: Topic,
    action: Action = None,
    election_id: ElectionId = None,
    mode: InMode = Ending.ONCE,
    force: Force = False,
    timeout: Timeout = 5.0,
    yes: Yes = False,
    out: Output = PLAIN,
) -> Code:
    """Let the workers elect one of them, which then acts, and show the winner.

    Workers take part if election_actions names the task, or if they have a handler for the topic. The exit
    code is 0 if a worker won, and 69 if none reported so in time. Celery workers take part, but do not
    report a win.

    For example:
      celeriac elect task --action '{"task": "shop.report", "args": [7]}'
      celeriac elect task --action '{"task": "shop.report"}' --id report-1115 -y
      celeriac elect rebuild-index --json | jq -r .winner
    """
    app = session.app
    is_new = election_id is None
    election = _election(app, topic, action, election_id=election_id, mode=Mode(mode.value))
    try:
        agreed = confirm(session, Order(yes=yes), f"hold election {election.id} on {topic}")
        if isinstance(agreed, Code):
            return agreed
        with app.events.Receiver(routing_key=_CLUSTER_EVENTS) as receiver:
            row, record = _hold(app, election, receiver, force=force, timeout=timeout)
            _show(row, out)
            return _ending(app, election, row, record, is_new=is_new, timeout=timeout)
    finally:
        app.close()


def _hold(
    app: "Celeriac", election: Election, receiver: "EventReceiver", *, force: bool, timeout: float
) -> tuple[ElectionRow, Record | None]:
    """Hold an election; return it with who won, and what the arbiter knows if nobody said so."""
    _listen(receiver)
    app.control.election(election.id, election.topic, election.action, mode=election.mode, force=force)
    row = _winner(receiver, election, timeout=timeout)
    record = _record(app, election) if row.winner is None else None
    if record is not None:
        row = row._replace(winner=node_of(record.owner) or None, token=record.token or None)
    return row, record


def _ending(
    app: "Celeriac",
    election: Election,
    row: ElectionRow,
    record: Record | None,
    *,
    is_new: bool,
    timeout: float,
) -> Code:
    """Say what the row does not; return how the command ends."""
    if record is not None and is_new:
        output.say(
            f"No worker reported in time. The arbiter has the winner: the action {_STATES[record.state]}"
        )
    elif record is not None:
        output.say(
            f"Already decided: the action {_STATES[record.state]}. "
            "An id is decided once. To elect again, use another --id"
        )
    elif row.winner is None:
        _say_why_not(app, election, timeout)
        return Code.UNAVAILABLE
    return Code.OK


def _election(
    app: "Celeriac", topic: str, action: str | None, *, election_id: str | None, mode: Mode
) -> Election:
    """Read what is to be elected for; raises CallerError for what no worker would take part in."""
    # An empty id is refused below: who meant to name it would have it done each time.
    name = str(uuid4()) if election_id is None else election_id
    try:
        told = None if action is None else json.loads(action)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"Invalid --action: not JSON, {error}") from error
    if topic == TASK_TOPIC:
        if not isinstance(told, dict):
            raise CallerError('Topic task needs the task: --action \'{"task": "shop.report", "args": []}\'')
        unknown = sorted(told.keys() - _SIGNATURE_KEYS)
        if unknown:  # elsewhere they are let pass, for the sake of later Celerys; here it is a slip
            raise CallerError(
                f"Invalid --action: unknown key {visible(unknown[0])!r}. Use {', '.join(_SIGNATURE_KEYS)}"
            )
        signature = app.signature(told)
        # Whoever wins sends it under this id: Celery's workers take it from the signature.
        task_id = signature.options.get("task_id") or elected_task_id(name)
        told = signature.clone(task_id=task_id).to_dict()
    election = Election(name, topic, told, mode)
    check_election(election)
    return election


# -- who won


def _listen(receiver: "EventReceiver") -> None:
    """Subscribe: whatever is said from now on is heard."""
    with suppress(TimeoutError):  # nothing is said yet
        receiver.capture(timeout=0.0, wakeup=False)


def _winner(receiver: "EventReceiver", election: Election, *, timeout: float) -> ElectionRow:
    """Return the election with the first that says it won, if one does within ``timeout`` seconds."""
    row = _row(election)
    deadline = monotonic() + timeout
    while row.winner is None and (left := deadline - monotonic()) > 0:
        try:
            (event,) = receiver.itercapture(limit=1, timeout=left, wakeup=False)
        except TimeoutError:
            break
        elected = _read(event)
        if elected is not None and elected.id == election.id:
            row = row._replace(winner=visible(event.hostname), token=elected.token or None)
    return row


def _read(event: Event) -> Elected | None:
    if event.type != ELECTED_EVENT:
        return None
    try:
        message = read_message(event)
    except PeerError:  # whoever reaches the broker can say anything
        return None
    return message if isinstance(message, Elected) else None


def _record(app: "Celeriac", election: Election) -> Record | None:
    """Return what the arbiter knows of an election that nobody spoke of; none if it cannot say."""
    from celeriac.worker.elector import election_key  # noqa: PLC0415  (loads a worker)

    try:
        return app.arbiter.read(election_key(election.id))
    except CeleriacError:  # it is told below that the arbiter cannot be asked
        return None


# -- what is told


def _row(election: Election) -> ElectionRow:
    action = election.action
    options = action.get("options", {}) if isinstance(action, dict) and election.topic == TASK_TOPIC else {}
    task_id = options.get("task_id")
    return ElectionRow(
        visible(election.id), visible(election.topic), election.mode.value, task=task_id and visible(task_id)
    )


def _show(row: ElectionRow, out: Output) -> None:
    if out.write_object(row._asdict()):
        return
    for name, value in zip(ElectionRow._fields, cells(row), strict=True):
        if value:
            output.write(f"{name:<6}  {value}")


def _say_why_not(app: "Celeriac", election: Election, timeout: float) -> None:
    """Tell what can be known of why nobody said that it won, and what cannot."""
    output.say(f"No worker reported a win within {format_duration(timeout)}. The winner, if any, is unknown:")
    trouble = _trouble(app)
    if trouble:
        output.say(f"- {trouble}")
    if election.topic == TASK_TOPIC:
        output.say("- workers act only if their setting election_actions names the task")
    else:
        output.say(f"- workers may have no handler for {election.topic!r} (worker.gossip.election_handlers)")
    output.say("- a Celery worker may have won: those do not report it")
    output.say("- workers may need more time (--timeout); their logs have the reason why one does not act")


def _trouble(app: "Celeriac") -> str:
    """Return what keeps everybody from being elected, as far as is seen from here; empty if nothing does."""
    try:
        arbiter = app.arbiter
        level, min_level = arbiter.look(), Level[app.conf.election_min_level]
    except CeleriacError as error:
        return f"Cannot query the arbiter: {error}"
    return level_text(level, arbiter.reason, min_level=min_level) if level < min_level else ""
