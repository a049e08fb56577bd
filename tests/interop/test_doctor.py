"""``celeriac doctor`` on real clusters: a healthy one passes, and each fault is named with its fix."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its types are another package

from celeriac.app import Celeriac
from celeriac.node.identity import machine_name
from celeriac.testing.brokers import RedisServer
from tests.live import StartWorker, peer
from tests.program import CELERIAC, own_environment, run_program
from tests.tidy.repository import ROOT, blocks

TIMEOUT = 120.0
#: Long enough for a busy machine; it ends as soon as all is known.
LISTEN = ("--listen", "60", "--timeout", "5")
#: Python runs it before all else: the clock of this machine is 75 seconds late.
LATE_CLOCK = """
import time
real = time.time
time.time = lambda: real() - 75
"""


@contextmanager
def load(url: str) -> Iterator[None]:
    """Have a task run now and then, as on any cluster that is used."""
    ending = Flag()
    client = Celeriac(url, environ={})

    def send() -> None:
        while not ending.wait(0.2):
            client.send_task("peers.add", (1, 2))

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        client.close()


def examine(url: str, cwd: Path, *options: str, code: int) -> dict[str, dict[str, Any]]:
    """Run doctor, and return its findings by name."""
    result = run_program("doctor", "-b", url, "--json", *options, cwd=cwd, timeout=TIMEOUT * 2)

    assert result.returncode == code, result.stdout + result.stderr
    return {each["name"]: each for each in json.loads(result.stdout)}


def failed(report: dict[str, dict[str, Any]]) -> set[str]:
    """Return the names of the checks that failed, each of which has a reason and a fix."""
    found = {name for name, each in report.items() if each["status"] == "failed"}
    assert all(report[name]["reason"] and report[name]["fix"] for name in found)
    return found


def test_a_healthy_cluster_on_redis_passes(celery_worker: StartWorker, tmp_path: Path) -> None:
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        worker = celery_worker(peer("5.7"), server.url, events=True)
        with load(server.url):
            report = examine(server.url, tmp_path, *LISTEN, code=0)

    assert failed(report) == set()
    assert report["workers"]["nodes"] == [worker.hostname]
    assert report["task events"]["value"] == f"on: {worker.hostname}"
    assert report["durability"]["value"].startswith("level L3 (required: L2)")
    assert report["broker"]["value"].startswith("Redis ")


def test_each_fault_of_a_bad_cluster_on_redis_is_named_with_its_fix(
    own_redis: RedisServer, celery_worker: StartWorker, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LATE_CLOCK)
    worker = celery_worker(
        peer("5.7"), own_redis.url, events=False, environment={"PYTHONPATH": str(tmp_path)}
    )

    with load(own_redis.url):
        report = examine(own_redis.url, tmp_path, "--listen", "5", "--timeout", "5", code=1)

        assert failed(report) == {"task events", "clock skew", "durability"}
        assert report["task events"]["nodes"] == [worker.hostname]
        assert f"{worker.hostname} is 75" in report["clock skew"]["value"]
        assert report["clock skew"]["nodes"] == [worker.hostname]
        assert report["durability"]["fix"] == f"redis-cli -u {own_redis.url} CONFIG SET appendonly yes"

        # The fixes do what they say.
        fix = shlex.split(report["task events"]["fix"], comments=True)
        done = run_program(*fix[1:], "-b", own_redis.url, "--yes", "--timeout", "60")
        assert (fix[0], done.returncode) == ("celeriac", 0)
        own_redis.configure("appendonly", "yes")
        after = examine(own_redis.url, tmp_path, *LISTEN, code=1)

    assert failed(after) == {"clock skew"}


def test_a_wrong_number_of_the_database_is_named_with_the_right_one(
    own_redis: RedisServer, celery_worker: StartWorker, tmp_path: Path
) -> None:
    celery_worker(peer("5.7"), own_redis.url_of(3))

    report = examine(own_redis.url_of(5), tmp_path, "--listen", "0", "--timeout", "1", code=1)

    assert "workers are in database 3 of this Redis" in report["workers"]["reason"]
    assert report["workers"]["fix"] == f"celeriac doctor --broker {own_redis.url_of(3)}"


def test_what_the_user_of_redis_may_not_do_is_named(own_redis: RedisServer, tmp_path: Path) -> None:
    with own_redis.client() as client:
        client.acl_setuser(
            "mon", enabled=True, passwords=["+hush"], keys=["*"], channels=["*"],
            commands=["+@all", "-info", "-config", "-eval"],
        )  # fmt: skip
    url = f"redis://mon:hush@127.0.0.1:{own_redis.port}/0"

    report = examine(url, tmp_path, "--listen", "0", "--timeout", "0.5", code=1)

    assert {"permissions"} <= failed(report)
    assert report["permissions"]["value"].startswith("refused: INFO, CONFIG GET, EVAL")
    assert "hush" not in json.dumps(report)


def test_a_healthy_cluster_on_rabbitmq_passes(
    amqp_url: str, celery_worker: StartWorker, tmp_path: Path
) -> None:
    worker = celery_worker(peer("5.7"), amqp_url, events=True)

    with load(amqp_url):
        report = examine(amqp_url, tmp_path, *LISTEN, code=0)

    assert failed(report) == set()
    assert report["task events"]["nodes"] == [worker.hostname]
    assert report["broker"]["value"].startswith("RabbitMQ ")


def test_events_that_are_off_on_rabbitmq_are_named_with_their_fix(
    amqp_url: str, celery_worker: StartWorker, tmp_path: Path
) -> None:
    worker = celery_worker(peer("5.7"), amqp_url, events=False)

    with load(amqp_url):
        report = examine(amqp_url, tmp_path, "--listen", "5", "--timeout", "5", code=1)

    assert failed(report) == {"task events"}
    assert report["task events"]["fix"].startswith(f"celeriac control enable-events -d {worker.hostname}")


@pytest.mark.parametrize(("change", "code"), [("/nowhere", 77), (":wrong@", 77)])
def test_a_broker_that_refuses_the_user_is_named(
    change: str, code: int, amqp_url: str, tmp_path: Path
) -> None:
    head, _, _ = amqp_url.rpartition("/")
    url = f"{head}{change}" if change[0] == "/" else f"{head.replace(':guest@', change)}/"

    report = examine(url, tmp_path, code=code)

    assert failed(report) == {"broker"}
    assert report["broker"]["fix"].startswith("correct user, password and virtual host")


def test_every_command_of_the_page_does_what_it_says(celery_worker: StartWorker, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "check-a-cluster.md").read_text()
    shell = [line for block in blocks(page) if block.language == "sh" for line in block.code.splitlines()]
    (kubernetes,) = [yaml.safe_load(block.code) for block in blocks(page) if block.language == "yaml"]
    commands = [line for line in shell if line.startswith("celeriac ")]
    assert {line.split()[1] for line in commands} == {"doctor", "probe", "control"}
    assert len(commands) == len(shell) - 1  # the first line names the broker

    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        celery_worker(peer("5.7"), server.url, hostname=f"celery@{machine_name()}")
        environment = own_environment(CELERIAC_BROKER_URL=server.url)
        with load(server.url):
            for line in commands:
                done = run_program(*shlex.split(line)[1:], cwd=tmp_path, env=environment)
                assert done.returncode == 0, (line, done.stdout, done.stderr)

        ready = kubernetes["readinessProbe"]["exec"]["command"]
        assert run_program(*ready[1:], env=environment).returncode == 0

    *shell_command, text = kubernetes["livenessProbe"]["exec"]["command"]
    # The broker has ended: that is no reason to restart the worker.
    assert run_program(*ready[1:], env=environment).returncode == 69
    program = shlex.join([*CELERIAC])
    alive = subprocess.run(  # noqa: S603 - our own command
        [*shell_command, text.replace("celeriac", program, 1)], env=environment, check=False, timeout=TIMEOUT
    )
    assert (shell_command, alive.returncode) == (["sh", "-c"], 0)
