"""What an operator stops a program with."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

__all__ = ["interrupt", "stop_signals"]


def interrupt(_: int, __: FrameType | None) -> None:
    """Do what Ctrl-C does: supervisors send SIGTERM, and what was started has to end then too."""
    raise KeyboardInterrupt


@contextmanager
def stop_signals(
    take: Callable[[int, FrameType | None], None], *, with_hangup: bool = False
) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM call ``take`` meanwhile; only a program's main thread can.

    With ``with_hangup`` the end of its terminal does too, unless it was started to outlive that.
    """
    if current_thread() is not main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if with_hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, take) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
