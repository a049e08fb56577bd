"""Statements on leader election among real workers of Celery, which ask no arbiter, and ours."""

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from celeriac.app import Celeriac
from celeriac.errors import CallerError
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker, CeleryWorker
from celeriac.testing.rabbit import RabbitNode
from tests.fleet import OUR_APP, PATIENCE, Worker, come_true, running
from tests.interop.conftest import BROKERS
from tests.live import IS_LONG, PEER_APP, peer
from tests.watcher import Watcher

ELECTIONS = 5
ALLOWED = {"CELERIAC_ELECTION_ACTIONS": "peers.*"}


@dataclass
class Cluster:
    """Workers of both kinds that know each other, and a client of ours."""

    app: Celeriac
    watcher: Watcher
    celery: list[CeleryWorker]
    ours: list[CeleriacWorker]

    @property
    def workers(self) -> list[Worker]:
        return [*self.celery, *self.ours]

    def know_each_other(self) -> bool:
        names = [each.hostname for each in self.workers]
        return all(
            all(line.format(name) in worker.log() for name in names if name != worker.hostname)
            for workers, line in ((self.celery, "{} joined the party"), (self.ours, "gossip: node {} joined"))
            for worker in workers
        )

    def runs(self) -> Counter[str]:
        """Return how often each task came to a worker."""
        return Counter(str(event["uuid"]) for event in self.watcher.of_type("task-received"))


@contextmanager
def clustered(
    request: pytest.FixtureRequest, broker: str, versions: tuple[str, ...], ours: int
) -> Iterator[Cluster]:
    """Have a cluster on a broker of its own."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer({"appendonly": "yes", "appendfsync": "everysec"}))
        url, backend = redis.url, redis.url_of(1)
        if broker == "amqp":
            rabbit: RabbitNode = request.getfixturevalue("rabbit_server")
            vhost = f"mixed-elections-{secrets.token_hex(4)}"
            rabbit.add_vhost(vhost)
            stack.callback(rabbit.delete_vhost, vhost)
            url = rabbit.url_of(vhost)
        celery = [
            CeleryWorker(
                peer(version),
                PEER_APP,
                url=url,
                backend=backend,
                hostname=f"c{number}@celery",
                pool="solo",
                arguments=("--loglevel", "DEBUG"),
            )
            for number, version in enumerate(versions)
        ]
        mine = [
            CeleriacWorker(OUR_APP, url=url, backend=backend, hostname=f"o{number}@ours", environment=ALLOWED)
            for number in range(ours)
        ]
        app = Celeriac(url, backend, environ={})
        stack.callback(app.close)
        stack.enter_context(running(*celery, *mine))
        watcher = stack.enter_context(Watcher(app))
        cluster = Cluster(app, watcher, celery, mine)
        assert come_true(cluster.know_each_other), "they did not meet"
        yield cluster


@pytest.mark.parametrize("broker", BROKERS if IS_LONG else ["amqp"])
def test_059_three_celery_workers_elect_one_of_them_and_ours_follow(
    request: pytest.FixtureRequest, broker: str
) -> None:
    """With three workers of Celery each election runs its task once, no worker exits, and ours follow."""
    with clustered(request, broker, ("5.6", "5.7", "5.7"), 2) as cluster:
        results = [
            # Those who can be elected are counted once: that takes all the time it is given.
            cluster.app.signature("peers.add", (number, 1)).election(
                id=f"e{number}", timeout=10.0, force=number > 0
            )
            for number in range(ELECTIONS)
        ]
        values = [result.get(timeout=PATIENCE) for result in results]
        followed = come_true(
            lambda: all(each.log().count("ended (following)") == ELECTIONS for each in cluster.ours)
        )

        assert values == [number + 1 for number in range(ELECTIONS)]
        assert followed
        assert come_true(lambda: all(cluster.runs()[result.id] for result in results))
        assert [cluster.runs()[result.id] for result in results] == [1] * ELECTIONS
        assert [each.log().count("won by this node") for each in cluster.ours] == [0, 0]
        assert [each.errors() for each in cluster.workers] == [[]] * 5
        assert all(each.is_alive for each in cluster.workers)


@pytest.mark.differs("Elections with one or two Celery workers are refused")
@pytest.mark.parametrize("broker", BROKERS if IS_LONG else ["redis"])
def test_060_an_election_with_few_celery_workers_is_refused(
    request: pytest.FixtureRequest, broker: str
) -> None:
    """An election is held however few workers there are; among one or two it can stop workers of Celery."""
    with clustered(request, broker, ("5.7",), 1) as cluster:
        (ours,) = cluster.ours
        signature = cluster.app.signature("peers.add", (2, 3), queue="nobody")

        with pytest.raises(
            CallerError, match=r"fewer than 3 Celery workers can crash them, and 1 answered.*force"
        ):
            signature.election(id="refused", timeout=10.0)
        signature.election(id="forced", force=True)
        over = come_true(lambda: "election forced: ended" in ours.log())

        assert over
        # Sent before the other, and never: the log has come as far as that.
        assert "election refused" not in ours.log()
        assert "'refused'" not in ours.log()
        assert ours.is_alive
        assert ours.errors() == []
        assert cluster.app.control.inspect([ours.hostname], timeout=PATIENCE).ping()
