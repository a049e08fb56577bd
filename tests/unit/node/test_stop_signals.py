import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from celeriac.node.stop_signals import (
    interrupt,
    is_interruptible,
    stop_command,
    stop_numbers,
    stop_signals,
)
from tests.default_signals import default_signals

ALL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """Start each test with the handlers of a program that a terminal starts."""
    with default_signals():
        yield


def ignore(*numbers: signal.Signals) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def test_signals_call_the_handler_until_the_context_ends() -> None:
    taken: list[int] = []
    before = [*map(signal.getsignal, ALL)]

    with stop_signals(lambda number, _: taken.append(number), signal.SIGQUIT, signal.SIGHUP):
        for number in ALL:
            signal.raise_signal(number)

    assert taken == [*ALL]
    assert [*map(signal.getsignal, ALL)] == before


def test_a_signal_that_was_ignored_stays_ignored_but_sigterm_never_does() -> None:
    taken: list[int] = []
    ignore(*ALL)

    with stop_signals(lambda number, _: taken.append(number), signal.SIGQUIT, signal.SIGHUP):
        for number in ALL:
            signal.raise_signal(number)

    assert taken == [signal.SIGTERM]
    assert {*map(signal.getsignal, ALL)} == {signal.SIG_IGN}


def test_signals_that_are_not_named_are_left_alone() -> None:
    assert stop_numbers() == [signal.SIGINT, signal.SIGTERM]


def test_a_thread_installs_no_handlers() -> None:
    def handlers() -> list[object]:
        with stop_signals(interrupt):
            return [*map(signal.getsignal, ALL)]

    before = [*map(signal.getsignal, ALL)]
    with ThreadPoolExecutor(1) as thread:
        meanwhile = thread.submit(handlers).result()

    assert meanwhile == before


def test_the_stop_command_is_kill_where_ctrl_c_is_ignored() -> None:
    before = stop_command()

    ignore(signal.SIGINT)

    assert (before, stop_command()) == ("Ctrl-C", f"kill {os.getpid()}")


def test_code_is_interruptible_in_the_main_thread_by_signals_that_are_handled() -> None:
    def both() -> tuple[bool, bool]:
        with ThreadPoolExecutor(1) as thread:
            return is_interruptible(), thread.submit(is_interruptible).result()

    default = both()
    ignore(signal.SIGINT)
    ignored = both()
    with stop_signals(interrupt):
        handled = both()

    assert (default, ignored, handled) == ((True, False), (False, False), (True, False))
