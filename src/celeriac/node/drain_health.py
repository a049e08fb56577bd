"""The health of the connection over which results come."""

from typing import NamedTuple

from celeriac.core.waiting import WaitingList

__all__ = ["Health", "health_of"]


class Health(NamedTuple):
    """How the link to the results is."""

    #: ``down``, ``resync`` (back, and catching up) or ``up``.
    phase: str
    #: Why it is not up, if something went wrong.
    last_error: str | None
    #: Tries to come back since it was last good.
    attempts: int
    #: Tasks and waiters at present.
    watched: int
    waiters: int
    #: States that came again or too late, and those forgotten before anybody asked, for want of room.
    duplicates: int
    overflowed: int


def health_of(waiting: WaitingList, error: Exception | None, attempts: int) -> Health:
    """Return the health of a connection, from its waiting list and its failed attempts."""
    return Health(
        phase=waiting.phase,
        last_error=None if error is None else str(error),
        attempts=attempts,
        watched=waiting.watched,
        waiters=waiting.waiters,
        duplicates=waiting.duplicates,
        overflowed=waiting.overflowed,
    )
