"""Workers under a client that sends tasks without a pause, and what is done to them and to their broker."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import time
from typing import Self

import pytest

from celeriac.errors import NetworkError
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.fleet import PATIENCE, come_true, kill_all, start_all
from tests.live import IS_LONG, revived
from tests.rabbit_queues import count_messages
from tests.stage import Stage, lines

__all__ = ["Server", "Storm", "storm_on"]

Server = RedisServer | RabbitServer

#: Tasks that end between one fault and the next, and how long a client waits between two of them.
SOME, EVERY = (40, 0.01) if IS_LONG else (15, 0.04)
QUEUE = "stormy"
#: Short, so that what a killed worker had is soon given to others. Only Redis has such.
VISIBILITY = {"CELERIAC_BROKER_TRANSPORT_OPTIONS": json.dumps({"visibility_timeout": 2})}


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
    #: When each was first sent, at the earliest, by the same texts.
    sent_at: dict[str, float] = field(default_factory=dict)
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
            self.sent_at[text] = time()
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

    def results(self) -> dict[str, str]:
        """Return the result of each task that was sent, by its text."""
        ask = self.stage.app.AsyncResult
        return {text: ask(task_id).get(timeout=PATIENCE) for text, task_id in self.sent.items()}

    def leftovers(self) -> dict[str, int]:
        """Return what there is in the broker that nobody has settled."""
        if isinstance(self.server, RabbitServer):
            return {QUEUE: count_messages(self.server, QUEUE)}
        with self.server.client() as client:
            return {QUEUE: client.llen(QUEUE), "unacked": client.hlen("unacked")}


@contextmanager
def storm_on(broker: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storm]:
    """Have two workers of ours under a storm, on a broker that keeps what it has confirmed."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer({"appendonly": "yes", "appendfsync": "always"}))
        server = redis if broker == "redis" else revived(request.getfixturevalue("rabbit_to_hurt"))
        stage = stack.enter_context(Stage.on(server.url, redis.url_of(1)))
        environment = VISIBILITY if broker == "redis" else {}
        workers = [
            stage.worker(f"{pool}@ours", "-Q", QUEUE, pool=pool, environment=environment)
            for pool in ("threads", "processes")
        ]
        yield stack.enter_context(Storm(server, redis, stage, workers, tmp_path / "notes"))
