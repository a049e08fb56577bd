"""Greenlets of gevent and eventlet.

What they patch stays patched, so what is tested runs in a program of its own: one for each
library, which does it all and says what came of it.
"""

import json
from functools import cache
from textwrap import dedent

import pytest

from tests.results import run_program

#: Imports that patch, and what the rest of the program needs.
PATCHED = {
    "gevent": """
        from gevent import monkey, sleep
        monkey.patch_all()
        from celeriac.runtime.gevent import Gevent as Runtime
    """,
    "eventlet": """
        import warnings
        warnings.simplefilter("ignore")  # it warns of itself
        import eventlet
        eventlet.monkey_patch()
        from eventlet import sleep
        from celeriac.runtime.eventlet import Eventlet as Runtime
    """,
}
BOTH = pytest.mark.parametrize("library", PATCHED)

PROGRAM = """
import json
from threading import get_native_id
from celeriac.model.result import ResultMeta
from celeriac.node.callbacks import Callbacks
from celeriac.node.slot import Slot

runtime = Runtime()

def wake():
    flag, woken = runtime.flag(), []
    waits = [runtime.spawn(lambda: (flag.wait(30), woken.append(1)), name="waiter") for _ in range(3)]
    sleep(0)
    before = len(woken)
    flag.set()
    for wait in waits:
        wait.join(30)
    return [before, len(woken)]

def raise_again():
    flag = runtime.flag()
    for _ in range(3):
        flag.set()
        flag.set()
        flag.wait()
        flag.clear()
        flag.clear()
    flag.wait(0.001)
    flag.set()
    flag.wait()
    return "through"

def answer_each_other():
    turns, meta, answers = 2000, ResultMeta("a", "SUCCESS"), 0
    there, back = (Slot(runtime.flag(), ["a"] * turns) for _ in range(2))

    def answer():
        for _ in range(turns):
            while not there.has_news:
                there.flag.wait()
            there.take()
            back.put(meta)
            back.ring()

    answering = runtime.spawn(answer, name="answer")
    for _ in range(turns):
        there.put(meta)
        there.ring()
        while not back.has_news:
            back.flag.wait()
        answers += len(back.take())
    answering.join(30)
    return answers

def join():
    flag = runtime.flag()
    spawned = runtime.spawn(flag.wait, name="waiter")
    spawned.join(0.001)
    flag.set()
    spawned.join()
    spawned.join()
    return "over"

def call():
    callbacks, flag, called = Callbacks(runtime), runtime.flag(), runtime.flag()
    callbacks.put(flag.wait)
    callbacks.put(called.set)
    sleep(0)
    flag.set()
    called.wait(30)
    return "called"

def share_a_thread():
    seen = []
    runtime.spawn(lambda: seen.append(get_native_id()), name="who").join()
    return seen == [get_native_id()]

tried = (wake, raise_again, answer_each_other, join, call, share_a_thread)
print(json.dumps({each.__name__: each() for each in tried}))
"""


@cache
def outcome(library: str) -> dict[str, object]:
    """Return what came of everything that was tried with a library."""
    done = run_program(dedent(PATCHED[library]) + PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, object] = json.loads(done.stdout)
    return found


@BOTH
def test_a_flag_wakes_the_greenlets_that_wait_for_it(library: str) -> None:
    assert outcome(library)["wake"] == [0, 3]


@BOTH
def test_a_flag_can_be_raised_again_after_it_was_lowered(library: str) -> None:
    assert outcome(library)["raise_again"] == "through"


@BOTH
def test_r12_no_wake_is_lost_between_greenlets(library: str) -> None:
    assert outcome(library)["answer_each_other"] == 2000


@BOTH
def test_what_is_spawned_can_be_waited_for_until_it_ends_or_the_time_is_up(library: str) -> None:
    assert outcome(library)["join"] == "over"


@BOTH
def test_a_callback_that_waits_blocks_no_other_greenlet(library: str) -> None:
    assert outcome(library)["call"] == "called"


@BOTH
def test_what_is_spawned_has_no_thread_of_its_own(library: str) -> None:
    assert outcome(library)["share_a_thread"] is True


def test_with_gevent_what_reads_from_sockets_that_are_not_patched_has_a_thread() -> None:
    code = """
        from threading import get_native_id
        from celeriac.runtime.gevent import Gevent
        seen = []
        Gevent().spawn(lambda: seen.append(get_native_id()), name="who").join()
        print(seen == [get_native_id()])
    """

    done = run_program(code)

    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_flag_of_gevent_can_be_raised_in_a_thread_while_nothing_else_runs() -> None:
    code = """
        from threading import Thread
        from time import sleep
        from celeriac.runtime.gevent import Gevent
        flag = Gevent().flag()
        # The wait may begin before or after: both are fine.
        raiser = Thread(target=lambda: (sleep(0.2), flag.set()))
        raiser.start()
        flag.wait()
        print("woken")
    """

    done = run_program(code)

    assert (done.stdout, done.stderr) == ("woken\n", "")


def test_eventlet_without_patched_sockets_is_refused() -> None:
    code = """
        import warnings
        warnings.simplefilter("ignore")
        import eventlet
        from celeriac.errors import ImproperlyConfigured
        from tests.results import StoreBackend
        try:
            StoreBackend(result_drainer="eventlet").result("a").get(timeout=1)
        except ImproperlyConfigured as error:
            print(error)
    """

    done = run_program(code)

    assert "call eventlet.monkey_patch()" in done.stdout
    assert done.stderr == ""


def test_patching_that_comes_after_the_import_counts() -> None:
    code = """
        from celeriac.node.drainer import drainer_class
        from celeriac.runtime.environment import environment
        before = environment()
        from gevent import monkey
        between = environment()
        monkey.patch_all()
        print(before, between, environment(), drainer_class().__name__)
    """

    done = run_program(code)

    assert done.stdout.split() == ["default", "default", "gevent", "GeventDrainer"]
