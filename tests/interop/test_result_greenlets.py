"""Every way results come and go lets other greenlets run while it waits."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.testing.brokers import RabbitServer, RedisServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server that the program stops and lets go on."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def rabbit() -> Iterator[RabbitServer]:
    """Another one."""
    with RabbitServer() as server:
        yield server


@pytest.mark.parametrize("order", ["early", "late"])
@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_results_come_and_go_in_greenlets(
    redis: RedisServer, rabbit: RabbitServer, library: str, order: str
) -> None:
    with redis.client() as client:
        client.flushdb()

    done = subprocess.run(  # noqa: S603 - our own program
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.greenlets", library, order),
            *(redis.url, rabbit.url, str(redis.pid), str(rabbit.pid)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["check_redis_link", "check_store", "check_messages"]
