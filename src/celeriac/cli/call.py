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

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Task name.")]
Arguments = Annotated[
    str, typer.Argument(metavar="ARGS", show_default=False, help="Arguments, a JSON list: '[1, 2]'.")
]
Kwargs = Annotated[
    str,
    typer.Option(
        "--kwargs",
        metavar="JSON",
        show_default=False,
        help="Keyword arguments, a JSON object: '{\"fast\": true}'.",
    ),
]
Countdown = Annotated[
    float | None,
    typer.Option("--countdown", metavar="SECONDS", rich_help_panel=_WHEN, help="Start after SECONDS."),
]
Eta = Annotated[
    str | None,
    typer.Option(
        "--eta",
        metavar="TIME",
        rich_help_panel=_WHEN,
        help="Start at this time, ISO 8601; UTC if it has no time zone.",
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="SECONDS|TIME",
        rich_help_panel=_WHEN,
        help="Skip the task if it has not started by then.",
    ),
]
InQueue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        rich_help_panel=_WHEN,
        help="Queue. Default: task_routes, task_default_queue.",
    ),
]
Priority = Annotated[
    int | None,
    typer.Option(
        "--priority",
        min=0,
        max=255,
        rich_help_panel=_WHEN,
        help="Priority. 0 is the highest on Redis, the lowest on RabbitMQ.",
    ),
]
TaskId = Annotated[str | None, typer.Option("--id", metavar="ID", help="Task id. Default: a new one.")]
Wait = Annotated[
    bool, typer.Option("--wait", "-w", help="Wait until the task has ended, and show its result.")
]


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
    """Send a task to the workers and show its id; with --wait, its result.

    The code of the task is not needed here. The exit code is 0 once the broker has the message. With
    --wait it is 1 if the task failed or was revoked, and 69 after --timeout.

    For example:
      celeriac call shop.add '[2, 3]'
      celeriac call shop.add --kwargs '{"x": 2, "y": 3}' --wait --timeout 60
      celeriac call shop.report --queue slow --countdown 600 --expires 3600
    """
    if timeout is not None and not wait:
        raise CallerError("--timeout needs --wait. Add --wait, or leave --timeout out")
    session.backend = backend
    app = session.app
    if wait and app.conf.result_backend is None:
        raise ImproperlyConfigured(
            "No result backend is set, so --wait cannot work. Name the one of the workers with --backend URL "
            "or -A APP, or set result_backend (CELERIAC_RESULT_BACKEND)"
        )
    try:
        result = app.send_task(
            name,
            _read(arguments, list, "Invalid ARGS. Use a JSON list, such as '[1, 2]'"),
            _read(kwargs, dict, "Invalid --kwargs. Use a JSON object, such as '{\"x\": 1}'"),
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
        raise CallerError(f"{fix}, not {text!r:.80}")
    return value


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
