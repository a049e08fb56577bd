"""The program as a reader of command lines: it reads them, and runs nothing."""

import shlex
from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from celeriac.cli.root import app

__all__ = ["PROGRAM", "read_command"]

#: Put together once: it takes longer than to read a command line.
PROGRAM: Any = get_command(app)


def read_command(words: Sequence[str]) -> str:
    """Have the program read a command line, run nothing, and return the command that it would run."""
    command = PROGRAM
    context, name, rest = None, "celeriac", list(words)
    while True:
        context = command.make_context(name, rest, parent=context)
        below = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "commands"):
            assert below == []
            return str(context.command_path)
        assert below, f"{shlex.join(words)} names no command"
        name, command, rest = command.resolve_command(context, below)
