"""The kit starts real servers and real workers, and leaves none of them behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Self

import psutil
import pytest
from kombu import Connection, Queue

from celeriac.errors import CallerError, CeleriacError, ImproperlyConfigured
from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from celeriac.testing.brokers import RabbitServer, RedisServer, ValkeyServer
from celeriac.testing.rabbit import RabbitNode
from tests.interop.conftest import PAIRS
from tests.live import NEWEST, StartWorker, peer

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0

#: A program with a child in its own group and one that left it, as epmd does.
FAMILY = """
sleep 1000 &
setsid sleep 1000 &
echo ready
wait
"""

#: An owner that starts a family, says where it is, and waits to be killed.
OWNER = """
import sys, time
from tests.interop.test_brokers_kit import Family
family = Family()
family.start()
print(family.folder, flush=True)
time.sleep(1000)
"""


#: A process of a parallel run: says which RabbitMQ it shares, and uses it once more before it ends.
SHARER = """
import sys
from contextlib import ExitStack
from pathlib import Path
from tests.kit.rabbit import share_rabbit
with ExitStack() as ends:
    node = share_rabbit(Path(sys.argv[1]), ends)
    print(node.address.folder, flush=True)
    sys.stdin.readline()
    print(node.evaluate("1 + 1"), flush=True)
"""


class Sharer:
    """A process that shares a RabbitMQ with those who name the same folder."""

    def __init__(self, folder: Path) -> None:
        command = (sys.executable, "-c", SHARER, str(folder))
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("end\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)


class Family(Service):
    """A program with children, that dies of SIGTERM and cares for none of them."""

    name = "family"

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"FAMILY": str(self.folder)}

    def _command(self) -> list[str]:
        return ["sh", "-c", FAMILY]

    def _is_ready(self) -> bool:
        return "ready" in self.log() and len(alive(self.folder)) == 4


class Broken(Service):
    """A program that says what is wrong and ends."""

    name = "broken"

    def _command(self) -> list[str]:
        return ["sh", "-c", "echo the disk is on fire; exit 3"]

    def _is_ready(self) -> bool:
        return False


def alive(folder: Path) -> list[int]:
    """Return the pids of those who were started with a folder in their environment or command."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in told:
            found.append(int(place.name))
    return found


@pytest.fixture
def family() -> Iterator[Family]:
    with Family() as started:
        yield started


def test_a_program_that_is_stopped_leaves_no_child_behind(family: Family) -> None:
    family.stop()

    assert alive(family.folder) == []
    assert family.folder.exists()


def test_a_program_that_is_killed_leaves_no_child_behind(family: Family) -> None:
    family.kill()

    assert alive(family.folder) == []
    assert family.folder.exists()


def test_a_program_that_was_paused_can_be_stopped(family: Family) -> None:
    family.signal(signal.SIGSTOP)

    family.stop()

    assert alive(family.folder) == []


class Careful(Service):
    """A program that ends in good order when it is asked to."""

    name = "careful"

    def _command(self) -> list[str]:
        return ["sh", "-c", 'trap "echo farewell; exit 0" TERM; echo ready; while :; do sleep 0.05; done']

    def _is_ready(self) -> bool:
        return "ready" in self.log()


def test_a_program_ends_in_good_order_though_all_of_its_group_are_told_to_end() -> None:
    with Careful() as program:
        guard = psutil.Process(program.pid).ppid()
        for pid in (guard, program.pid):
            os.kill(pid, signal.SIGTERM)

        assert wait_until(lambda: not program.is_alive, patience=PATIENCE)
        assert "farewell" in program.log()
        assert program.exit_code == 0


def test_a_program_that_dies_leaves_no_child_behind(family: Family) -> None:
    os.kill(family.pid, signal.SIGKILL)

    assert wait_until(lambda: not family.is_alive, patience=PATIENCE)
    assert alive(family.folder) == []


def test_nothing_survives_an_owner_that_is_killed() -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:  # noqa: S603
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert len(alive(folder)) == 4

        owner.kill()

        assert wait_until(lambda: not alive(folder), patience=PATIENCE)
        assert wait_until(lambda: not folder.exists(), patience=PATIENCE)


def test_a_program_that_does_not_start_shows_its_last_words() -> None:
    service = Broken()

    with pytest.raises(CeleriacError, match=r"(?s)broken exited with code 3.*the disk is on fire"):
        service.start()

    assert not service.is_alive


def test_a_missing_program_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ImproperlyConfigured, match="apt-get install redis-server"), RedisServer():
        pass


@pytest.mark.parametrize("kind", [RedisServer, ValkeyServer])
def test_redis_answers_and_comes_back_in_the_same_place_after_kill_9(kind: type[RedisServer]) -> None:
    with kind({"appendonly": "yes", "appendfsync": "always"}) as server:
        url, pid = server.url, server.pid
        with server.client() as client:
            client.set("name", "value")

        server.kill()
        assert not Path(f"/proc/{pid}").exists()
        server.start()

        assert (server.url, server.is_alive) == (url, True)
        with server.client() as client:
            assert client.get("name") == b"value"
    assert not server.folder.exists()


def test_redis_settings_hold_over_a_restart(own_redis: RedisServer) -> None:
    own_redis.configure("client-output-buffer-limit", "pubsub 1mb 1mb 0")

    own_redis.restart()

    with own_redis.client() as client:
        assert "pubsub 1048576 1048576 0" in client.config_get()["client-output-buffer-limit"]


def test_redis_connections_of_a_kind_can_be_closed(own_redis: RedisServer) -> None:
    with own_redis.client() as client, client.pubsub() as listener:
        listener.subscribe("news")
        assert listener.get_message(timeout=PATIENCE) is not None

        closed = own_redis.client_kill("pubsub")

        assert closed == 1


def test_a_server_is_not_started_twice(own_redis: RedisServer) -> None:
    with pytest.raises(CallerError, match="stop it first"):
        own_redis.start()

    assert own_redis.is_alive


def test_rabbitmq_keeps_durable_messages_over_kill_9_and_leaves_no_process_behind(
    hurt_rabbit: RabbitServer,
) -> None:
    queue = Queue("kept", durable=True)
    # Confirmed: on the disk before we kill.
    with Connection(hurt_rabbit.url, transport_options={"confirm_publish": True}) as connection:
        connection.Producer().publish("hello", routing_key="kept", declare=[queue], delivery_mode=2)
    assert len(alive(hurt_rabbit.folder)) > 2

    hurt_rabbit.kill()
    assert alive(hurt_rabbit.folder) == []
    hurt_rabbit.start()

    with Connection(hurt_rabbit.url) as connection:
        message = queue(connection.default_channel).get(no_ack=True)
        assert message is not None
        assert message.payload == "hello"
    hurt_rabbit.stop()
    assert alive(hurt_rabbit.folder) == []


def test_rabbitmq_connections_can_be_closed(rabbit_server: RabbitNode, amqp_url: str) -> None:
    with Connection(amqp_url) as connection:
        connection.connect()

        closed = rabbit_server.close_connections()

        assert closed >= 1
        with pytest.raises(connection.connection_errors):
            connection.drain_events(timeout=PATIENCE)


def test_closing_connections_leaves_those_of_another_process(rabbit_server: RabbitNode) -> None:
    other = RabbitNode(rabbit_server.address, vhost="another-process")
    other.add_vhost(other.vhost)
    with Connection(rabbit_server.url) as ours, Connection(other.url) as theirs:
        ours.connect()
        theirs.connect()

        assert rabbit_server.close_connections() == 1

        with pytest.raises(ours.connection_errors):
            ours.drain_events(timeout=PATIENCE)
        assert theirs.default_channel.queue_declare(exclusive=True).message_count == 0
    other.delete_vhost(other.vhost)


def test_processes_share_a_rabbitmq_until_the_last_one_ends(tmp_path: Path) -> None:
    with Sharer(tmp_path) as first:
        folder = first.read_line()
        with Sharer(tmp_path) as second:
            assert second.read_line() == folder

            first.end()
            assert wait_until(lambda: (tmp_path / "rabbitmq.json").stat().st_size == 0, patience=PATIENCE)
            second.end()

            assert (second.read_line(), second.wait()) == ("2", 0)
        assert (first.read_line(), first.wait()) == ("2", 0)
    assert alive(Path(folder)) == []


def test_rabbitmqctl_lists_the_same_queues(rabbit_server: RabbitNode, amqp_url: str) -> None:
    vhost = amqp_url.rpartition("/")[2]
    columns = ("name", "durable", "auto_delete", "messages")
    with Connection(amqp_url) as connection:
        channel = connection.channel()
        for name, is_durable in (("jobs", True), ("replies", False)):
            Queue(name, durable=is_durable, expires=60, channel=channel).declare()

        printed = rabbit_server.ctl("list_queues", "--vhost", vhost, "--formatter", "json", *columns)
        listed = rabbit_server.list_queues(vhost, *columns, "arguments")

    assert [queue.pop("arguments") for queue in listed] == [{"x-expires": 60_000}] * 2
    assert sorted(listed, key=itemgetter("name")) == sorted(json.loads(printed), key=itemgetter("name"))
    assert {queue["name"]: queue["durable"] for queue in listed} == {"jobs": True, "replies": False}


@pytest.mark.parametrize(("version", "broker"), PAIRS)
def test_a_worker_of_each_celery_runs_a_task_and_stops_without_errors(
    version: str, broker: str, celery_worker: StartWorker, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(f"{broker}_url")
    worker = celery_worker(peer(version), url)

    result = worker.call("peers.add", 2, 3)
    worker.stop()

    assert result == 5
    assert worker.errors() == []
    assert worker.exit_code == 0
    assert re.search(r"peers\.add\[[^]]+\] succeeded", worker.log())


@pytest.mark.parametrize("version", NEWEST)
def test_the_errors_of_a_worker_are_told_with_their_traceback(
    version: str, celery_worker: StartWorker, redis_url: str
) -> None:
    worker = celery_worker(peer(version), redis_url, pool="solo")

    with pytest.raises(CeleriacError, match="ValueError: on purpose"):
        worker.call("peers.fail", "on purpose")
    worker.stop()

    (error,) = worker.errors()
    assert "ValueError: on purpose" in error
    assert "Traceback" in error
