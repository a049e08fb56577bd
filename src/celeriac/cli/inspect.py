"""``celeriac inspect``: what the nodes tell about themselves."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.option import AsJson, Selection
from celeriac.cli.session import Session
from celeriac.errors import CallerError
from celeriac.views.cluster import node_names
from celeriac.views.reply import reply_lines
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.node.inspect import Inspect, Replies

__all__ = ["Method", "inspect", "outcome_of", "say_who_is_missing"]


class Method(StrEnum):
    """What nodes can be asked."""

    PING = "ping"
    HELLO = "hello"
    CLOCK = "clock"
    STATS = "stats"
    ACTIVE = "active"
    RESERVED = "reserved"
    SCHEDULED = "scheduled"
    REVOKED = "revoked"
    REGISTERED = "registered"
    ACTIVE_QUEUES = "active_queues"
    QUERY_TASK = "query_task"
    CONF = "conf"
    REPORT = "report"


MethodName = Annotated[Method, typer.Argument(metavar="METHOD", show_default=False, help="What to ask.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS",
        show_default=False,
        help="For query_task the ids of tasks; for registered the attributes to show of each task.",
    ),
]


def inspect(
    session: Session,
    *,
    method: MethodName,
    arguments: Arguments = None,
    selection: Selection = Selection(),  # noqa: B008  (frozen)
    as_json: AsJson = False,
) -> Code:
    """Ask the nodes about themselves. Nothing that is asked changes what they do.

    METHOD is one of
      ping           who is there
      hello          clocks, and the ids of revoked tasks, as nodes tell them when they meet
      clock          the Lamport clocks
      stats          counts of tasks, the pool, the broker, the use of resources
      active         tasks that run now
      reserved       tasks that wait in the nodes
      scheduled      tasks that wait for their time
      revoked        ids of revoked tasks
      registered     tasks that the nodes can run
      active_queues  queues that they take tasks from
      query_task     what they know of some tasks
      conf           how they are configured
      report         their software, for reports of bugs

    Nodes that live but do not answer are told on standard error.

    For example:
      celeriac inspect active
      celeriac inspect stats -d celery@web1 --json
      celeriac inspect query_task 3f6c6d52-6d5b-4c1c-9b8e-2f6c1d1f8a10
    """
    asked = session.app.control.inspect(timeout=selection.timeout, **selection.options())
    replies = _ask(asked, method, arguments or [], own_name=session.app.hostname)
    if as_json:
        output.write_json(replies, indent=2)
    else:
        for node, value in sorted(replies.items()):
            output.write(f"{visible(node)}:")
            for line in reply_lines(value):
                output.write(f"  {line}")
    say_who_is_missing(replies)
    return outcome_of(replies)


def outcome_of(replies: "Replies") -> Code:
    """Return the exit code for what the nodes answered."""
    if not replies and not replies.errors:
        return Code.UNAVAILABLE
    return Code.FAILED if replies.errors or replies.silent or replies.absent else Code.OK


def say_who_is_missing(replies: "Replies") -> None:
    """Tell which nodes failed, kept silent or are not there."""
    for node, error in sorted(replies.errors.items()):
        output.say(f"error on {visible(node)}: {error}")
    if replies.silent:
        output.say(f"silent: {node_names(replies.silent)} (alive, but no answer; try a longer --timeout)")
    if replies.absent:
        output.say(f"absent: {node_names(replies.absent)} (named, but nothing is heard of it)")
    if not replies and not replies.errors:
        output.say("no node answered; is a worker running on this broker?")


def _ask(asked: "Inspect", method: Method, arguments: list[str], *, own_name: str) -> "Replies":
    match method:
        case Method.QUERY_TASK:
            if not arguments:
                raise CallerError("query_task needs the id of a task: celeriac inspect query_task ID")
            return asked.query_task(*arguments)
        case Method.REGISTERED:
            return asked.registered(*arguments)
        case _ if arguments:
            raise CallerError(f"{method} takes no arguments; leave out {' '.join(arguments)!r}")
        case Method.HELLO:
            return asked.hello(own_name)
        case _:
            replies: Replies = getattr(asked, method.value)()
            return replies
