"""The clock of a Redis server, which all its clients share: that of a host may be wrong by hours."""

from time import monotonic, time
from typing import Any, Final, Self

from celeriac.transport.redis_link import RedisLink

__all__ = ["RedisClock"]

_PATIENCE: Final = 10.0


class RedisClock:
    """The time of a server, advanced by our monotonic clock; our own time until the server has answered.

    A worker records when it took a message, and others return the message once that is long ago. By the
    clocks of their hosts, one that is set forward would take the messages that all others hold.
    """

    def __init__(self) -> None:
        #: By how much the server's clock is ahead of our monotonic clock.
        self._offset: float | None = None

    @classmethod
    def of(cls, link: RedisLink) -> Self:
        """Return the clock of the server at the other end; ours if this user may not ask for it."""
        clock = cls()
        (answer,) = link.attempt_all([("TIME",)], timeout=_PATIENCE)
        if answer is not None:
            clock.set(answer)
        return clock

    @property
    def is_known(self) -> bool:
        """Whether the server has answered TIME, so that it may be asked again."""
        return self._offset is not None

    def now(self) -> float:
        """Return the time of day."""
        return time() if self._offset is None else self._offset + monotonic()

    def set(self, answer: Any) -> None:
        """Take what the server answers to TIME: seconds, and microseconds."""
        seconds, microseconds = map(int, answer)
        self._offset = seconds + microseconds / 1e6 - monotonic()
