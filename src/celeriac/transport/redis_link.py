"""One socket to Redis, with hiredis to parse what comes from it."""

import select
import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

import hiredis
from redis.exceptions import RedisError

from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.transport.kombu import translated

__all__ = ["RedisLink", "wait_for"]

_READ_BYTES: Final = 256 * 1024
#: How long a command may wait to be written, and its answer to be read, before the link counts as lost.
_PATIENCE: Final = 10.0
#: A link that said nothing for so long is asked whether it lives, and has so long to answer.
_SILENCE, _ANSWER = 15.0, 5.0
# Its types leave out that a command has any number of words.
_pack: Callable[[tuple[str | bytes | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
_NOTHING: Final = object()
#: How Redis begins to say that we may not.
_REFUSALS: Final = ("NOAUTH", "NOPERM", "WRONGPASS")


class RedisLink:
    """A link of a pool, used directly: commands are written, answers read as they come."""

    def __init__(self, pool: Any, address: str) -> None:
        self.address = address
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        try:
            # redis-py signs in, selects the database and sets up TLS; then the socket is ours.
            self._connection = pool.make_connection()
            self._connection.connect()
        except (RedisError, OSError) as error:
            raise translated(error, address) from error
        self._socket: socket.socket = self._connection._sock  # noqa: SLF001
        self._socket.settimeout(_PATIENCE)
        self._heard_at = monotonic()
        self._asked_at: float | None = None

    def fileno(self) -> int:
        """Return the socket's number, for who waits on several."""
        return self._socket.fileno()

    def send(self, *command: str | bytes | int) -> None:
        """Write one command, without waiting for its answer."""
        try:
            self._socket.sendall(_pack(command))
        except OSError as error:
            raise translated(error, self.address) from error

    def read(self, timeout: float = 0.0) -> list[Any]:
        """Take what the socket has, waiting up to ``timeout`` seconds; return the answers in it."""
        if not wait_for([self], timeout):
            return []
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise translated(error, self.address) from error
        if not data:
            raise ConnectionLost(f"lost the broker at {self.address}: it closed the link")
        self._heard_at, self._asked_at = monotonic(), None
        return self._parse(data)

    def ask(self, *command: str | bytes | int) -> Any:
        """Write one command and return its answer; nothing else may be on its way."""
        self.send(*command)
        deadline = monotonic() + _PATIENCE
        while (left := deadline - monotonic()) > 0:
            answers = self.read(left)
            if answers:
                return answers[0]
        raise ConnectionLost(f"lost the broker at {self.address}: it did not answer in {_PATIENCE:.0f} s")

    def show_life(self) -> float:
        """Ask a silent link whether it lives, and return how long to wait before asking again."""
        now = monotonic()
        if wait_for([self], 0.0):
            return 0.0  # something is there to be read: who did not read it was us
        if self._asked_at is not None and now - self._asked_at >= _ANSWER:
            raise ConnectionLost(f"lost the broker at {self.address}: it has been silent")
        if self._asked_at is None and now - self._heard_at >= _SILENCE:
            self.send("PING")
            self._asked_at = now
        due = self._heard_at + _SILENCE if self._asked_at is None else self._asked_at + _ANSWER
        return max(0.0, due - now)

    def idle_for(self) -> float:
        """Return how long ago it was heard."""
        return monotonic() - self._heard_at

    def has_unread(self) -> bool:
        """Say whether the TLS layer holds bytes that waiting on the socket would not show."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0

    def close(self) -> None:
        """End the link."""
        self._connection.disconnect()

    def _parse(self, data: bytes) -> list[Any]:
        self._reader.feed(data)
        answers = []
        try:
            while (answer := self._reader.gets()) is not _NOTHING:
                if isinstance(answer, hiredis.ReplyError):
                    self._refuse(str(answer))
                answers.append(answer)
        except hiredis.ProtocolError as error:
            raise ConnectionLost(f"lost the broker at {self.address}: {error}") from error
        return answers

    def _refuse(self, text: str) -> None:
        if text.startswith(_REFUSALS):
            raise AccessRefused(f"the broker at {self.address} refused us: {text}")
        # READONLY after a fail-over, LOADING after a restart, OOM: a fresh link may do better.
        raise ConnectionLost(f"lost the broker at {self.address}: {text}")


def wait_for(links: Sequence[RedisLink], timeout: float) -> list[RedisLink]:
    """Return the links that have something to read, waiting up to ``timeout`` seconds for one."""
    unread = [link for link in links if link.has_unread()]
    if unread:
        return unread
    poll = select.poll()
    by_number = {link.fileno(): link for link in links}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(timeout * 1000)]
