"""Threads as a way of running things side by side."""

from threading import Event, current_thread, main_thread

from celeriac.runtime.threads import Threads
from tests.results import PATIENCE


def test_what_is_spawned_runs_in_a_thread_that_does_not_keep_the_program() -> None:
    names: list[tuple[str, bool]] = []

    spawned = Threads().spawn(
        lambda: names.append((current_thread().name, current_thread().daemon)), name="celeriac-test"
    )
    spawned.join(PATIENCE)

    assert names == [("celeriac-test", True)]


def test_a_flag_wakes_who_waits_in_another_thread() -> None:
    flag, woken = Threads().flag(), Event()

    def wait() -> None:
        flag.wait(PATIENCE)
        woken.set()

    spawned = Threads().spawn(wait, name="celeriac-test")
    flag.set()
    spawned.join(PATIENCE)

    assert woken.is_set()
    assert current_thread() is main_thread()


def test_a_flag_that_is_lowered_is_waited_for_until_the_time_is_up() -> None:
    flag = Threads().flag()

    flag.set()
    flag.clear()

    assert not flag.wait(0.001)
