"""Every test with real peers runs with each version of Celery, and on each broker."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cronsim
import hiredis
import msgspec
import pytest

import celeriac
from celeriac.app import Celeriac
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from celeriac.testing.rabbit import RabbitNode
from tests.console import Console
from tests.live import IS_LONG, PEER_APP, PEERS, peer

BROKERS = ("redis", "amqp")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to be put on the path of peers, which have Celery and no Celeriac: that, and what it needs."""
    folder = tmp_path_factory.mktemp("library")
    for module in (celeriac, cronsim, hiredis, msgspec):
        assert module.__file__ is not None
        place = Path(module.__file__).parent
        (folder / place.name).symlink_to(place)
    return folder


@dataclass(frozen=True)
class Pair:
    """A version of Celery and a broker."""

    version: str
    broker: str
    python: Path
    #: The broker, empty and of our own.
    url: str
    #: Where results are kept: Redis, because RabbitMQ keeps none for a second reader.
    backend: str

    def app(self) -> Celeriac:
        """Return an app of ours on the broker."""
        return Celeriac(self.url, environ={})

    @contextmanager
    def worker(self, *arguments: str, **options: Any) -> Iterator[CeleryWorker]:
        """Run a worker of Celery; at the end it is killed, which is quicker than to stop it."""
        worker = CeleryWorker(
            self.python, PEER_APP, url=self.url, backend=self.backend, arguments=arguments, **options
        )
        try:
            worker.start()
            yield worker
        finally:
            worker.kill()
            print(worker.log())  # pytest shows it if the test failed
            worker.close()

    def console(self) -> Console:
        """Return a client of Celery, not yet started."""
        return Console(self.python, url=self.url, backend=self.backend)


@contextmanager
def paired(request: pytest.FixtureRequest, version: str, broker: str) -> Iterator[Pair]:
    """Have a version of Celery and a broker, empty and of our own."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        url = redis.url
        if broker == "amqp":
            rabbit: RabbitNode = request.getfixturevalue("rabbit_server")
            vhost = f"interop-{secrets.token_hex(4)}"
            rabbit.add_vhost(vhost)
            stack.callback(rabbit.delete_vhost, vhost)
            url = rabbit.url_of(vhost)
        yield Pair(version, broker, peer(version), url, redis.url_of(1))


#: Each version of Celery and each broker; in ``make soak`` each version on each broker.
PAIRS = (
    [(peer, broker) for broker in BROKERS for peer in PEERS]
    if IS_LONG
    else list(zip(PEERS, BROKERS, strict=True))
)


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Run the test with each version of Celery, and on each broker; the tests of a file share both."""
    with paired(request, *request.param) as pair:
        yield pair
