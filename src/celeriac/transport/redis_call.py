"""Calls to a Redis server by whoever likes: a link is taken for each, and put back."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

from celeriac.errors import ConnectionLost
from celeriac.transport.redis_dial import RedisDialer
from celeriac.transport.redis_link import Command, RedisLink, wait_for

__all__ = ["Call", "RedisCaller"]

_T = TypeVar("_T")

#: Links kept for the next calls: more are needed for a moment only.
_MAX_IDLE: Final = 8


class RedisCaller:
    """Links to one server, for any number of threads and greenlets at once.

    ``greet`` is called with each new link before anything else is done with it, within the same call.
    """

    def __init__(self, dialer: RedisDialer, greet: "Callable[[Call], object] | None" = None) -> None:
        self._dialer = dialer
        self._greet = greet
        # A deque needs no lock: it is left and entered at one end in one step.
        self._idle: deque[RedisLink] = deque()
        self._is_closed = False

    def do(self, work: "Callable[[Call], _T]", timeout: float) -> _T:
        """Do something with a link: one that is idle or else a new one; twice, if the idle one is lost."""
        deadline = monotonic() + timeout
        idle = self._taken()
        # A link that has something to say while nobody asked has been closed.
        while idle is not None and wait_for([idle], 0.0):
            idle.close()
            idle = self._taken()
        if idle is not None:
            try:
                return self._use(idle, work, deadline)
            except ConnectionLost:
                # It may have been gone for long, where nobody told us.
                if monotonic() >= deadline:
                    raise
        dialer = self._dialer
        link = dialer.dial(_left(deadline, dialer.peer.name, dialer.address))
        return self._use(link, work, deadline, self._greet)

    def close(self) -> None:
        """End the links; those in use end with their calls. Closing twice is fine."""
        self._is_closed = True
        while (link := self._taken()) is not None:
            link.close()

    def _use(
        self,
        link: RedisLink,
        work: "Callable[[Call], _T]",
        deadline: float,
        greet: "Callable[[Call], object] | None" = None,
    ) -> _T:
        call = Call(link, deadline)
        try:
            if greet is not None:
                greet(call)
            done = work(call)
        except BaseException:
            # What is still on its way, if the call was left halfway, must not be taken for the next answer.
            link.close()
            raise
        self._idle.append(link)
        while len(self._idle) > (0 if self._is_closed else _MAX_IDLE):
            with suppress(IndexError):  # another was quicker
                self._idle.popleft().close()
        return done

    def _taken(self) -> RedisLink | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


class Call:
    """One call, with a link and an end."""

    def __init__(self, link: RedisLink, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def exchange(self, *commands: Command) -> list[Any]:
        """Write commands and return their answers, within what is left of the time."""
        return self._link.exchange(commands, timeout=self._left())

    def attempt(self, *commands: Command) -> list[Any]:
        """As :meth:`exchange`, with None for the answer to a command that was refused."""
        return self._link.attempt_all(commands, timeout=self._left())

    def _left(self) -> float:
        return _left(self._deadline, self._link.peer, self._link.address)


def _left(deadline: float, peer: str, address: str) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise ConnectionLost(f"the {peer} at {address} did not answer in time")
    return left
