"""Every way results come and go lets other greenlets run while it waits."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.testing.brokers import RabbitServer, RedisServer
from tests.live import IS_LONG

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server that the program stops and lets go on."""
    with RedisServer() as server:
        yield server


#: Which library, and whether it patches before or after all else is imported.
WAYS = [(library, order) for order in ("early", "late") for library in ("gevent", "eventlet")]


@pytest.mark.parametrize(("library", "order"), WAYS if IS_LONG else [WAYS[0], WAYS[-1]])
def test_results_come_and_go_in_greenlets(
    redis: RedisServer, hurt_rabbit: RabbitServer, library: str, order: str
) -> None:
    with redis.client() as client:
        client.flushdb()

    done = subprocess.run(  # noqa: S603 - our own program
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.greenlets", library, order),
            *(redis.url, hurt_rabbit.url, str(redis.pid), str(hurt_rabbit.pid)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["check_redis_link", "check_store", "check_messages"]
