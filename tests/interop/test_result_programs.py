"""Whole programs that wait for results: forked, patched by greenlets, and ended in the middle of a wait."""

import json
from textwrap import dedent
from typing import Any

import pytest
from kombu import Connection

from tests.result_programs import EVENTLET, GEVENT, MANY, MANY_WENT_WELL, REPORT, SPAWN, START
from tests.results import run_program

#: Where nobody listens.
NOWHERE = "redis://127.0.0.1:1/0"


def run(code: str, broker: str, backend: str) -> Any:
    """Run a program that says in JSON how it went; it must end well and print nothing else."""
    done = run_program(START + dedent(code), broker, backend)
    assert done.stderr == ""
    assert done.returncode == 0
    return json.loads(done.stdout or "null")


# -- R17: forks


FORKED = """
parent_values = []
reply_to = getattr(app.backend, "reply_to", "")
watched = app.backend.add_pending_result(app.AsyncResult("watched"))
waiting = wait_in_thread("parents", parent_values)
settled(lambda: app.backend.health().phase == "up" and app.backend.health().waiters == 2)
parent_link = app.backend.consumer._link
from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()
pid = os.fork()
if pid == 0:
    childs_reply_to = getattr(app.backend, "reply_to", "")
    child_values = []
    child_waiting = wait_in_thread("childs", child_values)
    settled(lambda: app.backend.health().waiters == 1)
    os.write(to_parent, childs_reply_to.encode() or b"-")
    child_waiting.join(30)
    told = {
        "values": child_values,
        "has_own_link": app.backend.consumer._link is not parent_link,
        "has_own_queue": childs_reply_to != reply_to,
        "waiters": app.backend.health().waiters,
    }
    os.write(to_parent, json.dumps(told).encode())
    END
childs_reply_to = os.read(from_child, 1000).decode()
app.backend.store_result("childs", "for the child", reply_to=childs_reply_to)
child = json.loads(os.read(from_child, 10000))
_, status = os.waitpid(pid, 0)
before = list(parent_values)
link_is_the_same = app.backend.consumer._link is parent_link
app.backend.store_result("parents", "for the parent", reply_to=reply_to)
app.backend.store_result("watched", "for whoever holds it", reply_to=reply_to)
waiting.join(30)
print(json.dumps({
    "child": child,
    "status": status,
    "before": before,
    "after": parent_values,
    "watched": watched.get(timeout=30),
    "link_is_the_same": link_is_the_same,
    "last_error": app.backend.health().last_error,
}))
app.close()
"""
#: How a child may end; those of multiprocessing end at once, and have a test of their own.
ENDS = {"as programs do": "sys.exit(0)", "closed": "app.close(); sys.exit(0)"}


@pytest.fixture(params=["redis", "rpc"])
def places(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A broker, and where results are: in it, or as messages of it."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        return url, url
    return request.getfixturevalue("amqp_url"), "rpc://"


@pytest.mark.parametrize("end", ENDS)
def test_r17_a_forked_child_has_a_link_of_its_own_and_the_parents_is_left_alone(
    places: tuple[str, str], end: str
) -> None:
    told = run(FORKED.replace("END", ENDS[end]), *places)

    child = told.pop("child")
    assert told == {
        "status": 0,
        "before": [],
        "after": ["for the parent"],
        "watched": "for whoever holds it",
        "link_is_the_same": True,
        "last_error": None,
    }
    assert child["values"] == ["for the child"]
    assert child["waiters"] == 0
    assert child["has_own_link"]
    assert child["has_own_queue"] == (places[1] == "rpc://")


def test_r17_a_forked_child_drops_what_the_parent_watched_without_harm(redis_url: str) -> None:
    code = """
        import gc
        held = app.backend.add_pending_results([app.AsyncResult(str(number)) for number in range(100)])
        settled(lambda: app.backend.health().phase == "up")
        pid = os.fork()
        if pid == 0:
            held.clear()
            gc.collect()
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        for result in held:
            app.backend.store_result(result.id, result.id)
        settled(lambda: not any(result.is_pending for result in held))
        print(json.dumps([status, len(held), app.backend.health().last_error]))
    """

    assert run(code, redis_url, redis_url) == [0, 100, None]


def test_r17_the_children_of_multiprocessing_wait_for_results_of_their_own(redis_url: str) -> None:
    code = """
        from multiprocessing import get_context

        def wait(task_id):
            return app.AsyncResult(task_id).get(timeout=30)

        if __name__ == "__main__":
            app.backend.store_result("first", "first")
            ids = [str(number) for number in range(20)]
            wait("first")
            with get_context("fork").Pool(4) as pool:
                waiting = pool.map_async(wait, ids, chunksize=1)
                for task_id in ids:
                    app.backend.store_result(task_id, task_id)
                values = waiting.get(30)
            print(json.dumps(values == ids))
    """

    assert run(code, redis_url, redis_url) is True


# -- greenlets


def test_greenlets_of_gevent_wait_for_messages_and_others_go_on_meanwhile(amqp_url: str) -> None:
    done = run_program(GEVENT + START + SPAWN[GEVENT] + MANY + REPORT, amqp_url, "rpc://")

    assert done.stderr == ""
    assert json.loads(done.stdout) == MANY_WENT_WELL | {"drainer": "GeventDrainer"}


def test_r6_greenlets_that_wait_for_long_do_not_spin(redis_url: str) -> None:
    code = """
        from gevent import spawn, sleep
        from celeriac.transport import redis_results
        waits, wait_for = [0], redis_results.wait_for

        def count(files, timeout):
            waits[0] += 1
            return wait_for(files, timeout)

        redis_results.wait_for = count
        greenlets = [spawn(app.AsyncResult(str(number)).get, timeout=30) for number in range(20)]
        while app.backend.health().waiters < 20 or app.backend.health().phase != "up":
            sleep(0.01)
        sleep(1)  # long enough for many thousands, if it spins
        app.backend.store_result("0", "through")
        print(json.dumps([waits[0] < 1000, greenlets[0].get()]), flush=True)
        os._exit(0)
    """

    done = run_program(GEVENT + START + dedent(code), redis_url, redis_url)

    assert json.loads(done.stdout) == [True, "through"]


def test_greenlets_wait_for_results_although_nothing_is_patched(redis_url: str) -> None:
    code = """
        from gevent import spawn, sleep
        app = Celeriac(broker, backend=backend, environ={}, result_drainer="gevent", **options)
        ticks = [0]

        def store():
            while app.backend.health().waiters == 0 or ticks[0] < 10:
                ticks[0] += 1
                sleep(0.001)
            app.backend.store_result("a", 42)

        spawn(store)
        first = app.AsyncResult("a").get()
        # With nothing else to do in this thread.

        def store_from_thread():
            settled(lambda: app.backend.health().waiters == 1)
            app.backend.store_result("b", 43)

        Thread(target=store_from_thread, daemon=True).start()
        second = app.AsyncResult("b").get()
        print(json.dumps([first, second]))
        app.close()
    """

    assert run(code, redis_url, redis_url) == [42, 43]


# -- the end of a program

THREADS = """
values = []
for number in range(100):
    wait_in_thread(str(number), values)
settled(lambda: app.backend.health().waiters == 100)
"""
HELD = """
held = app.backend.add_pending_results([app.AsyncResult(str(number)) for number in range(100)])
cycle = [held]
cycle.append(cycle)
app.AsyncResult("a").then(print)
app.AsyncResult("b").then(print, on_error=bool)
settled(lambda: app.backend.health().watched == 102)
"""
LOOPS = """
import asyncio

async def wait():
    waits = [asyncio.ensure_future(app.AsyncResult(str(number)).get()) for number in range(20)]
    while app.backend.health().waiters < 20:
        await asyncio.sleep(0.001)

async def wait_for_ever():
    await app.AsyncResult("a").get()

asyncio.run(wait())
Thread(target=lambda: asyncio.run(wait_for_ever()), daemon=True).start()
settled(lambda: app.backend.health().waiters == 1)
"""
SUDDEN = """
wait_in_thread("a", [])
del app
"""


@pytest.mark.parametrize("code", [THREADS, HELD, LOOPS, SUDDEN], ids=["threads", "held", "loops", "sudden"])
def test_a_program_that_ends_says_nothing(redis_url: str, code: str) -> None:
    done = run_program(START + code, redis_url, redis_url)

    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == 0


@pytest.mark.parametrize("code", [THREADS, HELD], ids=["threads", "held"])
def test_a_program_without_its_result_store_prints_one_warning(code: str) -> None:
    until_logged = "settled(lambda: app.backend.health().last_error)"

    done = run_program(START + code + until_logged, NOWHERE, NOWHERE)

    [line] = done.stderr.splitlines()
    assert line.startswith("results: no connection to the result store: ")
    assert (done.stdout, done.returncode) == ("", 0)


def test_a_program_that_waits_for_messages_ends_quietly_and_takes_its_queue_with_it(amqp_url: str) -> None:
    code = """
        values = []
        print(json.dumps(app.backend.reply_to), flush=True)
        for number in range(20):
            wait_in_thread(str(number), values)
        settled(lambda: app.backend.health().waiters == 20)
    """

    reply_to = run(code, amqp_url, "rpc://")

    with Connection(amqp_url) as link, pytest.raises(link.channel_errors):
        link.channel().queue_declare(reply_to, passive=True)


@pytest.mark.parametrize("patch", [GEVENT, EVENTLET], ids=["gevent", "eventlet"])
def test_a_program_of_greenlets_that_ends_says_nothing(redis_url: str, patch: str) -> None:
    code = """
        greenlets = [spawn(app.AsyncResult(str(number)).get) for number in range(20)]
        held = app.backend.add_pending_result(app.AsyncResult("held"))
        while app.backend.health().waiters < 21:
            sleep(0.001)
    """

    done = run_program(patch + START + SPAWN[patch] + dedent(code), redis_url, redis_url)

    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == 0
