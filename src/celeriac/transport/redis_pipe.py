"""A link to Redis on which nobody waits for an answer: each is read when it comes, by who asked."""

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import hiredis

from celeriac.errors import ConnectionLost
from celeriac.transport.redis_link import Command, RedisLink, wait_for

__all__ = ["RedisPipe"]

#: How long an answer may take, with nothing else coming before it.
_PATIENCE: Final = 10.0
#: A link that said nothing for so long is asked whether it lives.
_SILENCE: Final = 15.0

Then = Callable[[Any], object]


class RedisPipe:
    """Commands that are written together, and what is done with their answers.

    ``notice`` is called for what the server says unasked.
    """

    def __init__(self, link: RedisLink, notice: Callable[[], object]) -> None:
        self.link = link
        self._notice = notice
        self._unwritten: list[Command] = []
        #: What is done with the answers to come, in their order.
        self._awaited: deque[Then] = deque()
        self._waits_since = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether there are answers to come."""
        return bool(self._awaited)

    def ask(self, *command: str | bytes | int, then: Then | None = None) -> None:
        """Have a command written with the next :meth:`flush`, and its answer given to ``then``."""
        if not self._awaited:
            self._waits_since = monotonic()
        self._unwritten.append(command)
        self._awaited.append(then or _ignore)

    def flush(self) -> None:
        """Write what is to be written."""
        if self._unwritten:
            commands, self._unwritten = self._unwritten, []
            self.link.send_all(commands)

    def receive(self, replies: list[Any]) -> None:
        """Hand the answers in what was read to who asked; they may ask more."""
        self._waits_since = monotonic()
        for reply in replies:
            if type(reply) is hiredis.PushNotification:
                self._notice()
            elif self._awaited:
                self._awaited.popleft()(reply)
            else:
                raise self._lost("unexpected reply")

    def finish(self, timeout: float) -> None:
        """Write what is to be written, and wait until all is answered."""
        deadline = monotonic() + timeout
        self.flush()
        while self._awaited:
            left = deadline - monotonic()
            if left <= 0:
                raise self._lost("no answer in time")
            self.receive(self.link.read(left))
            self.flush()

    def patience(self) -> float:
        """Return how long to wait before calling this again; raise ConnectionLost if it was too long."""
        if not self._awaited:
            if (left := _SILENCE - self.link.idle_for()) > 0:
                return left
            self.ask("PING")
            self.flush()
        left = self._waits_since + _PATIENCE - monotonic()
        if left > 0:
            return left
        if wait_for([self.link], 0.0):
            return 0.0  # something is there to be read: who did not read it was us
        raise self._lost("silent for too long")

    def _lost(self, text: str) -> ConnectionLost:
        return ConnectionLost(f"lost the {self.link.peer} at {self.link.address}: {text}")


def _ignore(_: object) -> None:
    """Be content that an answer came, and was no error."""
