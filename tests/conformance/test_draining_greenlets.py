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

flag, steps = Eventlet().flag(), []

def wait_at_flag():
    flag.wait(30)
    steps.append("woken")

waiters = [spawn(wait_at_flag), spawn(wait_at_flag)]
flag.wait(0.001)
steps.append("timeout")
flag.set()
flag.set()
for waiter in waiters:
    waiter.wait()
flag.wait()
steps.append("set")
flag.clear()
flag.wait(0.001)
steps.append("cleared")
report["flag"] = steps
"""


def report_of(code: str, url: str) -> dict[str, Any]:
    done = run_program(code, url, url)
    assert (done.stderr, done.returncode) == ("", 0)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def in_gevent() -> dict[str, Any]:
    """The report of a program of gevent."""
    with RedisServer() as server:
        return report_of(GEVENT + START + SPAWN[GEVENT] + MANY + KILL + REPORT, server.url)


@pytest.fixture(scope="module")
def in_eventlet() -> dict[str, Any]:
    """The report of a program of eventlet."""
    with RedisServer() as server:
        return report_of(EVENTLET + START + SPAWN[EVENTLET] + MANY + FLAG + REPORT, server.url)


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
    seen = {name: in_gevent[name] for name in MANY_WENT_WELL}

    assert seen == MANY_WENT_WELL


def test_113_eventlet_drains_in_a_background_greenlet(in_eventlet: dict[str, Any]) -> None:
    """In eventlet a background greenlet drains, and waiting for results blocks no other greenlet."""
    seen = {name: in_eventlet[name] for name in MANY_WENT_WELL}

    assert seen == MANY_WENT_WELL


def test_114_flags_of_eventlet_work_like_threading_events(in_eventlet: dict[str, Any]) -> None:
    """Event objects for eventlet have the API of `threading.Event` that the drainer uses."""
    steps = in_eventlet["flag"]

    assert steps == ["timeout", "woken", "woken", "set", "cleared"]


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
