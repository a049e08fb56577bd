"""Everybody who waits gets the right result or a time-out, whatever is done to broker and store.

A hundred wait at once in one program, and a program for each way there is, for tasks that a real
Celery worker runs, while the server behind it all is killed and started again: Redis twice, RabbitMQ once.
``HYPOTHESIS_PROFILE=long`` has a thousand wait in each way, kills each twice, and does it again and again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from time import monotonic
from typing import Any, Self

import pytest

from celeriac.errors import CeleriacError
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.live import IS_LONG, PEER_APP, StartWorker, peer
from tests.rabbit_queues import count_messages, count_queues

Server = RedisServer | RabbitServer

WAYS = ("default", "gevent", "eventlet", "asyncio")
#: In each way.
WAITERS = 1000 if IS_LONG else 100
ROUNDS = 10 if IS_LONG else 1
#: How long each waits, again and again until all tasks were run. Longer than a server is away; and those
#: wait it out whose task or result the kills took along.
TIMEOUT = 45.0 if IS_LONG else 8.0
#: Far more than needed, for a busy machine.
PATIENCE = 180.0
#: Who waits for tasks that are sent before the first kill, and before the second, in each way.
FIRST, SECOND = WAITERS * 2 // 5, WAITERS * 19 // 20
#: When the server is killed: after so many results, of all ways together.
KILLS = (WAITERS * 2 // 5, WAITERS * 2)
MIB = 1024 * 1024


class Program:
    """A program beside us that is told things and says things, line by line."""

    def __init__(self, *command: str, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=dict(os.environ) | (environment or {}) | {"PYTHONWARNINGS": "ignore"},
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def next(self, patience: float = PATIENCE) -> Any:
        """Return what it says next; None if it says nothing."""
        try:
            return json.loads(self._lines.get(timeout=patience))
        except Empty:
            return None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)


@pytest.fixture
def lasting_redis() -> Iterator[RedisServer]:
    """A Redis that has on its disk whatever it has confirmed."""
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


@pytest.fixture(params=["lasting_redis", "hurt_rabbit"], ids=["redis", "rpc"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_all_who_wait_in_any_way_get_their_own_result_or_time_out_and_nothing_is_left(
    server: Server, celery_worker: StartWorker, round_: int, tmp_path: Path
) -> None:
    backend = server.url if isinstance(server, RedisServer) else "rpc://"
    python = peer("5.7" if round_ % 2 == 0 else "5.6")
    worker = celery_worker(
        python,
        server.url,
        backend=backend,
        pool="threads",
        concurrency=4,
        events=False,
        # Celery: a broker that is away while gossip restarts ends the worker.
        arguments=["--without-gossip", "--without-mingle", "--without-heartbeat"],
        environment={"PEERS_CAREFUL": "1"},
    )
    with (
        Crowd(server.url, backend, tmp_path / "enough") as crowd,
        kept_alive(worker),
        Sender(python, server.url, backend) as sender,
    ):
        sender.send(crowd.tasks(range(FIRST)))
        crowd.wait_for(KILLS[0])
        kill(server, worker)
        sender.send(crowd.tasks(range(FIRST, SECOND)))
        crowd.wait_for(KILLS[1])
        if IS_LONG or isinstance(server, RedisServer):  # RabbitMQ takes five CPU seconds to start
            kill(server, worker)
        # Last, so that no way is done before: a broker that is killed may not have noted who left it.
        sender.send(crowd.tasks(range(SECOND, WAITERS)))
        assert wait_until(lambda: queued(server) == 0, patience=PATIENCE)
        reports = crowd.finish()

    for way in WAYS:
        print(way, reports[way])
    for way, report in reports.items():
        outcomes = report["outcomes"]
        assert sum(outcomes.values()) == WAITERS, way
        # Celery: a worker that cannot say that it took a task may store that as the task's failure.
        assert set(outcomes) <= {"right", "time-out", "failed in the worker"}, (way, report["odd"])
        # Nearly all of them; what is on its way by RabbitMQ when it is killed is gone.
        assert outcomes["right"] >= WAITERS // 2, way
        # Who timed out had no result to get when it began to wait for the last time.
        assert report["lost"] == 0, way
        assert report["watched"] == 0, way
        before, after, closed = report["before"], report["after"], report["closed"]
        # Those who look for themselves keep up to four links; there was one before.
        assert after["files"] <= before["files"] + 4, way
        assert closed["files"] < before["files"], way
        assert after["threads"] == before["threads"], way
        assert after["greenlets"] <= before["greenlets"], way
        assert after["memory"] <= before["memory"] + 32 * MIB, way
    assert leftovers(server) == 0


class Crowd:
    """The programs in which many wait, one for each way."""

    def __init__(self, broker: str, backend: str, enough: Path) -> None:
        told = {"broker": broker, "backend": backend, "waiters": WAITERS, "timeout": TIMEOUT}
        told["enough"] = str(enough)
        self._enough = enough
        self._programs = {
            way: Program(sys.executable, "-m", "tests.waiters", json.dumps(told | {"way": way}))
            for way in WAYS
        }
        self._reply_to = {way: program.next()["reply_to"] for way, program in self._programs.items()}
        self._right = dict.fromkeys(WAYS, 0)
        self._reports: dict[str, Any] = {}

    def tasks(self, numbers: range) -> Iterator[list[Any]]:
        """Return the tasks that some of those wait for, in all ways."""
        for number in numbers:
            for way in WAYS:
                task_id = f"{way}-{number}"
                yield ["peers.echo", [f"result of {task_id}", 0.005], task_id, self._reply_to[way]]

    def wait_for(self, right: int) -> None:
        """Wait until so many have their results, or as many as will."""
        until = monotonic() + PATIENCE
        while sum(self._right.values()) < right and monotonic() < until:
            for way in WAYS:
                while self._listen(way, patience=0.01):
                    pass

    def finish(self) -> dict[str, Any]:
        """Have nobody wait again, wait until all have ended, and return how."""
        self._enough.touch()
        for way in WAYS:
            while way not in self._reports:
                assert self._listen(way, patience=PATIENCE), f"{way} says nothing"
        return self._reports

    def _listen(self, way: str, *, patience: float) -> bool:
        news = None if way in self._reports else self._programs[way].next(patience)
        if news is None:
            return False
        self._right[way] = news.get("right", self._right[way])
        if "outcomes" in news:
            self._reports[way] = news
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs.values():
            program.end()


class Sender:
    """A client of Celery's, in a program of its own."""

    def __init__(self, python: Path, broker: str, backend: str) -> None:
        environment = {"CELERY_BROKER_URL": broker, "CELERY_RESULT_BACKEND": backend}
        self._program = Program(str(python), str(PEER_APP.parent / "sender.py"), environment=environment)
        self._sent = 0

    def send(self, tasks: Iterator[list[Any]]) -> None:
        """Send tasks, and wait until they are sent."""
        lines = [json.dumps(task) for task in tasks]
        self._sent += len(lines)
        self._program.tell(*lines, "")
        assert self._program.next(PATIENCE) == self._sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.end()


def kill(server: Server, worker: CeleryWorker) -> None:
    """Kill a server with its connections and all that it has not written, and start it again."""
    server.kill()
    server.start()
    if isinstance(server, RabbitServer):
        # Celery: a worker looks for its broker ever more rarely, and this one takes seconds to start.
        worker.kill()


@contextmanager
def kept_alive(worker: CeleryWorker) -> Iterator[None]:
    """Start a worker again whenever it ends, as supervisors do: Celery's may, when its broker is killed."""
    stopping = Event()

    def keep() -> None:
        while not stopping.wait(0.2):
            if not worker.is_alive:
                with suppress(CeleriacError):  # it is killed again while it starts
                    worker.start()

    keeper = Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        stopping.set()
        keeper.join()


def queued(server: Server) -> int:
    """Return how many tasks there are that no worker has said to have taken."""
    if isinstance(server, RedisServer):
        with server.client() as client:
            return int(client.llen("celery")) + int(client.hlen("unacked"))
    return count_messages(server, "celery")


def leftovers(server: Server) -> int:
    """Return how many subscriptions or queues of those who waited there are."""
    if isinstance(server, RedisServer):
        with server.client() as client:
            return len(client.pubsub_channels("celery-task-meta-*"))
    return count_queues(server, "celeriac.reply")
