"""Callbacks: in order, beside everybody else, whatever one of them does."""

from collections.abc import Callable
from functools import partial
from threading import Event
from threading import enumerate as threads

import pytest

from celeriac.node.callbacks import Callbacks
from celeriac.runtime.threads import Threads
from tests.results import PATIENCE, Still, settled


@pytest.fixture
def callbacks() -> Callbacks:
    return Callbacks(Threads())


def test_callbacks_run_in_the_order_they_were_put_in(callbacks: Callbacks) -> None:
    called: list[int] = []

    for number in range(1000):
        callbacks.put(partial(called.append, number))

    assert settled(lambda: len(called) == 1000)
    assert called == list(range(1000))


def test_one_callback_runs_at_a_time(callbacks: Callbacks) -> None:
    inside: list[int] = []
    most: list[int] = []

    def enter() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    for _ in range(500):
        callbacks.put(enter)

    assert settled(lambda: len(most) == 500)
    assert set(most) == {1}


def test_who_puts_a_callback_in_does_not_wait_for_it(callbacks: Callbacks) -> None:
    may_go_on, called = Event(), Event()

    callbacks.put(lambda: may_go_on.wait(PATIENCE))
    callbacks.put(called.set)
    was_called_early = called.is_set()
    may_go_on.set()

    assert not was_called_early
    assert called.wait(PATIENCE)


def test_a_callback_may_put_in_another(callbacks: Callbacks) -> None:
    called = Event()

    callbacks.put(lambda: callbacks.put(called.set))

    assert called.wait(PATIENCE)


def test_a_callback_that_raises_is_told_and_the_next_one_runs(
    callbacks: Callbacks, caplog: pytest.LogCaptureFixture
) -> None:
    called = Event()

    def refuse() -> None:
        raise RuntimeError("not this one")

    callbacks.put(refuse)
    callbacks.put(called.set)

    assert called.wait(PATIENCE)
    assert "not this one" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_would_end_the_program_does_not_keep_the_next_one_from_running(
    error: type[BaseException],
) -> None:
    runtime = Still()
    callbacks, called = Callbacks(runtime), Event()

    def leave() -> None:
        raise error

    callbacks.put(leave)
    callbacks.put(called.set)
    run_all(runtime)
    callbacks.put(bool)
    run_all(runtime)

    assert called.is_set()


def run_all(runtime: Still) -> None:
    """Run what was spawned, as threads do: what comes out of it goes no further."""
    while runtime.spawned:
        try:
            runtime.spawned.pop(0)()
        except BaseException as error:  # noqa: BLE001
            print(f"a thread ended with {error!r}")


def test_callbacks_run_once_a_thread_can_be_had_again() -> None:
    class Full(Still):
        is_full = True

        def spawn(self, run: Callable[[], object], *, name: str) -> "Still":
            if self.is_full:
                raise RuntimeError("can't start new thread")
            return super().spawn(run, name=name)

    runtime, called = Full(), Event()
    callbacks = Callbacks(runtime)
    with pytest.raises(RuntimeError, match="can't start"):
        callbacks.put(called.set)

    runtime.is_full = False
    callbacks.put(bool)
    run_all(runtime)

    assert called.is_set()


def test_without_callbacks_there_is_no_thread(callbacks: Callbacks) -> None:
    called = Event()

    callbacks.put(called.set)
    was_called = called.wait(PATIENCE)
    is_over = settled(lambda: "celeriac-callbacks" not in [thread.name for thread in threads()])

    assert was_called
    assert is_over
