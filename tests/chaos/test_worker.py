"""Workers lose no task, whatever is done to them and to their broker; and a mixed cluster works for long.

``HYPOTHESIS_PROFILE=long`` goes on with each for ten minutes.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Self

import pytest

from celeriac.errors import NetworkError
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.fleet import OUR_APP, PATIENCE, come_true, kill_all, run_all, start_all
from tests.interop.conftest import BROKERS, paired
from tests.live import PEERS, revived
from tests.mixed import Mixed, mix
from tests.rabbit_queues import count_messages
from tests.stage import Stage, lines

Server = RedisServer | RabbitServer

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
#: How long each test goes on; each does everything once at least.
SECONDS = 600.0 if IS_LONG else 0.0
#: Tasks that end between one fault and the next, and how long a client waits between two of them.
SOME, EVERY = (40, 0.01) if IS_LONG else (15, 0.04)
QUEUE = "stormy"
#: Short, so that what a killed worker had is soon given to others. Only Redis has such.
VISIBILITY = {"CELERIAC_BROKER_TRANSPORT_OPTIONS": json.dumps({"visibility_timeout": 2})}


# -- faults


@dataclass
class Storm:
    """Workers that run tasks of a client which sends without a pause, and what is done to them."""

    server: Server
    #: Where results are kept; with Redis that is the broker.
    store: RedisServer
    stage: Stage
    workers: list[CeleriacWorker]
    file: Path
    #: The tasks that the broker has, or may have, by the text that each is to write and return.
    sent: dict[str, str] = field(default_factory=dict)
    _stopping: Event = field(default_factory=Event)

    def __enter__(self) -> Self:
        start_all(self.workers)
        self._sender = Thread(target=self._send)
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.calm()
        kill_all(self.workers)

    def calm(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._sender.join()

    def _send(self) -> None:
        for number in count():
            text = f"task {number}"
            task_id = self.sent[text] = f"storm-{number}"
            while True:
                try:
                    # Every other one waits for its moment in a worker.
                    self.stage.send(
                        "record",
                        str(self.file),
                        text,
                        0.02,
                        queue=QUEUE,
                        task_id=task_id,
                        countdown=number % 2,
                    )
                    break
                except NetworkError:
                    # The broker may have it, or not: it is sent once more, with the same id.
                    self._stopping.wait(0.1)
            if self._stopping.wait(EVERY):
                return

    @property
    def ended(self) -> set[str]:
        """The texts of the tasks that have ended."""
        return {line.removeprefix("end ") for line in lines(self.file) if line.startswith("end ")}

    def let_some_end(self) -> None:
        """Wait until some more tasks have ended."""
        goal = len(self.ended) + SOME
        assert come_true(lambda: len(self.ended) >= goal)

    def kill_worker(self, number: int) -> None:
        """Kill a worker, and start it again."""
        worker = self.workers[number % len(self.workers)]
        worker.kill()
        worker.start()

    def kill_servers(self) -> None:
        """Kill the broker, and start it again; then the store of results, if it is another."""
        for server in dict.fromkeys((self.server, self.store)):
            server.kill()
            server.start()

    def leftovers(self) -> dict[str, int]:
        """Return what there is in the broker that nobody has settled."""
        if isinstance(self.server, RabbitServer):
            return {QUEUE: count_messages(self.server, QUEUE)}
        with self.server.client() as client:
            return {QUEUE: client.llen(QUEUE), "unacked": client.hlen("unacked")}


@pytest.fixture(params=BROKERS)
def storm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storm]:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer({"appendonly": "yes", "appendfsync": "always"}))
        server = redis if request.param == "redis" else revived(request.getfixturevalue("rabbit_to_hurt"))
        stage = stack.enter_context(Stage.on(server.url, redis.url_of(1)))
        environment = VISIBILITY if request.param == "redis" else {}
        workers = [
            stage.worker(f"{pool}@ours", "-Q", QUEUE, pool=pool, environment=environment)
            for pool in ("threads", "processes")
        ]
        yield stack.enter_context(Storm(server, redis, stage, workers, tmp_path / "notes"))


def test_every_task_ends_with_its_result_whatever_is_killed(storm: Storm) -> None:
    until = monotonic() + SECONDS
    for number in count():
        storm.let_some_end()
        storm.kill_worker(number)
        storm.let_some_end()
        storm.kill_servers()
        if monotonic() >= until:
            break

    storm.let_some_end()
    storm.kill_worker(number + 1)
    storm.calm()

    results = {
        text: storm.stage.app.AsyncResult(task_id).get(timeout=PATIENCE)
        for text, task_id in storm.sent.items()
    }
    assert results == {text: text for text in storm.sent}
    assert storm.ended == storm.sent.keys()
    assert come_true(lambda: set(storm.leftovers().values()) == {0}), storm.leftovers()
    assert [error for worker in storm.workers for error in worker.errors()] == []


# -- a mixed cluster


@pytest.fixture(params=BROKERS if IS_LONG else BROKERS[:1])
def mixed(request: pytest.FixtureRequest) -> Iterator[Mixed]:
    with paired(request, "5.7", request.param) as pair, mix(pair) as mixed:
        yield mixed


def test_a_mixed_cluster_works_for_long_and_no_worker_of_celerys_logs_an_error(mixed: Mixed) -> None:
    guest = CeleriacWorker(
        OUR_APP,
        url=mixed.pair.url,
        backend=mixed.pair.backend,
        hostname="guest@ours",
        arguments=("-Q", "of.guest"),
    )
    until = monotonic() + SECONDS
    try:
        for number in count():
            work = [lambda: ours(mixed), lambda: theirs(mixed, PEERS[number % 2]), guest.start]  # noqa: B023
            run_all(work)
            # It leaves, or is killed, and comes again.
            guest.stop() if number % 2 else guest.kill()
            if monotonic() >= until:
                break
    finally:
        kill_all([guest])

    assert {worker.hostname: worker.errors() for worker in mixed.workers} == {
        name: [] for name in mixed.names
    }


def ours(mixed: Mixed) -> None:
    """Have our client's tasks run on all four."""
    sent = [
        mixed.app.send_task("peers.add", [number, 1], queue=queue)
        for number in range(25)
        for queue in mixed.queues
    ]
    got = [result.get(timeout=PATIENCE) for result in sent]

    assert got == [number + 1 for number in range(25) for _ in mixed.queues]


def theirs(mixed: Mixed, version: str) -> None:
    """Have all that a client of Celery's can compose run across all four."""
    tasks: list[Any] = [("peers.retry_then_succeed", [], {"queue": queue}) for queue in mixed.queues]
    done = mixed.batch(version, tasks=tasks, across=list(mixed.queues))

    assert [value for _, value in done] == [2] * 4 + [8, [0, 2, 4, 6, 8, 10, 12, 14], *[56] * 4, 57, 72]
