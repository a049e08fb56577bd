"""Statements on draining in greenlets: one program each of gevent and eventlet, with a real Redis."""

import asyncio
import json
from typing import Any

import pytest

from celeriac.node.drainer import drainer_class
from celeriac.testing.brokers import RedisServer
from tests.result_programs import EVENTLET, GEVENT, MANY, MANY_WENT_WELL, REPORT, SPAWN, START
from tests.results import run_program

#: Kill the greenlet that drains while another waits for a result.
KILL = """
import gevent, logging

lines = []
logger = logging.getLogger("celeriac")
logger.propagate = False
logger.addHandler(handler := logging.Handler())
handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))

waiting = spawn(app.AsyncResult("after the kill").get, timeout=30)
while app.backend.health().waiters == 0 or app.backend.health().phase != "up":
    sleep(0.001)
gevent.kill(app.backend.consumer._host)
app.backend.store_result("after the kill", "it came")
report["after the kill"] = waiting.get()
report["log"] = [line for line in lines if "killed" in line[1]]
"""
#: Use a flag of the runtime in each way that an Event of threads can be used.
FLAG = """
from celeriac.runtime.eventlet import Eventlet

flag, woken, steps = Eventlet().flag(), [], []

def pass_flag():
    flag.wait(30)
    woken.append(True)

def is_set():
    del woken[:]
    greenlet = spawn(pass_flag)
    for _ in range(3):
        sleep(0)
    greenlet.kill()
    return bool(woken)

steps.append(is_set())
flag.wait(0.001)
steps.append(is_set())
waiters = [spawn(pass_flag), spawn(pass_flag)]
sleep(0)
flag.set()
flag.set()
for waiter in waiters:
    waiter.wait()
steps.append(len(woken))
steps.append(is_set())
flag.wait()
flag.clear()
flag.clear()
steps.append(is_set())
flag.set()
steps.append(is_set())
report["flag"] = steps
"""
#: Note where results are drained: the thread, and whether it is the greenlet of the main program.
PLACE = """
import greenlet, threading

main, places = greenlet.getcurrent(), []

def note_place(meta):
    places.append([threading.get_native_id() == os.getpid(), greenlet.getcurrent() is main])

app.backend.consumer.on_state_change = note_place
"""
#: Each place once: in the main thread, and in another greenlet.
NOTE_PLACES = """
report["places"] = [place for number, place in enumerate(places) if place not in places[:number]]
"""
#: The report of both programs.
WENT_WELL = {**MANY_WENT_WELL, "places": [[True, False]]}


def report_of(code: str, url: str) -> dict[str, Any]:
    done = run_program(code, url, url)
    assert (done.stderr, done.returncode) == ("", 0)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def in_gevent() -> dict[str, Any]:
    """The report of a program of gevent."""
    with RedisServer() as server:
        return report_of(
            GEVENT + START + PLACE + SPAWN[GEVENT] + MANY + NOTE_PLACES + KILL + REPORT, server.url
        )


@pytest.fixture(scope="module")
def in_eventlet() -> dict[str, Any]:
    """The report of a program of eventlet."""
    with RedisServer() as server:
        return report_of(
            EVENTLET + START + PLACE + SPAWN[EVENTLET] + MANY + NOTE_PLACES + FLAG + REPORT, server.url
        )


def test_109_the_environment_selects_the_drainer(
    in_gevent: dict[str, Any], in_eventlet: dict[str, Any]
) -> None:
    """A consumer gets the drainer of its environment: threads, gevent or eventlet."""

    async def in_loop() -> str:
        return drainer_class().__name__

    chosen = [drainer_class().__name__, in_gevent["drainer"], in_eventlet["drainer"], asyncio.run(in_loop())]

    assert chosen == ["ThreadDrainer", "GeventDrainer", "EventletDrainer", "AsyncioDrainer"]


def test_112_gevent_drains_in_a_background_greenlet(in_gevent: dict[str, Any]) -> None:
    """In gevent a background greenlet drains, and waiting for results blocks no other greenlet."""
    seen = {name: in_gevent[name] for name in WENT_WELL}

    assert seen == WENT_WELL


def test_113_eventlet_drains_in_a_background_greenlet(in_eventlet: dict[str, Any]) -> None:
    """In eventlet a background greenlet drains, and waiting for results blocks no other greenlet."""
    seen = {name: in_eventlet[name] for name in WENT_WELL}

    assert seen == WENT_WELL


def test_114_flags_of_eventlet_work_like_threading_events(in_eventlet: dict[str, Any]) -> None:
    """Event objects for eventlet have the API of `threading.Event` that the drainer uses."""
    steps = in_eventlet["flag"]

    # Lowered, after a timeout, waiters that were woken, raised, lowered again, raised again.
    assert steps == [False, False, 2, True, False, True]


def test_115_waiting_greenlets_wake_up_without_polling(in_gevent: dict[str, Any]) -> None:
    """A drained result wakes the greenlets that wait for it, without busy-waiting."""
    is_woken_once = in_gevent["woken once"]

    assert is_woken_once


@pytest.mark.differs("A killed drainer is replaced")
def test_126_a_killed_drainer_is_logged_and_replaced(in_gevent: dict[str, Any]) -> None:
    """The death of the background greenlet ends a wait with an error."""
    [(level, line)] = in_gevent["log"]

    assert (level, "starting another" in line) == ("ERROR", True)
    assert in_gevent["after the kill"] == "it came"
