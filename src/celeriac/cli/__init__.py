"""The command line: ``celeriac COMMAND``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    # Only here: who imports the package for something else needs no command line.
    try:
        from celeriac.cli.program import COMMANDS, program  # noqa: PLC0415

        first = sys.argv[1] if len(sys.argv) > 1 else ""
        program(first if first in COMMANDS else None)(prog_name="celeriac")
    except KeyboardInterrupt:  # so early that no command has begun
        sys.exit(130)
