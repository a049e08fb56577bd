"""Two workers of Celery's and two of ours in one cluster."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from celeriac.app import Celeriac
from celeriac.testing.peers import CeleriacWorker, CeleryWorker
from tests.console import Console
from tests.fleet import OUR_APP, Worker, batch, running
from tests.interop.conftest import Pair
from tests.live import PEER_APP, peer
from tests.watcher import Watcher

__all__ = ["Mixed", "mix"]


@dataclass
class Mixed:
    """A cluster of four workers, each with a queue of its own and one for all."""

    pair: Pair
    app: Celeriac
    #: A client of Celery's.
    console: Console
    #: Who hears all events.
    watcher: Watcher
    celery: list[CeleryWorker]
    ours: list[CeleriacWorker]

    @property
    def workers(self) -> list[Worker]:
        return [*self.celery, *self.ours]

    @property
    def names(self) -> set[str]:
        return {worker.hostname for worker in self.workers}

    @property
    def queues(self) -> dict[str, str]:
        """The queue that each worker has for itself, and whose it is."""
        return {f"of.{name}": name for name in sorted(self.names)}

    def batch(self, version: str = "5.7", **work: Any) -> list[tuple[str, Any]]:
        """Have a client of Celery's do work."""
        return batch(peer(version), url=self.pair.url, backend=self.pair.backend, **work)


def options_of(hostname: str) -> dict[str, Any]:
    return {"hostname": hostname, "arguments": ("-Q", f"celery,of.{hostname}")}


@contextmanager
def mix(pair: Pair) -> Iterator[Mixed]:
    """Have the cluster on a broker."""
    with ExitStack() as stack:
        place: dict[str, Any] = {"url": pair.url, "backend": pair.backend}
        # Celery: of two tries at a time, the first may be the last to store its end. So one at a time.
        celery = [
            CeleryWorker(peer("5.6"), PEER_APP, **place, **talkative("prefork@celery56")),
            CeleryWorker(peer("5.7"), PEER_APP, **place, **talkative("threads@celery57"), pool="threads"),
        ]
        ours = [
            CeleriacWorker(OUR_APP, **place, **options_of(f"{pool}@ours"), pool=pool)
            for pool in ("threads", "processes")
        ]
        app = Celeriac(pair.url, pair.backend, environ={})
        stack.callback(app.close)
        console = stack.enter_context(pair.console())
        stack.enter_context(running(*celery, *ours))
        watcher = stack.enter_context(Watcher(app))
        yield Mixed(pair, app, console, watcher, celery, ours)


def talkative(hostname: str) -> dict[str, Any]:
    """Return the options of a worker of Celery's that tells who joins and leaves."""
    options = options_of(hostname)
    return options | {"arguments": (*options["arguments"], "--loglevel", "DEBUG")}
