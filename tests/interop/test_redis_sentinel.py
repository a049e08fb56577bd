"""Redis behind Sentinel: the master is found by its name, and found again when it has moved."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import find_program, wait_until
from celeriac.programs.service import Service
from celeriac.testing.brokers import RedisServer
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect
from celeriac.wire.envelope import wrap
from tests.contract import Listener, body, queue_of
from tests.links import Place, arrivals, confirm, success

EVENTS = Exchange("celeryev", "fanout", is_durable=True)
PATIENCE = 60.0


class Sentinel(Service):
    """One Sentinel, that watches over one master."""

    name = "sentinel"

    def __init__(self, master: RedisServer, *, replicas: int = 0) -> None:
        super().__init__()
        self._port = ReservedPort()
        self._master = master
        self._replicas = replicas

    @property
    def url(self) -> str:
        return f"sentinel://{LOOPBACK}:{self._port.number}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(host=LOOPBACK, port=self._port.number, decode_responses=True, socket_timeout=10)

    def master_port(self) -> int:
        """Return where the master is now."""
        with self.client() as client:
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "cluster")[1])

    def replicas(self) -> int:
        """Return how many replicas are known and well."""
        with self.client() as client:
            told = client.execute_command("SENTINEL", "REPLICAS", "cluster")
            return sum("ok" in str(replica) for replica in told)

    def close(self) -> None:
        super().close()
        self._port.release()

    def _command(self) -> list[str]:
        file: Path = self.folder / "sentinel.conf"
        file.write_text(
            f"port {self._port.number}\n"
            f"bind {LOOPBACK}\n"
            f"dir {self.folder}\n"
            f"sentinel monitor cluster {LOOPBACK} {self._master.port} 1\n"
            "sentinel down-after-milliseconds cluster 2000\n"
            "sentinel failover-timeout cluster 2000\n"
        )
        return [str(find_program("redis-server", package="redis-server")), str(file), "--sentinel"]

    def _is_ready(self) -> bool:
        try:
            return self.master_port() == self._master.port and self.replicas() == self._replicas
        except redis.RedisError:
            return False


@pytest.fixture
def sentinel(redis_server: RedisServer) -> Iterator[Sentinel]:
    """A Sentinel over the shared server."""
    with Sentinel(redis_server) as started:
        yield started


def settings_for(sentinel: Sentinel, **options: object) -> Settings:
    return Settings(
        broker_url=sentinel.url,
        broker_transport_options={"master_name": "cluster", **options},
        broker_connection_timeout=2.0,
    )


def reconnected(link: Connection) -> Connection:
    """Return a fresh link, once there is one."""
    deadline = monotonic() + PATIENCE
    while True:
        link.close()
        link = link.clone()
        try:
            link.open()
        except ConnectionLost:
            assert monotonic() < deadline
        else:
            return link


def test_the_master_is_found_by_its_name_and_used_by_the_names_of_kombu(
    sentinel: Sentinel, redis_server: RedisServer
) -> None:
    with connect(settings_for(sentinel)) as link, redis_server.client() as client, client.pubsub() as spy:
        spy.psubscribe("*celeryev*")
        assert spy.get_message(timeout=PATIENCE) is not None
        listener = Listener(link, queue_of(EVENTS, "#"))

        link.publish(EVENTS, body(1), routing_key="task.sent")

        assert listener.drain(1) == [1]
        told = spy.get_message(ignore_subscribe_messages=True, timeout=PATIENCE)
        assert told is not None
        assert told["channel"] == b"/0.celeryev/task.sent"


def test_a_master_that_nobody_knows_is_a_lost_connection(sentinel: Sentinel) -> None:
    link = connect(settings_for(sentinel, master_name="another"))

    with pytest.raises(ConnectionLost, match="another"):
        link.open()

    link.close()


def test_where_old_peers_are_spoken_to_as_well_each_message_still_comes_once(sentinel: Sentinel) -> None:
    with connect(settings_for(sentinel, sentinel_fanout_compat=True)) as link:
        both = [Listener(link, queue_of(EVENTS, key)) for key in ("#", "task.#")]

        for number in range(10):
            link.publish(EVENTS, body(number), routing_key="task.sent")
        while link.drain(0.2):
            pass

        assert [listener.numbers for listener in both] == [list(range(10))] * 2


@pytest.mark.parametrize("prefix", ["/0.", "/{db}."])
def test_where_old_peers_are_spoken_to_as_well_they_are_heard(
    sentinel: Sentinel, redis_server: RedisServer, prefix: str
) -> None:
    with connect(settings_for(sentinel, sentinel_fanout_compat=True)) as link:
        listener = Listener(link, queue_of(EVENTS, "#"))
        envelope = wrap(body(1), exchange="celeryev", routing_key="task.sent", headers={}, delivery_tag="1")

        with redis_server.client() as client:
            client.publish(f"{prefix}celeryev/task.sent", envelope)

        assert listener.drain(1) == [1]


def test_a_link_is_made_to_the_new_master_when_the_old_one_is_gone() -> None:
    options = {"shutdown-timeout": "0"}
    with (
        RedisServer(options) as master,
        RedisServer({"replicaof": f"{LOOPBACK} {master.port}", **options}) as replica,
    ):
        with master.client() as client:
            assert wait_until(lambda: client.info("replication")["connected_slaves"] == 1, patience=PATIENCE)
        with Sentinel(master, replicas=1) as sentinel:
            link = connect(settings_for(sentinel))
            link.subscribe(queue_of(EVENTS, "#"), print)

            master.kill()

            with pytest.raises(ConnectionLost):
                link.drain(PATIENCE)
            assert wait_until(lambda: sentinel.master_port() == replica.port, patience=PATIENCE)
            link = reconnected(link)
            listener = Listener(link, queue_of(EVENTS, "#"))
            link.publish(EVENTS, body(2), routing_key="task.sent")
            assert listener.drain(1) == [2]
            link.close()


# -- results


def place_by(url: str, ends: ExitStack) -> Place:
    return Place(url, ends, result_backend_transport_options={"master_name": "cluster"})


def test_results_are_kept_by_the_master(sentinel: Sentinel, redis_server: RedisServer) -> None:
    task_id = str(uuid4())
    with ExitStack() as ends:
        place = place_by(sentinel.url, ends)
        link = place.link()
        confirm(link, task_id)

        place.write(success(task_id))

        assert arrivals(link, 1) == [success(task_id)]
        with redis_server.client() as client:
            assert client.exists(f"celery-task-meta-{task_id}") == 1


def test_a_sentinel_that_hangs_holds_nobody_who_has_another(sentinel: Sentinel) -> None:
    with ExitStack() as ends, socket.create_server((LOOPBACK, 0)) as silent:
        place = place_by(f"sentinel://{LOOPBACK}:{silent.getsockname()[1]};{sentinel.url}", ends)

        found = place.store.read(["absent"], timeout=6.0)

        assert found == {}


def test_sentinels_that_hang_hold_nobody_for_longer_than_the_time_given() -> None:
    with ExitStack() as ends, socket.create_server((LOOPBACK, 0)) as silent:
        url = f"sentinel://{LOOPBACK}:{silent.getsockname()[1]}"
        place = place_by(f"{url};{url}", ends)

        with pytest.raises(ConnectionLost, match="cluster"):
            place.store.read(["absent"], timeout=0.3)
