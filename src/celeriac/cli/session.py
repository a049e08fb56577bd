"""The common options of a command, the app that follows from them, and the exit code of the command."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code, code_of, error_line
from celeriac.errors import CeleriacError

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.config import Settings

__all__ = ["Session", "ending"]


def _assemble(**arguments: Any) -> "Celeriac":
    from celeriac.app import Celeriac  # noqa: PLC0415  (loads the ways to every broker)

    return Celeriac(**arguments)


@dataclass
class Session:
    """The common options, and the app that follows from them."""

    broker: str | None = None
    backend: str | None = None
    #: The app that ``--app`` names, and the app itself, where a program has loaded it.
    app_name: str | None = None
    loaded: Any = None
    config: Path | None = None
    is_debug: bool = False
    #: The option, or the setting, that names what this command connects to.
    place_option: str = "--broker URL"
    #: Makes an app from the arguments of :class:`~celeriac.app.Celeriac`.
    assemble: Callable[..., "Celeriac"] = _assemble
    #: Tells whether somebody is there to answer a question.
    is_attended: Callable[[], bool] = field(default=lambda: sys.stdin.isatty() and sys.stderr.isatty())

    def choose(self, *, broker: str | None, app: str | None, config: Path | None, is_debug: bool) -> None:
        """Take the common options of a command; those before its name count where it has none."""
        self.broker = broker or self.broker
        if app:
            self.app_name, self.loaded = app, None
        self.config = config or self.config
        self.is_debug = is_debug or self.is_debug

    @cached_property
    def app(self) -> "Celeriac":
        """The app, not yet connected: that of ``--app`` if it is one of ours, else one on its settings."""
        named = self._named
        if named is not None:
            from celeriac.cli.app_option import is_own  # noqa: PLC0415 - only who names an app loads it

            if is_own(named):
                named.configure(broker_url=self.broker, result_backend=self.backend)
                own: Celeriac = named
                return own
        given = {"broker": self.broker, "backend": self.backend, "config": self.config}
        return self.assemble(**given if named is None else given | {"celery": named})

    @cached_property
    def settings(self) -> "Settings":
        """The settings of the app, for a command that needs nothing else of it; half of a start."""
        if self.assemble is not _assemble or self._named is not None or "app" in self.__dict__:
            return self.app.conf
        from celeriac.config import Settings  # noqa: PLC0415  (not for the help)

        given = {"broker_url": self.broker, "result_backend": self.backend}
        return Settings.load(given, environ=os.environ, file=self.config)

    @cached_property
    def _named(self) -> Any:
        """The app that ``--app`` names; None without one."""
        if self.loaded is not None or self.app_name is None:
            return self.loaded
        from celeriac.cli.app_option import load  # noqa: PLC0415 - only who names an app loads it

        return load(self.app_name)


@contextmanager
def ending(session: Session) -> Iterator[None]:
    """End a command with the exit code that its error stands for, and one line that says why."""
    try:
        yield
        sys.stdout.flush()
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(Code.INTERRUPTED) from None
    except BrokenPipeError:  # who read our output has seen enough
        output.silence()
        raise typer.Exit(Code.OK) from None
    except Exception as error:  # noqa: BLE001  (the last resort: it is told, and the command fails)
        _fail(session, error)


def _fail(session: Session, error: Exception) -> None:
    if session.is_debug:
        output.say_lines(output.hide_passwords("".join(traceback.format_exception(error))))
    elif isinstance(error, CeleriacError):
        line = error_line(error, option=session.place_option)
        text, _, log = line.partition("\n") if type(error) is CeleriacError else (line, "", "")
        output.say(text)
        if log:  # the end of what a service of ours wrote; no peer gets to write lines of its own
            output.say_lines(log)
    else:
        output.say(
            f"error: internal error, {type(error).__name__}: {error}. "
            "Run the command again with --debug, and report its output"
        )
    raise typer.Exit(code_of(error)) from error
