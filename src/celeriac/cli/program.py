"""The program: its commands put together."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import typer

from celeriac.cli.light_command import LightGroup
from celeriac.cli.option import add_command, add_common

__all__ = ["COMMANDS", "named_command", "program"]

_HELP = """Watch and steer a Celery cluster.

To see it at work, with a broker and a worker of its own: celeriac up
"""
_EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 usage, 69 broker or nodes unavailable, 77 refused by the broker, "
    "78 configuration, 130 interrupted."
)

#: The commands in the order and the groups of the help: where each is, by its own name there. Those of
#: the second kind have commands of their own.
_START, _LOOK, _ACT = "Start here", "Look", "Act"
_RUN, _HISTORY, _ADMIN = "Run tasks", "History", "Admin"
_SINGLE: Final = {
    "up": ("celeriac.cli.up", _START),
    "web": ("celeriac.cli.web", _START),
    "top": ("celeriac.cli.top", _START),
    "doctor": ("celeriac.cli.doctor", _START),
    "status": ("celeriac.cli.status", _LOOK),
    "events": ("celeriac.cli.events", _LOOK),
    "result": ("celeriac.cli.result", _LOOK),
    "leaders": ("celeriac.cli.leaders", _LOOK),
    "probe": ("celeriac.cli.probe", _LOOK),
    "call": ("celeriac.cli.call", _ACT),
    "revoke": ("celeriac.cli.control", _ACT),
    "elect": ("celeriac.cli.elect", _ACT),
    "worker": ("celeriac.cli.worker", _RUN),
    "beat": ("celeriac.cli.beat", _RUN),
    "record": ("celeriac.cli.record", _HISTORY),
    "replay": ("celeriac.cli.replay", _HISTORY),
    "snapshot": ("celeriac.cli.snapshot", _HISTORY),
    "conf": ("celeriac.cli.conf", _ADMIN),
}
_GROUPS: Final = {
    "inspect": ("celeriac.cli.inspect", _LOOK),
    "control": ("celeriac.cli.control", _ACT),
    "log": ("celeriac.cli.log", _HISTORY),
    "history": ("celeriac.cli.history", _HISTORY),
    "pipeline": ("celeriac.cli.pipeline", _HISTORY),
    "export": ("celeriac.cli.export", _HISTORY),
    "access": ("celeriac.cli.access", _ADMIN),
}
#: The names of all commands.
COMMANDS: Final = (*_SINGLE, *_GROUPS)
_PANELS: Final = (_START, _LOOK, _ACT, _RUN, _HISTORY, _ADMIN)
#: Common options that are followed by a value.
_WITH_VALUE: Final = ("--broker", "-b", "--app", "-A", "--config")


class _Root(LightGroup):
    """The program itself: its help lists the commands group by group."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        panels = {name: panel for name, (_, panel) in (_SINGLE | _GROUPS).items()}
        return sorted(super().list_commands(ctx), key=lambda name: _PANELS.index(panels[name]))


def named_command(arguments: Sequence[str]) -> str | None:
    """Return the command that the arguments of the program name, None if they name none."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word if word in COMMANDS else None
    return None


def program(only: str | None = None) -> typer.Typer:
    """Return the program with all commands, or with one: to load the others takes longer than most run."""
    app = typer.Typer(
        name="celeriac",
        no_args_is_help=True,
        # A trace with the values of all variables could show passwords. --debug shows one without.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    add_common(app, cls=_Root, help=_HELP, epilog=_EXIT_CODES)
    for name, (module, panel) in _SINGLE.items():
        if only in (None, name):
            add_command(app, name, rich_help_panel=panel)(_load(module, name))
    for name, (module, panel) in _GROUPS.items():
        if only in (None, name):
            app.add_typer(_load(module, name), name=name, rich_help_panel=panel)
    return app


def _load(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
