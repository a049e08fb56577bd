"""The command line: ``celeriac COMMAND``."""

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    # Only here: who imports the package for something else needs no command line.
    try:
        arguments = sys.argv[1:]
        if arguments == ["--version"]:
            from celeriac import __version__  # noqa: PLC0415 - without the parser it takes a tenth of the time

            print(f"celeriac {__version__}")
            return
        if arguments[:1] == ["probe"]:
            from celeriac.cli.quick_probe import quick_probe  # noqa: PLC0415

            code = quick_probe(arguments[1:])
            if code is not None:
                sys.exit(code)
        from celeriac.cli.program import named_command, program  # noqa: PLC0415

        # Modules stay as long as the process: collecting them as they load takes a tenth of a start, and
        # collecting them later would take as long again each time.
        gc.disable()
        command = program(named_command(arguments))
        gc.freeze()
        gc.enable()
        command(prog_name="celeriac")
    except KeyboardInterrupt:  # so early that no command has begun
        sys.exit(130)
