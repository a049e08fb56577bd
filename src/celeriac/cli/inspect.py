"""``celeriac inspect``: the state of the nodes, as they report it."""

from typing import Annotated, Any, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.option import Selection, add_command, add_common
from celeriac.cli.replies import outcome_of, say_who_is_missing
from celeriac.cli.session import Session
from celeriac.views.reply import reply_lines
from celeriac.views.text import visible

__all__ = ["inspect"]

_ALL: Final = Selection()
#: The questions without arguments, by the method of :class:`~celeriac.node.inspect.Inspect`.
_QUESTIONS: Final = {
    "ping": "Show which nodes answer.",
    "active": "List the tasks that run now.",
    "reserved": "List the tasks that workers have taken from queues and not started.",
    "scheduled": "List the tasks that wait in workers for their ETA.",
    "revoked": "List the ids of revoked tasks.",
    "active_queues": "List the queues that workers consume from.",
    "stats": "Show statistics: tasks by name, the pool, the broker, resource usage.",
    "conf": "Show the configuration of the workers.",
    "clock": "Show the Lamport clocks.",
    "hello": "Show clocks and revoked tasks, as workers exchange them at their start (mingle).",
    "report": "Show software versions and settings, for bug reports.",
}

inspect = typer.Typer(no_args_is_help=True)
add_common(
    inspect,
    help="Ask workers for their state. Nothing is changed. Names may be written as in Celery: active_queues.",
)

Attributes = Annotated[
    list[str] | None,
    typer.Argument(metavar="ATTRIBUTE", show_default=False, help="Attributes to show, as rate_limit."),
]
Ids = Annotated[list[str], typer.Argument(metavar="ID", show_default=False, help="Ids of tasks.")]


def _add_question(method: str, text: str) -> None:
    name = method.replace("_", "-")

    def ask(session: Session, *, selection: Selection = _ALL, out: Output = PLAIN) -> Code:
        # A hello names the node that greets.
        arguments = (session.app.hostname,) if method == "hello" else ()
        return _ask(session, method, arguments, selection=selection, out=out)

    ask.__doc__ = f"""{text}

    For example:
      celeriac inspect {name}
      celeriac inspect {name} -d celery@web1 -o json
    """
    add_command(inspect, name)(ask)


for _method, _text in _QUESTIONS.items():
    _add_question(_method, _text)


@add_command(inspect, "registered")
def registered(
    session: Session, *, attributes: Attributes = None, selection: Selection = _ALL, out: Output = PLAIN
) -> Code:
    """List the tasks that workers can run.

    For example:
      celeriac inspect registered
      celeriac inspect registered rate_limit -d celery@web1
    """
    return _ask(session, "registered", attributes or (), selection=selection, out=out)


@add_command(inspect, "query-task")
def query_task(session: Session, *, ids: Ids, selection: Selection = _ALL, out: Output = PLAIN) -> Code:
    """Show the state of tasks by id, in the workers that have them.

    For example:
      celeriac inspect query-task 3f6c6d52-6d5b-4c1c-9b8e-2f6c1d1f8a10
    """
    return _ask(session, "query_task", ids, selection=selection, out=out)


def _ask(session: Session, method: str, arguments: Any, *, selection: Selection, out: Output) -> Code:
    asked = session.app.control.inspect(timeout=selection.timeout, **selection.options())
    replies = getattr(asked, method)(*arguments)
    if not out.write_object(replies):
        for node, value in sorted(replies.items()):
            output.write(f"{visible(node)}:")
            for line in reply_lines(value):
                output.write(f"  {line}")
    say_who_is_missing(replies)
    return outcome_of(replies)
