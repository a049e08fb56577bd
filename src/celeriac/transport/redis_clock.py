"""The clock of a Redis server, which all its clients share: that of a host may be wrong by hours."""

from time import monotonic, time
from typing import Any, Final, Self

from celeriac.transport.redis_link import RedisLink

__all__ = ["RedisClock"]

_PATIENCE: Final = 10.0


class RedisClock:
    """The time of day of a server, counted on by our monotonic clock; ours while the server's is not known.

    Who holds a message writes down when, and others put it back once that is long ago. With clocks of their
    own, one host whose clock is set forward would take away what all others hold.
    """

    def __init__(self) -> None:
        #: What the server's clock is ahead of our monotonic one.
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
        """Whether the server has told its time, and so may be asked again."""
        return self._offset is not None

    def now(self) -> float:
        """Return the time of day."""
        return time() if self._offset is None else self._offset + monotonic()

    def set(self, answer: Any) -> None:
        """Take what the server answers to TIME: seconds, and microseconds."""
        seconds, microseconds = map(int, answer)
        self._offset = seconds + microseconds / 1e6 - monotonic()
