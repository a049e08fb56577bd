"""Failures of the loop that drains results: each is logged once, and one that stays ends the waits."""

import logging
from typing import Final

from celeriac.errors import CeleriacError

__all__ = ["FAILURE_LIMIT", "DrainFailures"]

logger = logging.getLogger(__name__)

#: Unexpected errors in a row before all waits get the error. With a lower limit a fault that
#: passes ends waits for nothing; with a higher one a fault that stays is reported later.
FAILURE_LIMIT: Final = 5


class DrainFailures:
    """The failures since the connection was last good.

    An :class:`OSError`, which a lost connection is, passes by itself sooner or later: it never ends a wait.
    """

    def __init__(self) -> None:
        self._is_loss_logged = False
        self._count = 0
        self._logged = ""

    def reset(self) -> None:
        """Forget the errors: the connection was good in between."""
        self._count, self._logged = 0, ""

    def log_loss(self, error: OSError) -> None:
        """Log that results cannot come now: once until :meth:`log_return`, however many attempts fail."""
        if not self._is_loss_logged:
            self._is_loss_logged = True
            logger.warning("results: no connection to the result store: %s", error)

    def log_return(self) -> None:
        """Log that results come again, if their loss was logged."""
        if self._is_loss_logged:
            self._is_loss_logged = False
            logger.info("results: connected to the result store again")

    def add(self, error: BaseException) -> CeleriacError | None:
        """Log an error that a turn raised, or a kill, unless it equals the one before.

        Returns the error that ends all waits, or None as long as another try may help.
        """
        if isinstance(error, OSError):
            self.log_loss(error)
            return None
        text = f"{type(error).__name__}: {error}"
        if text != self._logged:
            self._logged = text
            if isinstance(error, Exception):
                logger.error("results: draining failed, reconnecting: %s", text, exc_info=error)
            else:  # a traceback of the kill says nothing
                logger.error(
                    "results: the background thread or greenlet was killed by %r; starting another", error
                )
        self._count += 1
        if self._count < FAILURE_LIMIT:
            return None
        self._count = 0
        failure = CeleriacError(
            f"draining results failed {FAILURE_LIMIT} times in a row: {text}; the task may still end, so fix "
            "the cause and wait for its result again"
        )
        failure.__cause__ = error
        return failure
