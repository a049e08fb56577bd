"""One socket to Redis, with hiredis to parse what comes from it."""

import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

import hiredis
from redis.exceptions import RedisError

from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.transport.kombu_link import translated
from celeriac.transport.readiness import File, wait_readable

__all__ = ["Command", "RedisLink", "wait_for"]

Command = tuple[str | bytes | int, ...]

_READ_BYTES: Final = 256 * 1024
#: How long a command may wait to be written, and its answer to be read, before the link counts as lost.
_PATIENCE: Final = 10.0
#: A link that said nothing for so long is asked whether it lives, and has so long to answer.
_SILENCE, _ANSWER = 15.0, 5.0
# Its types leave out that a command has any number of words.
_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]
_NOTHING: Final = object()
#: How Redis begins to say that we may not.
_REFUSALS: Final = ("NOAUTH", "NOPERM", "WRONGPASS")


class RedisLink:
    """A link as a pool makes them, used directly: commands are written, answers read as they come.

    ``peer`` is what it leads to, in messages for people.
    """

    def __init__(self, pool: Any, address: str, peer: str = "broker") -> None:
        self.address = address
        self.peer = peer
        #: Whether somebody was told that it is.
        self.is_lost = False
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        try:
            # redis-py signs in, selects the database and sets up TLS; then the socket is ours.
            # Not made by the pool itself, which counts how many it ever made.
            self._connection = pool.connection_class(**pool.connection_kwargs)
            self._connection.connect()
        except (RedisError, OSError) as error:
            raise translated(error, address, peer) from error
        self._socket: socket.socket = self._connection._sock  # noqa: SLF001
        self._socket.settimeout(_PATIENCE)
        self._heard_at = monotonic()
        self._asked_at: float | None = None
        #: Whether to be refused is an answer like others.
        self._may_be_refused = False

    def fileno(self) -> int:
        """Return the socket's number, for who waits on several."""
        return self._socket.fileno()

    def send(self, *command: str | bytes | int) -> None:
        """Write one command, without waiting for its answer."""
        self._write(_pack(command))

    def send_all(self, commands: Sequence[Command]) -> None:
        """Write commands in one go, without waiting for their answers."""
        self._write(b"".join([_pack(command) for command in commands]))

    def read(self, timeout: float = 0.0) -> list[Any]:
        """Take what the socket has, waiting up to ``timeout`` seconds; return the answers in it."""
        return self.take() if wait_for([self], timeout) else []

    def take(self, most: int = _READ_BYTES) -> list[Any]:
        """Take up to so many bytes, for who knows that there are some; return the answers in them."""
        try:
            data = self._socket.recv(most)
        except OSError as error:
            self.is_lost = True
            raise translated(error, self.address, self.peer) from error
        if not data:
            raise self._lost("connection closed by the server")
        self._heard_at, self._asked_at = monotonic(), None
        return self._parse(data)

    def ask(self, *command: str | bytes | int) -> Any:
        """Write one command and return its answer; nothing else may be on its way."""
        return self.exchange([command], timeout=_PATIENCE)[0]

    def attempt(self, *commands: Command) -> str:
        """Write commands that may be refused, and return why the first was that was; empty if none."""
        answers = self._attempt(commands, timeout=_PATIENCE)
        return next((str(answer) for answer in answers if isinstance(answer, hiredis.ReplyError)), "")

    def attempt_all(self, commands: Sequence[Command], *, timeout: float) -> list[Any]:
        """Write commands that may be refused, and return their answers; None for one that was."""
        answers = self._attempt(commands, timeout=timeout)
        return [None if isinstance(answer, hiredis.ReplyError) else answer for answer in answers]

    def exchange(self, commands: Sequence[Command], *, timeout: float) -> list[Any]:
        """Write commands in one go and return their answers; nothing else may be on its way."""
        deadline = monotonic() + timeout
        # At no time at all a socket would not wait, and say so in another way.
        self._socket.settimeout(max(timeout, 0.001))
        self.send_all(commands)
        answers: list[Any] = []
        while len(answers) < len(commands):
            left = deadline - monotonic()
            if left <= 0:
                raise self._lost(f"no answer within {timeout:.3g} s")
            # What the server says unasked is no answer.
            answers += [reply for reply in self.read(left) if type(reply) is not hiredis.PushNotification]
        return answers

    def show_life(self) -> float:
        """Ask a silent link whether it lives, and return how long to wait before asking again."""
        now = monotonic()
        due = self._heard_at + _SILENCE if self._asked_at is None else self._asked_at + _ANSWER
        if now < due:
            return due - now
        if wait_for([self], 0.0):
            return 0.0  # something is there to be read: who did not read it was us
        if self._asked_at is not None:
            raise self._lost("silent for too long")
        self.send("PING")
        self._asked_at = now
        return _ANSWER

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

    def _attempt(self, commands: Sequence[Command], *, timeout: float) -> list[Any]:
        self._may_be_refused = True
        try:
            return self.exchange(commands, timeout=timeout)
        finally:
            self._may_be_refused = False

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            self.is_lost = True
            raise translated(error, self.address, self.peer) from error

    def _parse(self, data: bytes) -> list[Any]:
        self._reader.feed(data)
        answers = []
        try:
            while (answer := self._reader.gets()) is not _NOTHING:
                if isinstance(answer, hiredis.ReplyError) and not self._may_be_refused:
                    self._refuse(str(answer))
                answers.append(answer)
        except hiredis.ProtocolError as error:
            raise self._lost(str(error)) from error
        return answers

    def _refuse(self, text: str) -> None:
        if text.startswith(_REFUSALS):
            raise AccessRefused(f"access refused by the {self.peer} at {self.address}: {text}")
        # READONLY after a fail-over, LOADING after a restart, OOM: a fresh link may do better.
        raise self._lost(text)

    def _lost(self, text: str) -> ConnectionLost:
        self.is_lost = True
        return ConnectionLost(f"lost the {self.peer} at {self.address}: {text}")


_File = TypeVar("_File", bound=File)


def wait_for(files: Sequence[_File], timeout: float) -> list[_File]:
    """Return those that have something to read, waiting up to ``timeout`` seconds for one."""
    unread: list[_File] = [file for file in files if isinstance(file, RedisLink) and file.has_unread()]
    return unread or wait_readable(files, timeout)
