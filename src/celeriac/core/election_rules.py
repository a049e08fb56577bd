"""What is true of all elections of one node, and how long a lease may be used."""

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

__all__ = ["CLOCK_ERROR", "Grants", "Rules", "deadline_of"]

#: How far rates of clocks may differ: 2 %, a hundred times what quartz does.
CLOCK_ERROR: Final = 0.02
#: A part of a lease that is left unused, for the way from the check to what it guards.
GUARD: Final = 0.02
#: Grants that are remembered as acted on.
MAX_GRANTS: Final = 100_000


class Rules(NamedTuple):
    """What is true of all elections of one node."""

    #: ``hostname.pid``.
    name: str
    #: Name and boot: a process that was started anew never resumes an old claim.
    owner: str
    #: Numbers from 0 to 1.
    random: Callable[[], float]
    #: Who else is there, as ``hostname.pid``; and whether one of them is Celery's.
    alive: Callable[[], Collection[str]] = tuple
    has_celery: Callable[[], bool] = bool
    #: Whether to act though workers of Celery take part, which ask no arbiter.
    acts_beside_celery: bool = False


class Grants:
    """The grants that one boot of a node has acted on: each is acted on once."""

    def __init__(self) -> None:
        self._acted: OrderedDict[tuple[str, int], None] = OrderedDict()

    def add(self, id: str, token: int) -> bool:  # noqa: A002 (the noun of the messages)
        """Note that a grant is acted on; say whether that is new."""
        if (id, token) in self._acted:
            return False
        self._acted[id, token] = None
        if len(self._acted) > MAX_GRANTS:
            self._acted.popitem(last=False)
        return True


def deadline_of(sent_at: float, ttl: float) -> float:
    """Return until when a lease may be used that was asked for at ``sent_at``, by the asker's clock.

    From when it was sent, not answered: the arbiter counts from some moment between the two. Shorter by
    twice what clocks may differ: then the arbiter's own end is later, whichever of the clocks is slow.
    """
    return sent_at + ttl * (1 - 2 * CLOCK_ERROR - GUARD)
