"""The health of the connection over which results come."""

from typing import NamedTuple

__all__ = ["Health"]


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
