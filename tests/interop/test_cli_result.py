"""``celeriac result`` at work: a real Redis, results that real Celery workers stored, real signals."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.console import Console
from tests.interop.conftest import Pair, paired
from tests.live import PEERS
from tests.program import Program, run_program

PATIENCE = 60.0


@dataclass(frozen=True)
class Shop:
    """A version of Celery on Redis, with a worker that runs tasks and a client that sends them."""

    pair: Pair
    worker: CeleryWorker
    client: Console

    def send(self, task: str, *arguments: object, **options: Any) -> str:
        """Send a task, and return its id."""
        task_id: str = self.client.ask("send", name=f"peers.{task}", args=arguments, **options)
        return task_id


@pytest.fixture(scope="module", params=PEERS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with (
        paired(request, request.param, "redis") as pair,
        pair.worker() as worker,
        pair.console() as client,
    ):
        yield Shop(pair, worker, client)


def run(task_id: str, backend: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return run_program("result", task_id, "--backend", backend, *options)


def told(task_id: str, backend: str, *options: str) -> Any:
    """Return the document that the command writes."""
    return json.loads(run(task_id, backend, "--json", *options).stdout)


# -- what real workers stored


def test_a_wait_ends_with_what_the_task_returned(shop: Shop) -> None:
    done = run(shop.send("add", 1, 2), shop.pair.backend, "--wait", "--timeout", "30")

    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (lines["state"], lines["value"]) == ("SUCCESS", "3")
    assert lines["ended"].startswith("20")
    assert done.stderr == ""


def test_a_task_that_failed_is_told_with_class_message_and_trace(shop: Shop) -> None:
    task_id = shop.send("fail", "out of\x1b[31m stock")

    done = run(task_id, shop.pair.backend, "--wait", "--timeout", "30")
    document = told(task_id, shop.pair.backend)

    assert done.returncode == 1
    assert "error      ValueError\n" in done.stdout
    assert "message    out of\\x1b[31m stock\n" in done.stdout
    assert "traceback\n  Traceback (most recent call last):\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert document["result"] == {
        "exc_type": "ValueError",
        "exc_message": ["out of\x1b[31m stock"],
        "exc_module": "builtins",
    }


def test_a_task_that_expired_is_told_as_revoked(shop: Shop) -> None:
    task_id = shop.send("add", 1, 1, countdown=1.0, expires=0.5)

    done = run(task_id, shop.pair.backend, "--wait", "--timeout", "30")

    assert done.returncode == 1
    assert "state    REVOKED\n" in done.stdout
    assert "TaskRevokedError" in done.stdout


def test_a_task_that_runs_is_known_until_it_is_ended(shop: Shop) -> None:
    task_id = shop.send("sleep_for", 600)
    try:
        assert wait_until(lambda: told(task_id, shop.pair.backend)["state"] == "STARTED", patience=PATIENCE)
        now = run(task_id, shop.pair.backend)
        late = run(task_id, shop.pair.backend, "--wait", "--timeout", "0.1", "--json")
    finally:
        shop.client.ask("broadcast", command="revoke", arguments={"task_id": task_id, "terminate": True})
    end = run(task_id, shop.pair.backend, "--wait", "--timeout", "30")

    assert (now.returncode, late.returncode, end.returncode) == (0, 69, 1)
    assert "state  STARTED\n" in now.stdout
    assert json.loads(late.stdout)["ready"] is False
    assert "within 0.1 s" in late.stderr
    assert "state    REVOKED\n" in end.stdout


def test_an_id_of_which_nothing_is_known_is_told_so(shop: Shop) -> None:
    now = run("no-such-id", shop.pair.backend)
    late = run("no-such-id", shop.pair.backend, "--wait", "--timeout", "0.2")

    assert now.returncode == 0
    assert "PENDING: no result stored for this id" in now.stdout
    assert late.returncode == 69
    assert "no-such-id" in late.stderr


def test_the_children_of_a_task_are_told(shop: Shop) -> None:
    then_add: dict[str, Any] = {
        "task": "peers.add",
        "args": [1],
        "kwargs": {},
        "options": {},
        "subtask_type": None,
    }
    task_id = shop.send("add", 1, 1, link=then_add)

    document = told(task_id, shop.pair.backend, "--wait", "--timeout", "60")
    (child,) = document["children"]
    of_the_child = told(child["id"], shop.pair.backend, "--wait", "--timeout", "60")

    assert of_the_child["result"] == 3
    assert of_the_child["task_id"] != task_id


# -- what a store can do to us


def running(*arguments: str) -> Program:
    """Run the command meanwhile; it is killed at the end of the context if it has not ended by then."""
    return Program("result", *arguments)


def listens(server: RedisServer) -> bool:
    """Tell whether somebody waits to be told of a result."""
    with server.client() as client:
        return bool(client.pubsub_channels("celery-task-meta-*"))


def test_ctrl_c_ends_a_wait_with_one_line(own_redis: RedisServer) -> None:
    with running("t1", "--backend", own_redis.url, "--wait") as waiting:
        assert wait_until(lambda: listens(own_redis), patience=PATIENCE)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=PATIENCE)

    assert waiting.returncode == 130
    assert out == ""
    assert err.startswith("stopped waiting: PENDING after ")
    assert len(err.splitlines()) == 1


def test_a_wait_outlives_a_restart_of_the_store(own_redis: RedisServer) -> None:
    app = Celeriac(backend=own_redis.url, environ={})
    with running("t1", "--backend", own_redis.url, "--wait", "--timeout", "60") as waiting:
        assert wait_until(lambda: listens(own_redis), patience=PATIENCE)
        own_redis.kill()
        own_redis.start()
        app.backend.store_result("t1", "after all")
        out, err = waiting.communicate(timeout=PATIENCE)

    app.close()
    assert waiting.returncode == 0, err
    assert '"after all"' in out


def test_a_store_that_goes_away_for_good_is_told_when_the_time_has_passed(own_redis: RedisServer) -> None:
    with running("t1", "--backend", own_redis.url, "--wait", "--timeout", "3") as waiting:
        assert wait_until(lambda: listens(own_redis), patience=PATIENCE)
        own_redis.kill()
        _, err = waiting.communicate(timeout=PATIENCE)

    assert waiting.returncode == 69
    assert "within 3 s" in err
    assert "last error of the result connection" in err


def test_a_store_that_refuses_us_is_one_line_and_code_77(own_redis: RedisServer) -> None:
    own_redis.configure("requirepass", "hush")

    refused = run("t1", f"redis://:wrong@127.0.0.1:{own_redis.port}/0")

    assert refused.returncode == 77, refused.stderr
    assert "wrong" not in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_result_that_cannot_be_read_is_told_with_what_to_do(
    redis_url: str, redis_server: RedisServer
) -> None:
    with redis_server.client(int(redis_url.rpartition("/")[2])) as client:
        client.set("celery-task-meta-t1", b"\x80\x04}.")

    done = run("t1", redis_url, "--wait")

    assert done.returncode == 1
    assert "set result_serializer to json on the workers" in done.stdout


def test_on_a_terminal_the_state_is_told_while_it_waits_and_the_line_goes_away(
    own_redis: RedisServer,
) -> None:
    app = Celeriac(backend=own_redis.url, environ={})
    terminal, inside = pty.openpty()
    with Program("result", "t1", "--backend", own_redis.url, "--wait", stderr=inside) as waiting:
        os.close(inside)
        shown = _read_until(terminal, "s, PENDING")
        assert wait_until(lambda: listens(own_redis), patience=PATIENCE)
        app.backend.store_result("t1", {"done": 50}, "\x1bPROGRESS")
        shown += _read_until(terminal, "PROGRESS")
        app.backend.store_result("t1", 7)
        out, _ = waiting.communicate(timeout=PATIENCE)
        shown += _read_until(terminal, None)

    os.close(terminal)
    app.close()
    assert waiting.returncode == 0
    assert "value  7\n" in out
    assert "\x1b" not in shown
    assert shown.rpartition("\r")[0].rstrip(" ").endswith("\r")


def _read_until(terminal: int, told: str | None) -> str:
    """Read what a terminal shows until it shows a text, or to its end."""
    shown = ""
    deadline = monotonic() + PATIENCE
    while (told is None or told not in shown) and monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            shown += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # the other side is gone
            break
    return shown
