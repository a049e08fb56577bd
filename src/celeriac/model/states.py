"""Task states and their precedence.

A state is plain text, so custom states (``PROGRESS``) are as good as the
built-in ones. :class:`state` is that text with an order::

    >>> state(PENDING) < state(STARTED) < state("PROGRESS") < state(SUCCESS)
    True
"""

__all__ = [
    "ALL_STATES",
    "BUILT_IN_STATES",
    "EXCEPTION_STATES",
    "FAILURE",
    "IGNORED",
    "PENDING",
    "PRECEDENCE",
    "PROPAGATE_STATES",
    "READY_STATES",
    "RECEIVED",
    "REJECTED",
    "RETRY",
    "REVOKED",
    "STARTED",
    "SUCCESS",
    "UNREADY_STATES",
    "precedence",
    "state",
]

#: Known by its id alone, or sent and not yet received.
PENDING = "PENDING"
#: A worker holds it and has not begun.
RECEIVED = "RECEIVED"
#: A worker is running it.
STARTED = "STARTED"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"
#: Cancelled: before it began, by termination, or because it expired.
REVOKED = "REVOKED"
#: A worker gave it back to the broker or dropped it.
REJECTED = "REJECTED"
#: Failed, and will be tried again.
RETRY = "RETRY"
#: Ended without storing a result.
IGNORED = "IGNORED"

#: Highest first. None holds the place of every custom state.
PRECEDENCE: tuple[str | None, ...] = (
    SUCCESS,
    FAILURE,
    None,
    REVOKED,
    STARTED,
    RECEIVED,
    REJECTED,
    RETRY,
    PENDING,
)
_PLACE = {name: place for place, name in enumerate(PRECEDENCE)}
_CUSTOM_PLACE = _PLACE[None]

#: The states that are not custom.
BUILT_IN_STATES = frozenset(name for name in PRECEDENCE if name is not None)
#: The task has ended.
READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})
#: The task has not ended.
UNREADY_STATES = frozenset({PENDING, RECEIVED, STARTED, REJECTED, RETRY})
#: The result is an exception.
EXCEPTION_STATES = frozenset({RETRY, FAILURE, REVOKED})
#: Waiting for the result raises that exception.
PROPAGATE_STATES = frozenset({FAILURE, REVOKED})
#: The seven states a result backend may hold.
ALL_STATES = frozenset({PENDING, RECEIVED, STARTED, SUCCESS, FAILURE, RETRY, REVOKED})


def precedence(name: str | None) -> int:
    """Return the place of a state in :data:`PRECEDENCE`: the lower, the further along."""
    return _PLACE.get(name, _CUSTOM_PLACE)


class state(str):  # noqa: N801 - the public name is Celery's
    """A task state that compares by precedence; equality is that of text."""

    __slots__ = ()

    def __gt__(self, other: str) -> bool:
        return precedence(self) < precedence(other)

    def __ge__(self, other: str) -> bool:
        return precedence(self) <= precedence(other)

    def __lt__(self, other: str) -> bool:
        return precedence(self) > precedence(other)

    def __le__(self, other: str) -> bool:
        return precedence(self) >= precedence(other)
