"""Log lines that peers can cause: at most one a minute of each kind."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

__all__ = ["RateLimitedLog"]

#: Seconds between two lines of one kind.
_INTERVAL: Final = 60.0
#: Kinds that are remembered at a time: a kind may hold text from a peer. Lines of further kinds are dropped.
_MAX_KINDS: Final = 20


class RateLimitedLog:
    """Writes a line of each kind to a logger at most once a minute, from any thread."""

    def __init__(self, logger: logging.Logger, *, now: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._now = now
        self._mutex = Lock()
        #: When a line of each kind was written, oldest first.
        self._written_at: OrderedDict[str, float] = OrderedDict()

    def write(
        self, level: int, kind: str, text: str, *arguments: object, exc_info: BaseException | None = None
    ) -> None:
        """Write a line, unless one of its kind was written in the last minute."""
        if self.is_due(kind):
            self._logger.log(level, text, *arguments, exc_info=exc_info)

    def is_due(self, kind: str) -> bool:
        """Return whether a line of a kind may be written now; it then counts as written."""
        now = self._now()
        with self._mutex:
            while self._written_at and now - next(iter(self._written_at.values())) >= _INTERVAL:
                self._written_at.popitem(last=False)
            if kind in self._written_at or len(self._written_at) >= _MAX_KINDS:
                return False
            self._written_at[kind] = now
        return True
