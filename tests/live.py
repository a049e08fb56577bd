"""Fixtures with real brokers and real Celery workers, for every folder of tests.

Brokers are started by the first test that asks for one. A Redis that a test stops, kills
or fills must be its own: ``own_redis``. A RabbitMQ takes five CPU seconds to start, so all processes share
one (``tests.kit.rabbit``), and the tests that stop or kill one use the same, one after the other:
``hurt_rabbit``.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from celeriac.errors import ImproperlyConfigured
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleryWorker
from celeriac.testing.rabbit import RabbitNode

PEERS = ("5.6", "5.7")
#: What takes long is tried in all its forms by ``make soak``, and in a few of them before a change lands.
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
#: For what does not hang on the version of Celery: the newest, but in ``make soak`` each.
NEWEST = PEERS if IS_LONG else PEERS[-1:]
PEER_APP = Path(__file__).parent / "peers" / "app.py"

_ROOT = Path(__file__).parents[1]
_numbers = count()


def peer(version: str) -> Path:
    """Return the interpreter that has Celery of a version, for tests that mix versions."""
    python = _ROOT / ".peers" / f"celery{version.replace('.', '')}" / "bin" / "python"
    if not python.exists():
        raise ImproperlyConfigured(f"no environment with Celery {version}: run scripts/setup-tests")
    return python


@pytest.fixture(params=PEERS)
def peer_python(request: pytest.FixtureRequest) -> Path:
    """Run the test with each version of Celery: the interpreter that has it."""
    return peer(request.param)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis server that tests share; see ``redis_url``."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis server that the test may do anything to."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def rabbit_to_hurt() -> Iterator[RabbitServer]:
    """The RabbitMQ server that one test after the other kills, stops and starts; see ``hurt_rabbit``."""
    with RabbitServer() as server:
        yield server


@pytest.fixture
def hurt_rabbit(rabbit_to_hurt: RabbitServer) -> RabbitServer:
    """A RabbitMQ server that the test may kill and stop; it runs, and its first virtual host is empty."""
    return revived(rabbit_to_hurt)


def revived(server: RabbitServer) -> RabbitServer:
    """Have a server run, whatever was done to it, with nothing in its first virtual host."""
    if not server.is_alive:
        server.start()
    server.delete_vhost("/")
    server.add_vhost("/")
    return server


def empty_database(server: RedisServer) -> str:
    """Return the URL of an empty database of a server.

    Another one each time: what a test leaves behind may go on writing to its own.
    """
    database = next(_numbers) % 64
    with server.client(database) as client:
        client.flushdb()
    return server.url_of(database)


@contextmanager
def new_vhost(server: RabbitNode) -> Iterator[str]:
    """Make a virtual host of a server for this context, and return its URL."""
    vhost = f"test-{os.getpid()}-{next(_numbers)}"
    server.add_vhost(vhost)
    yield server.url_of(vhost)
    server.delete_vhost(vhost)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty database of the shared Redis."""
    return empty_database(redis_server)


@pytest.fixture
def amqp_url(rabbit_server: RabbitNode) -> Iterator[str]:
    """A fresh virtual host of the shared RabbitMQ."""
    with new_vhost(rabbit_server) as url:
        yield url


class StartWorker(Protocol):
    """Starts a worker that ends with the test; the options are those of ``CeleryWorker``."""

    def __call__(self, python: Path, url: str, *, app: Path = PEER_APP, **options: Any) -> CeleryWorker:
        """Return the worker once it takes tasks."""


@pytest.fixture
def celery_worker() -> Iterator[StartWorker]:
    """A function that starts real workers with the app of ``tests/peers``.

    The result backend is the broker, unless one is named.
    """
    with ExitStack() as stack:

        def start(python: Path, url: str, *, app: Path = PEER_APP, **options: Any) -> CeleryWorker:
            options.setdefault("backend", url if url.startswith("redis") else "rpc://")
            worker = CeleryWorker(python, app, url=url, **options)
            stack.callback(_end, worker)
            worker.start()
            return worker

        yield start


def _end(worker: CeleryWorker) -> None:
    """End a worker at once, and print its log: pytest shows it if the test failed."""
    worker.kill()
    print(worker.log())
    worker.close()
