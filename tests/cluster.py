"""A cluster on the broker in this process: nodes of ours, and peers that answer as they like."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, Self

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Message
from celeriac.node.clock import SharedClock
from celeriac.node.control import Control
from celeriac.node.mailbox import Handler, Mailbox
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.wire.control import Reply, Request, decode_request, encode_reply
from celeriac.wire.names import event_exchange, node_queue
from tests.builders import worker

__all__ = ["Cluster", "Peer", "Stepping"]


class Peer:
    """A node under the hand of a test: it sees each request, and sends what it is told to."""

    def __init__(self, name: str, connection: MemoryConnection, answer: Callable[["Peer", Request], object]):
        self.name = name
        self.connection = connection
        #: What it was asked, in order.
        self.requests: list[Request] = []
        self._answer = answer
        connection.subscribe(node_queue(Settings(), name), self.receive)

    def receive(self, message: Message) -> None:
        """Note a request, and let the test answer it."""
        request = decode_request(message)
        self.requests.append(request)
        self._answer(self, request)

    def reply(self, request: Request, value: object, **changes: Any) -> Self:
        """Reply to a request if it asks for that, as this node or with changes to the reply."""
        if request.reply_to is not None:
            headers, body = encode_reply(Reply(self.name, value, request.ticket, 1)._replace(**changes))
            self.send(request, body, headers)
        return self

    def send(self, request: Request, body: bytes, headers: dict[str, object] | None = None) -> None:
        """Send any body to where replies to a request are awaited."""
        assert request.reply_to is not None
        exchange = Exchange(request.reply_to.exchange, "direct")
        self.connection.publish(exchange, body, routing_key=request.reply_to.routing_key, headers=headers)

    def beat(self, subject: str = "heartbeat", **fields: Any) -> Self:
        """Send an event of this node."""
        body = json.dumps(worker(subject, **{"hostname": self.name, **fields})).encode()
        exchange = event_exchange("celeryev", self.connection.driver)
        self.connection.publish(exchange, body, routing_key=f"worker.{subject}")
        return self


class Stepping(MemoryConnection):
    """A link whose owner waits only after every node has done what there was to do."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster.broker)
        self._cluster = cluster

    def clone(self) -> "Stepping":
        return Stepping(self._cluster)

    def drain(self, timeout: float | None = None) -> int:
        self._cluster.step()
        return super().drain(timeout)


class Cluster:
    """Nodes that run when the one who asks waits, or in threads of their own."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.links: list[MemoryConnection] = []
        #: Called with each step, for what happens while someone waits.
        self.on_step: Callable[[], object] = lambda: None

    def node(self, name: str, *, allow: tuple[str, ...] = (), **handlers: Handler) -> Mailbox:
        """Add a node of ours."""
        mailbox = Mailbox(
            name, settings=Settings(control_allow=allow), clock=SharedClock(), handlers=handlers
        )
        self.links.append(self.broker.connect())
        mailbox.attach(self.links[-1])
        return mailbox

    def peer(self, name: str, answer: Callable[[Peer, Request], object] = lambda *_: None) -> Peer:
        """Add a node that answers as a test wants."""
        self.links.append(self.broker.connect())
        return Peer(name, self.links[-1], answer)

    def control(self, clock: SharedClock | None = None, hostname: str = "gen7@web") -> Control:
        """Return a client whose waiting runs the nodes."""
        return Control(
            lambda: Stepping(self), settings=Settings(), clock=clock or SharedClock(), hostname=hostname
        )

    def threaded_control(self) -> Control:
        """Return a client for nodes that run in threads."""
        return Control(self.broker.connect, settings=Settings(), clock=SharedClock(), hostname="gen7@web")

    def step(self) -> None:
        """Let every node do what there is to do."""
        self.on_step()
        for link in self.links:
            link.drain(0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run every node in a thread of its own; at the end cut their links, which ends them."""
        threads = [Thread(target=_drain, args=(link,)) for link in self.links]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.broker.cut()
            for thread in threads:
                thread.join()


def _drain(link: MemoryConnection) -> None:
    try:
        while True:
            link.drain()
    except ConnectionLost:
        return
