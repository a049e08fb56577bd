"""Runs a command with default signal handlers: ``python default_signals.py COMMAND ...``.

Tests that a script runs in the background (``nohup make test &``) have SIGINT, SIGQUIT and SIGHUP ignored,
and every child inherits that. Tests that send such a signal restore the defaults: for a command with this
program, and for code in the process of the tests with the fixture ``default_signals``.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["WITH_DEFAULT_SIGNALS", "default_signals"]

#: The beginning of a command that is to start with default signal handlers.
WITH_DEFAULT_SIGNALS = [sys.executable, "-I", "-S", __file__]

#: The handlers of a Python program that a terminal starts; in a program that it becomes, the default actions.
_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@contextmanager
def default_signals() -> Iterator[None]:
    """Have the default handlers meanwhile."""
    before = {number: signal.signal(number, handler) for number, handler in _DEFAULTS.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    with default_signals():
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the command is the test's own
