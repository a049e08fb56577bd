"""The command line at work: real brokers, real Celery workers, real signals, nothing left behind."""

import json
import re
import signal
from collections.abc import Iterator

import pytest

from celeriac.app import Celeriac
from celeriac.errors import CeleriacError
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.live import NEWEST, PEER_APP, StartWorker, peer
from tests.program import Program, run_program

PATIENCE = 120.0


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


def first_line(process: Program) -> str:
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
