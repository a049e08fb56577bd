"""``celeriac result``: the stored result of a task."""

import sys
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.session import Session
from celeriac.errors import CallerError, ImproperlyConfigured, ResultTimeout
from celeriac.model.result import ResultMeta
from celeriac.model.states import SUCCESS
from celeriac.views.format import format_duration
from celeriac.views.result import result_dict, result_rows
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.node.result import AsyncResult

__all__ = ["Backend", "result", "tell"]

#: How often the time that has passed is told on a terminal.
_TELL_EVERY: Final = 1.0

TaskId = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Task id.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until the task has ended.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.0,
        metavar="SECONDS",
        help="With --wait: stop after SECONDS, with exit code 69. Default: no limit.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="URL",
        help="Result backend of the workers, such as redis://127.0.0.1:6379/0. Default: --app, "
        "CELERIAC_RESULT_BACKEND, the configuration file, CELERY_RESULT_BACKEND.",
    ),
]


def result(
    session: Session,
    *,
    task_id: TaskId,
    wait: Wait = False,
    timeout: Timeout = None,
    backend: Backend = None,
    out: Output = PLAIN,
) -> Code:
    """Show the state of a task, and its return value or its error.

    With --wait, waits until the task has ended. PENDING means that no result is stored for the id: a
    backend cannot distinguish a queued task from an unknown id. The exit code is 0 if the task succeeded or
    has not ended, 1 if it failed, was revoked, or its result cannot be read, and 69 after --timeout.

    For example:
      celeriac result 3f6c6d52-6d5b-4c1c-9b8e-2f6c1d1f8a10
      celeriac result --wait --timeout 60 ID
      celeriac result --backend redis://127.0.0.1:6379/1 --json ID | jq .result
    """
    if timeout is not None and not wait:
        raise CallerError("--timeout needs --wait. Add --wait, or leave --timeout out")
    session.backend, session.place_option = backend, "--backend URL"
    app = session.app
    _check_backend(app)
    try:
        return tell(app, task_id, wait=wait, timeout=timeout, out=out)
    finally:
        app.close()


def _check_backend(app: "Celeriac") -> None:
    url = app.conf.result_backend
    if url is None:
        raise ImproperlyConfigured(
            "No result backend is set. Name the one of the workers with --backend URL, such as "
            "redis://127.0.0.1:6379/0, or -A APP, or set result_backend (CELERIAC_RESULT_BACKEND)"
        )
    if url.startswith("rpc:"):
        raise ImproperlyConfigured(
            "result_backend is rpc://: only the process that sent a task gets its result. Ask it, or "
            "have the workers store results in Redis"
        )


def tell(app: "Celeriac", task_id: str, *, wait: bool, timeout: float | None, out: Output) -> Code:
    """Show what is known of a task, or what is known of it in the end."""
    result = app.AsyncResult(task_id)
    # Read before anything is waited for: a store that is not there is told at once.
    meta = result.meta
    late: ResultTimeout | None = None
    if wait and not meta.is_ready:
        progress = Progress(app, result, meta)
        try:
            progress.wait(timeout)
        except ResultTimeout as error:
            late = error
        meta = progress.meta
    if not out.write_object(result_dict(meta)):
        rows = result_rows(meta, how_to_see_all="-o json shows all of it")
        width = max(len(row.name) for row in rows)
        for row in rows:
            output.write(row.text(width))
    if late is not None:
        raise late
    return Code.FAILED if meta.is_ready and meta.status != SUCCESS else Code.OK


class Progress:
    """Waits for a task, and tells on a terminal how it goes."""

    def __init__(self, app: "Celeriac", result: "AsyncResult", meta: ResultMeta) -> None:
        #: The last that was heard of the task.
        self.meta = meta
        self._app = app
        self._result = result
        self._began_at = monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._width = 0

    def wait(self, timeout: float | None) -> None:
        """Wait until the task has ended; raises ResultTimeout."""
        interval = _TELL_EVERY if self._is_terminal else None
        self._show()
        try:
            self._result.get(
                timeout, propagate=False, interval=interval, on_message=self._receive, on_interval=self._show
            )
        except KeyboardInterrupt:
            self._clear()
            output.say(f"stopped waiting: {self._state()} after {format_duration(self._elapsed())}")
            raise
        finally:
            self._clear()

    def _receive(self, meta: ResultMeta) -> None:
        self.meta = meta

    def _show(self) -> None:
        error = self._app.backend.health().last_error
        trouble = f"; reconnecting to the result backend: {error}" if error else ""
        self._write(f"waiting {format_duration(round(self._elapsed()))}, {self._state()}{trouble}")

    def _write(self, line: str) -> None:
        if self._is_terminal:
            # Shorter than a terminal is wide, or going back to its beginning would not erase it.
            shown = visible(line, output.terminal_width() - 1)
            sys.stderr.write(f"\r{shown:<{self._width}}")
            sys.stderr.flush()
            self._width = len(shown)

    def _clear(self) -> None:
        if self._width:
            self._write("")
            self._write("")

    def _state(self) -> str:
        return visible(self.meta.status or "unknown", 40)

    def _elapsed(self) -> float:
        return monotonic() - self._began_at
