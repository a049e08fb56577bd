"""Which signals stop a program, and which command an operator stops it with.

SIGTERM always stops it. SIGINT does (and SIGQUIT and SIGHUP, for programs that use them), unless it was
ignored when the program started, as in ``nohup celeriac record &`` from a script: Ctrl-C is then for the
programs in the foreground, and by Unix convention a program in the background keeps ignoring it. Every
module that installs a handler of such a signal, or names Ctrl-C in its output, asks here.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

__all__ = ["interrupt", "is_interruptible", "stop_command", "stop_numbers", "stop_signals"]


def interrupt(_: int, __: FrameType | None) -> None:
    """Do what Ctrl-C does: supervisors send SIGTERM, and what was started has to end then too."""
    raise KeyboardInterrupt


def stop_numbers(*more: signal.Signals) -> list[signal.Signals]:
    """Return the signals that stop this program: SIGTERM, and those of SIGINT and ``more`` not ignored."""
    return [*(number for number in (signal.SIGINT, *more) if not _is_ignored(number)), signal.SIGTERM]


def stop_command() -> str:
    """Return what an operator stops this program with: ``Ctrl-C``, or ``kill PID`` if that is ignored."""
    return f"kill {os.getpid()}" if _is_ignored(signal.SIGINT) else "Ctrl-C"


def is_interruptible() -> bool:
    """Say whether a signal can raise KeyboardInterrupt in the code that runs here."""
    return current_thread() is main_thread() and (
        not _is_ignored(signal.SIGINT) or callable(signal.getsignal(signal.SIGTERM))
    )


@contextmanager
def stop_signals(take: Callable[[int, FrameType | None], None], *more: signal.Signals) -> Iterator[None]:
    """Have the signals that stop this program call ``take`` meanwhile; only its main thread can."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, take) for number in stop_numbers(*more)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
