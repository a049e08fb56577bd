"""Redis for one request and its replies: sockets and hiredis, and the names that kombu uses by default."""

import socket
from collections.abc import Mapping
from time import monotonic
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import hiredis

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost, NetworkError
from celeriac.masking import sanitize_url
from celeriac.model.message import Exchange, Queue
from celeriac.transport.base import Deliver
from celeriac.transport.quick import BrokerAddress
from celeriac.transport.readiness import wait_readable
from celeriac.transport.redis_names import RedisNames
from celeriac.transport.translation import translated
from celeriac.wire.envelope import opened, wrap

__all__ = ["QuickRedis"]

_READ_BYTES: Final = 256 * 1024
_NOTHING: Final = object()
#: How Redis begins to say that we may not.
_REFUSALS: Final = ("NOAUTH", "NOPERM", "WRONGPASS", "ERR AUTH", "ERR invalid password")


class _Line:
    """One socket: commands are written, replies read as they come."""

    def __init__(self, settings: Settings, at: BrokerAddress) -> None:
        self._address = sanitize_url(settings.broker_url)
        self._timeout = settings.broker_connection_timeout
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._unread: list[Any] = []
        #: What is done with the messages that come, by pattern or key.
        self.deliver: dict[bytes, Deliver] = {}
        try:
            self._socket = socket.create_connection((at.host, at.port), self._timeout)
        except OSError as error:
            raise translated(error, self._address) from error
        try:
            if at.password:
                self.ask("AUTH", *((at.user,) if at.user else ()), at.password)
            if database := int(at.path.removeprefix("/") or "0"):
                self.ask("SELECT", str(database))
        except NetworkError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *command: str | bytes) -> None:
        try:
            self._socket.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # of any length
        except OSError as error:
            raise translated(error, self._address) from error

    def ask(self, *command: str | bytes) -> Any:
        """Write a command, and return its reply; nothing else may be on its way."""
        self.send(*command)
        deadline = monotonic() + self._timeout
        while not self._unread:
            left = deadline - monotonic()
            if left <= 0 or not wait_readable([self], left):
                raise ConnectionLost(f"lost the broker at {self._address}: no answer")
            self.take()
        return self._unread.pop(0)

    def replies(self) -> list[Any]:
        """Take away the replies that were read."""
        replies, self._unread = self._unread, []
        return replies

    def take(self) -> None:
        """Read what the socket has."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise translated(error, self._address) from error
        if not data:
            raise ConnectionLost(f"lost the broker at {self._address}: connection closed by the broker")
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOTHING:
            if isinstance(reply, hiredis.ReplyError):
                text = str(reply)
                if text.startswith(_REFUSALS):
                    raise AccessRefused(f"access refused by the broker at {self._address}: {text}")
                raise ConnectionLost(f"lost the broker at {self._address}: {text}")
            self._unread.append(reply)

    def close(self) -> None:
        self._socket.close()


class QuickRedis:
    """Publishes to fan-outs, and takes what comes to queues of its own, until it is closed."""

    driver = "redis"

    def __init__(self, settings: Settings, at: BrokerAddress) -> None:
        self._settings = settings
        self._at = at
        database = at.path.removeprefix("/") or "0"
        # What kombu has where no option says otherwise.
        usual = SimpleNamespace(
            global_keyprefix="",
            sep="\x06\x16",
            priority_steps=(0, 3, 6, 9),
            fanout_patterns=True,
            keyprefix_fanout=f"/{database}.",
            unacked_key="unacked",
            unacked_index_key="unacked_index",
            visibility_timeout=3600,
        )
        self._names = RedisNames(usual)
        self._commands: _Line | None = None
        self._topics: _Line | None = None
        self._lists: list[_Line] = []
        self._bound: list[Queue] = []

    def publish(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        routing_key: str = "",
        headers: Mapping[str, object] | None = None,
    ) -> None:
        """Send one JSON message to a fan-out; on return the broker has it."""
        envelope = wrap(
            body,
            exchange=exchange.name,
            routing_key=routing_key,
            headers=headers or {},
            delivery_tag=uuid4().hex,
        )
        for channel in self._names.topics(exchange, routing_key):
            self._opened().ask("PUBLISH", channel, envelope)

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002 - each publish is answered
        """Return 0: a message has arrived when publishing returns."""
        return 0

    def subscribe(self, queue: Queue, deliver: Deliver) -> None:
        """Bind a queue of our own, and hand what comes to ``deliver``, within :meth:`drain`."""
        if queue.exchange.type == "fanout":
            line = self._topics = self._topics or _Line(self._settings, self._at)
            for pattern in self._names.topics(queue.exchange, queue.routing_key.replace("#", "*")):
                line.deliver[pattern.encode()] = deliver
                line.ask("PSUBSCRIBE", pattern)
            return
        self._opened().ask("SADD", self._names.bindings(queue.exchange), self._names.binding(queue))
        self._bound.append(queue)
        line = _Line(self._settings, self._at)
        keys = self._names.lists(queue.name)
        line.deliver = {key.encode(): deliver for key in keys}
        line.send("BRPOP", *keys, "0")
        self._lists.append(line)

    def drain(self, timeout: float = 0.0) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        lines = [*self._lists, *([self._topics] if self._topics else [])]
        delivered = 0
        for line in wait_readable(lines, timeout):
            line.take()
            for reply in line.replies():
                delivered += self._deliver(line, reply)
        return delivered

    def _deliver(self, line: _Line, reply: Any) -> int:
        if line is self._topics:
            if reply[0] == b"pmessage":
                line.deliver[reply[1]](opened(reply[3]))
            return 1
        deliver = line.deliver[reply[0]]
        line.send("BRPOP", *line.deliver, "0")
        deliver(opened(reply[1]))
        return 1

    def _opened(self) -> _Line:
        self._commands = self._commands or _Line(self._settings, self._at)
        return self._commands

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for queue in self._bound:
                self._opened().ask("SREM", self._names.bindings(queue.exchange), self._names.binding(queue))
                self._opened().ask("DEL", *self._names.lists(queue.name))
        except NetworkError:  # the broker forgets them by itself, or has
            pass
        for line in [self._commands, self._topics, *self._lists]:
            if line is not None:
                line.close()
