"""The command line: ``celeriac COMMAND``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    # Only here: who imports the package for something else needs no command line.
    try:
        from celeriac.cli.root import app  # noqa: PLC0415

        app(prog_name="celeriac")
    except KeyboardInterrupt:  # so early that no command has begun
        sys.exit(130)
