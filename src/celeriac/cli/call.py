"""``celeriac call``: send one task."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.result import Backend, Timeout, tell
from celeriac.cli.session import Session
from celeriac.errors import CallerError, ImproperlyConfigured

if TYPE_CHECKING:
    from celeriac.app import Celeriac

__all__ = ["call"]

_WHEN = "When and where"

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The name of the task.")]
Arguments = Annotated[
    str, typer.Argument(metavar="ARGS", show_default=False, help="Its arguments, a list in JSON: '[1, 2]'.")
]
Kwargs = Annotated[
    str,
    typer.Option(
        "--kwargs", metavar="JSON", show_default=False, help="By name, an object: '{\"fast\": true}'."
    ),
]
Countdown = Annotated[
    float | None,
    typer.Option("--countdown", metavar="SECONDS", rich_help_panel=_WHEN, help="Run it no sooner than then."),
]
Eta = Annotated[
    str | None,
    typer.Option(
        "--eta",
        metavar="MOMENT",
        rich_help_panel=_WHEN,
        help="The same as ISO 8601, UTC if it has no zone.",
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="SECONDS|MOMENT",
        rich_help_panel=_WHEN,
        help="Do not begin it later than that.",
    ),
]
InQueue = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", metavar="QUEUE", rich_help_panel=_WHEN, help="Where to; else what the settings say."
    ),
]
Priority = Annotated[
    int | None,
    typer.Option(
        "--priority",
        min=0,
        max=255,
        rich_help_panel=_WHEN,
        help="0 is the most urgent on Redis, and the least on RabbitMQ.",
    ),
]
TaskId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The id of the task; else a new one is made.")
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until the task has ended, and show how.")]


def call(
    session: Session,
    *,
    name: Name,
    arguments: Arguments = "[]",
    kwargs: Kwargs = "{}",
    countdown: Countdown = None,
    eta: Eta = None,
    expires: Expires = None,
    queue: InQueue = None,
    priority: Priority = None,
    task_id: TaskId = None,
    wait: Wait = False,
    timeout: Timeout = None,
    backend: Backend = None,
    out: Output = PLAIN,
) -> Code:
    """Send a task to the workers, and show its id; with --wait, what became of it.

    Nothing need know the task here: the workers do, ours or Celery's. The exit code is 0 once the broker
    has it. With --wait it is 1 if the task failed or was revoked, and 69 if it did not end in time.

    For example:
      celeriac call shop.add '[2, 3]'
      celeriac call shop.add --kwargs '{"x": 2, "y": 3}' --wait --timeout 60
      celeriac call shop.report --queue slow --countdown 600 --expires 3600
    """
    if timeout is not None and not wait:
        raise CallerError("--timeout says how long to wait: add --wait, or leave it out")
    session.backend = backend
    app = session.app
    if wait and app.conf.result_backend is None:
        raise ImproperlyConfigured(
            "no result backend is set, so there is nothing to wait for: name where the workers store results "
            "with --backend URL, or set result_backend (CELERIAC_RESULT_BACKEND)"
        )
    try:
        result = app.send_task(
            name,
            _read(arguments, list, "ARGS is a list in JSON, such as '[1, 2]'"),
            _read(kwargs, dict, "--kwargs is an object in JSON, such as '{\"x\": 1}'"),
            countdown=countdown,
            eta=eta,
            expires=_number(expires),
            queue=queue,
            priority=priority,
            task_id=task_id,
            # Results that are messages would come to nobody.
            ignore_result=None if wait or not _is_rpc(app) else True,
        )
        if not wait:
            _show(result.id, name, out=out)
            return Code.OK
        output.say(f"sent {name} as {result.id}")
        session.place_option = "--backend URL"
        return tell(app, result.id, wait=True, timeout=timeout, out=out)
    finally:
        app.close()


def _show(task_id: str, name: str, *, out: Output) -> None:
    if not out.write_object({"id": task_id, "task": name}):
        output.write(task_id)


def _is_rpc(app: "Celeriac") -> bool:
    return (app.conf.result_backend or "").startswith("rpc:")


def _read(text: str, kind: type, fix: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise CallerError(f"{fix}; this is {text!r:.80}")
    return value


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
