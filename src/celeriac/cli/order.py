"""Commands that change nodes: confirmation, sending, and the report of the answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import Output
from celeriac.cli.option import Selection
from celeriac.cli.session import Session
from celeriac.errors import CallerError
from celeriac.views.cluster import node_names
from celeriac.views.log import count_text
from celeriac.views.reply import answer_text
from celeriac.views.text import visible

__all__ = ["Order", "carry_out", "confirm", "nodes_that_answer"]

#: Sends a command; takes the options of :meth:`celeriac.node.control.Control.broadcast`.
Send = Callable[..., list[dict[str, object]] | None]


@dataclass(frozen=True)
class Order(Selection, Output):
    """The nodes that a command is for, its output, and whether it asks for confirmation."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False


def carry_out(
    session: Session,
    order: Order,
    send: Send,
    *,
    what: str,
    is_harmless: bool = False,
    has_reply: bool = True,
) -> Code:
    """Ask whether to go on, send a command, and tell what each node answered.

    ``what`` says in a few words what will happen. Nodes do not reply to every command.
    """
    concerned = [] if is_harmless else confirm(session, order, what)
    if isinstance(concerned, Code):
        return concerned
    options: dict[str, Any] = {**order.options(), "timeout": order.timeout}
    answers = {node: value for answer in send(reply=True, **options) or () for node, value in answer.items()}
    if not has_reply:  # but a node that refuses replies
        answers = {node: value for node, value in answers.items() if _is_error(value)}
        if not answers:
            output.say(f"sent to {_whom(order)}; nodes do not reply to this command")
            return Code.OK
    expected = {*concerned, *order.names} if has_reply else set()
    return _account(order, answers, missing=expected - answers.keys())


def confirm(session: Session, order: Order, what: str) -> list[str] | Code:
    """Tell whom a command concerns, and ask whether to go on; return them, or the code if it ends here.

    With ``--yes`` nobody is asked, and nobody need be there.
    """
    if order.yes:
        return []
    concerned = _ask(session, order, what)
    if not concerned:
        return Code.UNAVAILABLE
    if not output.ask("Continue?"):
        output.say("nothing was sent")
        return Code.FAILED
    return concerned


def nodes_that_answer(session: Session, order: Order) -> list[str]:
    """Return the nodes that a command would reach: those that are named, or else the workers."""
    # Clients, monitors and recorders answer a ping too, and no question about tasks.
    command = "ping" if order.names else "query_task"
    arguments: dict[str, object] = {} if order.names else {"ids": []}
    options = {**order.options(), "timeout": order.timeout}
    answers = session.app.control.broadcast(command, arguments, reply=True, **options) or ()
    return sorted({node for answer in answers for node in answer})


def _ask(session: Session, order: Order, what: str) -> list[str]:
    """Tell whom a command concerns, and return them."""
    if not session.is_attended():
        raise CallerError(f"Cannot ask before it would {what}: there is no terminal. Confirm with --yes")
    nodes = nodes_that_answer(session, order)
    if nodes:
        output.say(f"About to {what}, on {count_text(len(nodes), 'node')}: {node_names(nodes)}")
    else:
        output.say(f"no node answered of {_whom(order)}, so nothing was sent. To send it anyway, add --yes")
    return nodes


def _account(order: Order, answers: dict[str, object], *, missing: set[str]) -> Code:
    if not order.write_object(answers):
        for node, value in sorted(answers.items()):
            output.write(f"{visible(node)}: {answer_text(value)}")
    if missing:
        output.say(f"no answer from {node_names(list(missing))}: the command may have run there or not")
    if not answers:
        output.say(f"no node answered of {_whom(order)}")
        return Code.UNAVAILABLE
    return Code.FAILED if missing or any(map(_is_error, answers.values())) else Code.OK


def _is_error(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"error"}


def _whom(order: Order) -> str:
    if order.names:
        return node_names(order.names)
    return f"the nodes that match {visible(order.pattern)}" if order.pattern else "all nodes"
