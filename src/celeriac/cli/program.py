"""The program: its commands put together."""

from importlib import import_module
from typing import Any, Final

import typer

from celeriac.cli.option import add_command, add_common

__all__ = ["COMMANDS", "program"]

_HELP = """Watch and steer a Celery cluster.

To see it at work, with a broker and a worker of its own: celeriac up
"""
_EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 usage, 69 broker or nodes unavailable, 77 refused by the broker, "
    "78 configuration, 130 interrupted."
)

#: Where each command is: the module, and what it is called there. Those of the second kind have commands of
#: their own.
_SINGLE: Final = {
    "up": "celeriac.cli.up",
    "top": "celeriac.cli.top",
    "worker": "celeriac.cli.worker",
    "beat": "celeriac.cli.beat",
    "status": "celeriac.cli.status",
    "events": "celeriac.cli.events",
    "inspect": "celeriac.cli.inspect",
    "call": "celeriac.cli.call",
    "result": "celeriac.cli.result",
    "revoke": "celeriac.cli.control",
    "elect": "celeriac.cli.elect",
    "leaders": "celeriac.cli.leaders",
    "record": "celeriac.cli.record",
    "replay": "celeriac.cli.replay",
    "snapshot": "celeriac.cli.snapshot",
    "web": "celeriac.cli.web",
    "conf": "celeriac.cli.conf",
}
_GROUPS: Final = {
    "control": "celeriac.cli.control",
    "log": "celeriac.cli.log",
    "history": "celeriac.cli.history",
    "pipeline": "celeriac.cli.pipeline",
    "export": "celeriac.cli.export",
    "access": "celeriac.cli.access",
}
#: The names of all commands.
COMMANDS: Final = (*_SINGLE, *_GROUPS)


def program(only: str | None = None) -> typer.Typer:
    """Return the program with all commands, or with one: to load the others takes longer than most run."""
    app = typer.Typer(
        name="celeriac",
        no_args_is_help=True,
        # A trace with the values of all variables could show passwords. --debug shows one without.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    add_common(app, help=_HELP, epilog=_EXIT_CODES)
    for name, home in _SINGLE.items():
        if only in (None, name):
            add_command(app, name)(_found(home, name))
    for name, home in _GROUPS.items():
        if only in (None, name):
            app.add_typer(_found(home, name), name=name)
    return app


def _found(home: str, name: str) -> Any:
    return getattr(import_module(home), name)
