"""Runs commands against a cluster in memory."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event as Flag
from threading import Thread
from time import time
from typing import Any, Self

from typer.testing import CliRunner, Result

from celeriac.app import Celeriac
from celeriac.cli.root import app
from celeriac.cli.session import Session
from celeriac.errors import ConnectionLost
from celeriac.node.mailbox import Handler
from celeriac.transport.base import Connection
from celeriac.transport.memory import MemoryBroker
from celeriac.wire.names import event_exchange, node_queue
from tests.builders import WORKER, body, worker

__all__ = ["HOSTILE", "Cluster", "heartbeat", "is_harmless", "lines"]

#: Colours, a title, the eight-bit form of an escape, a line of its own, a turn of direction, markup.
HOSTILE = "\x1b[31m\x1b]0;owned\x07\x9b2J\r\nroot# \u202e[bold]x[/bold]"


def is_harmless(text: str) -> bool:
    """Tell whether a terminal can do nothing with a text but show it."""
    return all(line.isprintable() for line in text.split("\n"))


def heartbeat(hostname: str = WORKER) -> dict[str, Any]:
    """Return a heartbeat of now: one of another time would be told as a clock that is wrong."""
    return worker("heartbeat", hostname=hostname, timestamp=time())


class Cluster:
    """A broker in memory, with nodes that answer; they end with the context."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self._ending = Flag()
        self._threads: list[Thread] = []

    def add_node(self, hostname: str, **handlers: Handler) -> None:
        """Add a worker that answers ping, and has these handlers for other commands."""
        self._add(hostname, {"query_task": dict.fromkeys, **handlers})

    def add_recorder(self, hostname: str) -> None:
        """Add a node that runs no tasks, and answers ping."""
        self._add(hostname, {})

    def _add(self, hostname: str, handlers: dict[str, Handler]) -> None:
        node = self.app(control_allow=tuple(handlers))
        mailbox = node.mailbox(hostname)
        mailbox.handlers.update(handlers)
        connection = node.connection()
        mailbox.attach(connection)
        self.follow(connection)

    def follow(self, connection: Connection) -> None:
        """Deliver what comes by a connection, until it is cut or the cluster ends."""

        def serve() -> None:
            with connection, suppress(ConnectionLost):
                while not self._ending.is_set():
                    connection.drain(0.02)

        thread = Thread(target=serve, daemon=True)
        self._threads.append(thread)
        thread.start()

    def add_speaker(self, *events: dict[str, Any] | bytes, hostname: str = "speaker@lab") -> None:
        """Add a node that sends these events whenever it is asked for a heartbeat."""

        def speak() -> None:
            for event in events:
                self.publish(event)

        self.add_node(hostname, heartbeat=speak)

    def add_silent_node(self, hostname: str) -> None:
        """Add a node that shows itself by a heartbeat, and answers nothing."""
        node = self.app()
        connection = node.connection()
        connection.subscribe(node_queue(node.conf, hostname), lambda _: self.publish(heartbeat(hostname)))
        self.follow(connection)

    def publish(self, event: dict[str, Any] | bytes) -> None:
        """Send one event, or what is none."""
        sender = self.app()
        exchange = event_exchange(sender.conf.event_exchange, "memory")
        key, told = ("odd", event) if isinstance(event, bytes) else (_routing_key(event), body(event))
        with sender.connection() as connection:
            connection.publish(exchange, told, routing_key=key)

    def app(self, **settings: Any) -> Celeriac:
        """Return an app on the broker in memory."""
        return Celeriac(self.broker, environ={}, **settings)

    def run(
        self,
        *arguments: str,
        is_attended: bool = False,
        answer: str | None = None,
        assemble: Callable[..., Celeriac] | None = None,
    ) -> Result:
        """Run a command to its end; ``answer`` is what somebody types."""

        def on_memory(**_: object) -> Celeriac:
            return self.app()

        session = Session(assemble=assemble or on_memory, is_attended=lambda: is_attended)
        return CliRunner().invoke(app, list(arguments), obj=session, input=answer)

    def commands(self) -> list[bytes]:
        """Return the bodies of all commands that were sent."""
        return [message.body for exchange, message in self.broker.published if exchange == "celery.pidbox"]

    def has_sent(self, command: str) -> bool:
        """Tell whether a command was sent."""
        return any(f'"method":"{command}"'.encode() in sent for sent in self.commands())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()


def _routing_key(event: dict[str, Any]) -> str:
    key: str = event["type"].replace("-", ".")
    return key


def lines(text: str) -> Sequence[str]:
    """Return the lines of an output, without the blanks that fill them up."""
    return [line.rstrip() for line in text.splitlines()]
