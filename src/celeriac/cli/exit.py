"""What the exit codes of every command mean. Those from 64 on are of ``sysexits.h``."""

from enum import IntEnum

from celeriac.errors import (
    AccessRefused,
    CallerError,
    CeleriacError,
    ConnectionLost,
    ImproperlyConfigured,
    NetworkError,
    ResultTimeout,
)

__all__ = ["Code", "code_of", "error_line"]


class Code(IntEnum):
    """How a command ended."""

    #: It did what was asked.
    OK = 0
    #: It did not, or not all of it: a node reported an error or kept silent, a task failed, nobody said yes.
    FAILED = 1
    #: The command was not understood, or needs an option that is missing.
    USAGE = 2
    #: The broker or the store cannot be reached, no node answers, or no event or result came in time.
    UNAVAILABLE = 69
    #: The broker refused who we are or what we asked for.
    REFUSED = 77
    #: A setting is wrong, or a package that is needed is not installed.
    CONFIGURATION = 78
    #: Ctrl-C.
    INTERRUPTED = 130


_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (AccessRefused, Code.REFUSED),
    (NetworkError, Code.UNAVAILABLE),
    (ResultTimeout, Code.UNAVAILABLE),
    (ImproperlyConfigured, Code.CONFIGURATION),
    (CallerError, Code.USAGE),
)


def code_of(error: Exception) -> Code:
    """Return the code that an error ends a command with."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.FAILED)


def error_line(error: CeleriacError, *, option: str = "--broker URL") -> str:
    """Return what is shown of an error; ``option`` names what the command connects to."""
    if isinstance(error, ConnectionLost):
        return f"error: {str(error).rstrip('.')}. Start it, or name another with {option}"
    return f"error: {error}"
