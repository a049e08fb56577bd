"""A cluster in memory and its dashboard."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import httpx
import uvicorn

from celeriac.app import Celeriac
from celeriac.core.redaction import Redactor
from celeriac.history import Warehouse
from celeriac.model.events import Event
from celeriac.node.watcher import Listener, Watcher
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker
from celeriac.web import access
from celeriac.web.access import Access
from celeriac.web.action import Actions
from celeriac.web.board import Board
from celeriac.web.connection import ConnectionLimits
from celeriac.web.server import make_app, make_server
from tests.http_client import http_client

PATIENCE = 60.0
#: Fractions of a millisecond for a hash instead of some 40 ms: tests make hundreds.
CHEAP_HASHES = {"n": 2}


def cheaply_hashed(secret: str) -> str:
    """Return the hash of a secret for accounts that are made before any test runs."""
    with patch.dict(access._COST, CHEAP_HASHES):
        return access.hashed(secret)


class Rig:
    """An app whose events a dashboard shows."""

    def __init__(self, app: Celeriac, board: Board, broker: MemoryBroker, listener: Listener) -> None:
        self.app = app
        self.broker = broker
        self.board = board
        self._dispatcher = app.events.Dispatcher(hostname="w1@lab")
        self._sent = 0
        self._listener = listener
        self._heard = 0

    def send(self, kind: str, **fields: Any) -> None:
        """Send an event as a worker does."""
        self._sent += 1
        self._dispatcher.send(kind, **fields)

    def arrived(self) -> None:
        """Wait until all that was sent is known: who listens is told last."""
        assert wait_until(self._has_arrived, patience=PATIENCE)

    def _has_arrived(self) -> bool:
        came, overlooked = self._listener.taken()
        self._heard += len(came) + overlooked
        return self._heard >= self._sent

    def run_task(self, uuid: str, name: str = "shop.pay", **fields: Any) -> None:
        """Have a task received, started and succeeded."""
        self.send("task-received", uuid=uuid, name=name, **{"args": "(1,)", "kwargs": "{}", **fields})
        self.send("task-started", uuid=uuid)
        self.send("task-succeeded", uuid=uuid, result="'done'", runtime=0.25)

    def put(self, *events: Event) -> None:
        """Have events in the state as if they had come."""
        for event in events:
            self.board.watcher.state.event(event)


@contextmanager
def rig(tmp_path: Path, **board: Any) -> Iterator[Rig]:
    """Have a cluster that is watched."""
    broker = MemoryBroker()
    app = Celeriac(broker, hostname="dashboard@lab", environ={})
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
        assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
        made = Board(watcher, **{"warehouse": Warehouse(tmp_path / "warehouse"), **board})
        try:
            with watcher.listening() as listener:
                yield Rig(app, made, broker, listener)
        finally:
            made.close()
            app.close()


@contextmanager
def served(
    rig: Rig,
    access: Access | None = None,
    actions: Actions | None = None,
    limits: ConnectionLimits | None = None,
    **options: Any,
) -> Iterator[httpx.Client]:
    """Serve the dashboard, and have a program that asks it."""
    server = make_server(make_app(rig.board, access or Access(), actions, **options), limits)
    with serving(server) as place, http_client(f"http://{place}", timeout=PATIENCE) as client:
        yield client


@contextmanager
def serving(server: uvicorn.Server) -> Iterator[str]:
    """Run a server; yield its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as link:
        thread = Thread(target=lambda: server.run(sockets=[link]), daemon=True)
        thread.start()
        try:
            assert wait_until(lambda: server.started, patience=PATIENCE)
            yield f"127.0.0.1:{link.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
