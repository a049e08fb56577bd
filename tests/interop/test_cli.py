"""The command line at work: real brokers, real Celery workers, real signals, nothing left behind."""

import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from celeriac.app import Celeriac
from celeriac.errors import CeleriacError
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from celeriac.testing.process import wait_until
from tests.live import IS_LONG, NEWEST, PEER_APP, StartWorker, peer
from tests.program import CELERIAC, Program, own_environment, run_program

PATIENCE = 120.0

Marked = dict[str, str]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker that the tests of this module share."""
    with RedisServer() as server:
        yield server.url


@pytest.fixture(scope="module", autouse=True)
def cluster(url: str) -> Iterator[CeleryWorker]:
    """The one worker on that broker."""
    with CeleryWorker(peer("5.7"), PEER_APP, url=url, backend=url, hostname="w1@lab") as worker:
        yield worker


@pytest.fixture
def marked() -> Marked:
    """An environment that all processes of one test have in common, and no others."""
    return own_environment(TEST_MARK=uuid4().hex)


def alive(environment: Marked) -> list[str]:
    """Return the commands of the processes that have an environment's mark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environ, command = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        if environment["TEST_MARK"].encode() in environ and int(place.name) != os.getpid():
            found.append(command.replace(b"\0", b" ").decode())
    return found


@contextmanager
def running(*arguments: str, environment: Marked, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command meanwhile, in a process that is really new: it is known by its environment."""
    with subprocess.Popen(  # noqa: S603
        [*CELERIAC, *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: Program | subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Celeriac]:
    """Who sends tasks to the worker."""
    with_results = Celeriac(url, url, environ={})
    yield with_results
    with_results.close()


def call(client: Celeriac, task: str, *arguments: object) -> object:
    """Have the worker run a task, and return its result."""
    return client.send_task(task, arguments).get(timeout=PATIENCE)


# -- one worker


def test_status_shows_a_real_worker_with_its_load_and_version(client: Celeriac, url: str) -> None:
    call(client, "peers.add", 1, 2)

    result = run_program("status", "-b", url, "-d", "w1@lab", "--json", "--timeout", "20", "--listen", "20")

    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert (row["name"], row["status"]) == ("w1@lab", "online")
    assert row["version"].startswith("py-celery 5.7")
    assert row["processed"] >= 1
    assert len(row["load"]) == 3


@pytest.mark.parametrize(
    "method",
    [
        "ping", "hello", "clock", "stats", "active", "reserved", "scheduled", "revoked", "registered",
        "active_queues", "conf", "report",
    ],
)  # fmt: skip
def test_a_real_worker_answers_every_question(url: str, method: str) -> None:
    result = run_program("inspect", method, "-b", url, "-d", "w1@lab", "--timeout", "10")

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("w1@lab:\n  ")


def test_a_real_worker_knows_its_tasks(url: str) -> None:
    registered = run_program("inspect", "registered", "-b", url, "-d", "w1@lab", "--timeout", "10", "--json")
    unknown = run_program("inspect", "query_task", "no-such-id", "-b", url, "-d", "w1@lab", "--timeout", "10")

    assert "peers.add" in json.loads(registered.stdout)["w1@lab"]
    assert unknown.returncode == 0


def test_events_of_real_tasks_are_told_as_json(client: Celeriac, url: str) -> None:
    options = ("--json", "--type", "worker-heartbeat", "--type", "task-*", "--timeout", "30")
    with Program("events", "-b", url, *options, "--limit", "8") as events:
        told = [json.loads(first_line(events))]
        call(client, "peers.retry_then_succeed")
        told += [json.loads(line) for line in events.communicate(timeout=PATIENCE)[0].splitlines()]

    assert events.returncode == 0
    assert told[0]["type"] == "worker-heartbeat"
    assert {"task-received", "task-started", "task-retried"} <= {event["type"] for event in told}
    assert {event.get("name") for event in told} <= {None, "peers.retry_then_succeed"}


def test_events_of_one_task_are_told_to_people_with_its_name(client: Celeriac, url: str) -> None:
    with Program("events", "-b", url, "--task", "peers.fail", "--limit", "3", "--timeout", "30") as events:
        # Nothing is printed before the task, so there is nothing to wait for but the summary.
        while events.poll() is None:
            call(client, "peers.add", 1, 2)
            with pytest.raises(CeleriacError, match="planned"):
                call(client, "peers.fail")
        out, err = events.communicate(timeout=PATIENCE)

    assert events.returncode == 0, err
    lines = out.splitlines()
    assert len(lines) == 3
    assert all(re.search(r"task-\w+ +\S+  peers\.fail\[[\w-]{36}\]", line) for line in lines)


def test_ctrl_c_ends_events_with_a_summary(url: str) -> None:
    with Program("events", "-b", url) as events:
        first_line(events)
        events.send_signal(signal.SIGINT)
        _, err = events.communicate(timeout=PATIENCE)

    assert events.returncode == 130
    assert re.fullmatch(r"\d+ events seen, \d+ shown; 0 refused by the gate; 0 gaps\n", err)


def test_a_reader_that_has_seen_enough_is_no_error(url: str) -> None:
    with Program("events", "-b", url) as events:
        first_line(events)
        assert events.stdout is not None
        events.stdout.close()

        assert events.wait(timeout=PATIENCE) == 0
        assert events.stderr is not None
        assert events.stderr.read() == ""


def test_a_real_worker_obeys_and_answers(url: str) -> None:
    to_it = ("-b", url, "--yes", "--timeout", "10", "-d", "w1@lab")

    limited = run_program("control", "rate_limit", "peers.ignore", "10/m", *to_it)
    refused = run_program("control", "rate_limit", "no.such.task", "10/m", *to_it)
    revoked = run_program("control", "revoke", "no-such-id", *to_it)
    beaten = run_program("control", "heartbeat", *to_it)

    assert limited.stdout == "w1@lab: new rate limit set successfully\n"
    assert (refused.returncode, refused.stdout) == (1, "w1@lab: error: unknown task\n")
    assert re.fullmatch(r"w1@lab: tasks .*no-such-id.* flagged as revoked\n", revoked.stdout)
    assert [result.returncode for result in (limited, revoked, beaten)] == [0, 0, 0]


# -- brokers


@pytest.mark.parametrize("version", NEWEST)
def test_a_worker_that_is_told_to_shut_down_does(
    version: str, redis_url: str, celery_worker: StartWorker
) -> None:
    worker = celery_worker(peer(version), redis_url, pool="solo")

    there = run_program("status", "-b", redis_url, "-d", worker.hostname, "--timeout", "20", "--listen", "0")
    sent = run_program("control", "shutdown", "-b", redis_url, "--yes")

    assert there.returncode == 0
    assert sent.returncode == 0
    assert wait_until(lambda: not worker.is_alive, patience=PATIENCE)


def test_the_commands_work_on_rabbitmq_too(amqp_url: str, celery_worker: StartWorker) -> None:
    celery_worker(peer("5.7"), amqp_url, hostname="rabbit@lab", pool="solo")

    status = run_program("status", "-b", amqp_url, "-d", "rabbit@lab", "--timeout", "20")
    events = run_program("events", "-b", amqp_url, "--json", "--limit", "1", "--timeout", "30")

    assert status.returncode == 0, status.stderr
    assert "rabbit@lab" in status.stdout
    assert json.loads(events.stdout)["hostname"] == "rabbit@lab"


def test_a_restart_of_the_broker_is_told_as_a_gap(own_redis: RedisServer) -> None:
    with Program("events", "-b", own_redis.url, "--json", "--timeout", "20") as events:
        assert wait_until(lambda: _listeners(own_redis) > 0, patience=PATIENCE)
        own_redis.restart()
        gap = json.loads(first_line(events))
        events.send_signal(signal.SIGINT)
        _, err = events.communicate(timeout=PATIENCE)

    assert gap["type"] == "cluster-gap"
    assert "GAP: events from" in err
    assert "1 gaps" in err


def _listeners(server: RedisServer) -> int:
    with server.client() as client:
        return len(client.client_list(_type="pubsub"))


def test_a_broker_that_is_not_there_is_one_line_and_code_69() -> None:
    result = run_program("events", "-b", "redis://127.0.0.1:1/0")

    assert result.returncode == 69
    assert len(result.stderr.splitlines()) == 1
    assert "name another with --broker URL" in result.stderr


def test_a_broker_that_refuses_us_is_one_line_and_code_77(own_redis: RedisServer) -> None:
    own_redis.configure("requirepass", "hush")

    result = run_program("status", "-b", f"redis://:wrong@127.0.0.1:{own_redis.port}/0")

    assert result.returncode == 77, result.stderr
    assert "wrong" not in result.stderr.partition("://")[2]


# -- up


def test_up_shows_a_cluster_of_its_own_and_leaves_nothing_behind(tmp_path: Path, marked: Marked) -> None:
    missing = {
        "task-succeeded",
        "task-failed",
        "task-retried",
        "task-progress",
        "sample.slow",
        "1 of 1 workers",
    }
    with running("up", "--plain", environment=marked, cwd=tmp_path) as up:
        greeting = line = first_line(up)
        while missing and line:
            line = first_line(up)
            missing -= {told for told in missing if told in line}
        up.send_signal(signal.SIGINT)
        _, err = up.communicate(timeout=PATIENCE)

    assert up.returncode == 0, err
    assert greeting.startswith("broker  redis://127.0.0.1:")
    assert missing == set()
    assert wait_until(lambda: alive(marked) == [], patience=PATIENCE)
    assert (tmp_path / ".celeriac" / "valkey" / "appendonlydir").is_dir()


#: How it is ended, and its code. Of a signal that it heeds, two tests beside this one tell as well.
ENDS = [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)]


@pytest.mark.parametrize(("number", "code"), ENDS if IS_LONG else ENDS[-1:])
def test_up_ends_with_all_it_started_however_it_ends(
    tmp_path: Path, marked: Marked, number: int, code: int
) -> None:
    with running("up", environment=marked, cwd=tmp_path) as up:
        assert first_line(up).startswith("broker  ")
        assert len(alive(marked)) > 4
        up.send_signal(number)

        assert up.wait(timeout=PATIENCE) == code
    assert wait_until(lambda: alive(marked) == [], patience=PATIENCE)


def test_up_that_is_interrupted_while_it_starts_leaves_nothing_behind(tmp_path: Path, marked: Marked) -> None:
    with running("up", environment=marked, cwd=tmp_path) as up:
        assert up.stderr is not None
        assert up.stderr.readline() == "starting the broker\n"
        up.send_signal(signal.SIGTERM)

        assert up.wait(timeout=PATIENCE) == 0
    assert wait_until(lambda: alive(marked) == [], patience=PATIENCE)


def test_up_on_a_terminal_fills_the_screen_and_gives_it_back(url: str) -> None:
    terminal, inside = pty.openpty()
    command = [*CELERIAC, "up", "-b", url]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(  # noqa: S603
        command, stdin=inside, stdout=inside, stderr=inside, env=environment
    ) as up:
        os.close(inside)
        shown = _read_until(terminal, "of 1 workers online")
        up.send_signal(signal.SIGINT)
        shown += _read_until(terminal, None)

    os.close(terminal)
    assert up.returncode == 0
    assert "\x1b[?1049h" in shown
    assert "\x1b[?1049l" in shown
    assert "w1@lab" in shown


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


def test_up_with_a_broker_named_starts_nothing(url: str, marked: Marked, tmp_path: Path) -> None:
    with running("up", "-b", url, "--plain", environment=marked, cwd=tmp_path) as up:
        greeting = line = first_line(up)
        started = alive(marked)
        # It begins before the worker has told of itself.
        while line and "1 of 1 workers online" not in line:
            line = first_line(up)
        up.send_signal(signal.SIGTERM)
        _, err = up.communicate(timeout=PATIENCE)

    assert up.returncode == 0, err
    assert greeting.startswith("broker  redis://")
    assert len(started) == 1
    assert "1 of 1 workers online" in line
    assert list(tmp_path.iterdir()) == []


def test_up_ends_by_itself_after_the_time_it_was_given(url: str) -> None:
    result = run_program("up", "-b", url, "--for", "0.5")

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("broker  redis://")
