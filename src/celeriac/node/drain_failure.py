"""Failures of the loop that drains results: each is logged once, and one that stays ends the waits."""

import logging
from typing import Final

from celeriac.errors import CeleriacError

__all__ = ["FAILURE_LIMIT", "FAILURE_SPAN", "DrainFailures", "drain_error"]

logger = logging.getLogger(__name__)

#: Unexpected errors in a row before all waits get the error, and the seconds between the first and the last.
#: With a lower limit or a shorter span a fault that passes ends waits for nothing; with a higher limit or a
#: longer span a fault that stays is reported later.
FAILURE_LIMIT: Final = 5
FAILURE_SPAN: Final = 5.0


def drain_error(text: str, cause: BaseException) -> CeleriacError:
    """Return the error that ends all waits, with its cause."""
    error = CeleriacError(f"{text}; the task may still finish: fix the cause, then wait for the result again")
    error.__cause__ = cause
    return error


class DrainFailures:
    """The failures since the connection was last good.

    A :class:`ConnectionError` is a lost connection, which comes back sooner or later: it never ends a wait.
    """

    def __init__(self) -> None:
        self._is_loss_logged = False
        self._count, self._first_at = 0, 0.0
        self._logged = ""

    def reset(self) -> None:
        """Forget the errors: the connection was good in between."""
        self._count, self._logged = 0, ""

    def log_loss(self, error: ConnectionError) -> None:
        """Log that results cannot come now: once until :meth:`log_return`, however many attempts fail."""
        if not self._is_loss_logged:
            self._is_loss_logged = True
            logger.warning("results: no connection to the result store: %s", error)

    def log_return(self) -> None:
        """Log that results come again, if their loss was logged."""
        if self._is_loss_logged:
            self._is_loss_logged = False
            logger.info("results: connected to the result store again")

    def add(self, error: BaseException, now: float) -> CeleriacError | None:
        """Log an error that a turn raised, or a kill, unless it equals the one before.

        Returns the error that ends all waits, or None as long as another try may help.
        """
        if isinstance(error, ConnectionError):
            self.log_loss(error)
            return None
        text = f"{type(error).__name__}: {error}"
        if text != self._logged:
            self._logged = text
            if isinstance(error, Exception):
                # Celery: an error of the system is a warning.
                level = logging.WARNING if isinstance(error, OSError) else logging.ERROR
                logger.log(level, "results: draining failed, reconnecting: %s", text, exc_info=error)
            else:  # a traceback of the kill says nothing
                logger.error(
                    "results: the background thread or greenlet was killed by %r; starting another", error
                )
        if self._count == 0:
            self._first_at = now
        self._count += 1
        span = now - self._first_at
        if self._count < FAILURE_LIMIT or span < FAILURE_SPAN:
            return None
        failure = drain_error(f"draining results failed {self._count} times in {span:.0f} s: {text}", error)
        self._count = 0
        return failure
