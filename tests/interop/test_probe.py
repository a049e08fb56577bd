"""``celeriac probe`` with real workers of Celery on both brokers, a new process each time."""

import os
import signal
import subprocess

import pytest

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.live import StartWorker, peer
from tests.program import CELERIAC, own_environment

TIMEOUT = 120.0


def probe(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run a probe in a new process, and return its code and its line."""
    done = subprocess.run(  # noqa: S603 - our own command
        [*CELERIAC, "probe", *arguments],
        env=own_environment(**environment),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout or done.stderr


@pytest.fixture(params=["redis", "amqp"])
def url(request: pytest.FixtureRequest) -> str:
    """A broker of either kind."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def worker(url: str, celery_worker: StartWorker) -> CeleryWorker:
    """A worker on it."""
    return celery_worker(peer("5.7"), url)


def test_probe_follows_what_becomes_of_a_worker(url: str, worker: CeleryWorker) -> None:
    name = worker.hostname
    healthy = f"{name}: seen, answers, consumes from celery\n"
    client = Celeriac(url, environ={})

    assert probe("-d", name, "-b", url, "--timeout", "60") == (0, healthy)
    assert probe("-d", name, "--timeout=60", CELERIAC_BROKER_URL=url) == (0, healthy)
    # Any other option is read by the command itself, which goes to the broker by kombu.
    assert probe("-d", name, "-b", url, "--timeout", "60", "--debug") == (0, healthy)

    client.control.cancel_consumer("celery", [name], reply=True, timeout=60)
    # Celery: the reply comes before the consumer is cancelled.
    inspect = client.control.inspect([name], timeout=60)
    assert wait_until(lambda: inspect.active_queues() == {name: []}, patience=60)
    code, line = probe("-d", name, "-b", url, "--timeout", "60")
    assert (code, line) == (1, f"{name}: seen, answers, but consumes from no queue\n")

    os.kill(worker.pid, signal.SIGSTOP)
    code, line = probe("-d", name, "-b", url, "--timeout", "1")
    assert (code, line) == (1, f"{name}: not seen: no heartbeat and no answer within 1 s\n")


def test_probe_fails_for_another_name(url: str, worker: CeleryWorker) -> None:
    code, line = probe("-d", f"other-{worker.hostname}", "-b", url, "--timeout", "1")

    assert code == 1
    assert line.startswith(f"other-{worker.hostname}: not seen")


def test_probe_leaves_nothing_at_redis(own_redis: RedisServer, celery_worker: StartWorker) -> None:
    worker = celery_worker(peer("5.7"), own_redis.url)
    with own_redis.client() as client:
        probe("-d", worker.hostname, "-b", own_redis.url, "--timeout", "60")

        assert client.keys("*reply*") == []


def test_probe_signs_in_at_redis(own_redis: RedisServer, celery_worker: StartWorker) -> None:
    worker = celery_worker(peer("5.7"), own_redis.url_of(7))
    with own_redis.client() as client:
        client.acl_setuser(
            "mon", enabled=True, passwords=["+hu/sh"], keys=["*"], channels=["*"], commands=["+@all"]
        )
    url = f"redis://mon:hu%2Fsh@127.0.0.1:{own_redis.port}/7"

    assert probe("-d", worker.hostname, "-b", url, "--timeout", "60")[0] == 0
    code, line = probe("-d", worker.hostname, "-b", url.replace("hu%2Fsh", "wrong"), "--timeout", "1")
    assert code == 77
    assert line.startswith(
        f"error: access refused by the broker at redis://mon:**@127.0.0.1:{own_redis.port}/7: "
    )


@pytest.mark.parametrize("change", ["/nowhere", ":wrong@"])
def test_probe_tells_that_rabbitmq_refuses_the_user(change: str, amqp_url: str) -> None:
    head, _, _ = amqp_url.rpartition("/")
    url = f"{head}{change}" if change[0] == "/" else f"{head.replace(':guest@', change)}/"

    code, line = probe("-d", "w@h", "-b", url, "--timeout", "1")

    assert code == 77, line
    assert line.startswith("error: access refused by the broker at amqp://")
