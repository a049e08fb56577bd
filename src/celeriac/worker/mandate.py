"""What whoever won an election may do, and for how long."""

from collections.abc import Callable
from time import monotonic

from celeriac.model.election import Election, Level

__all__ = ["Mandate"]


class Mandate:
    """Argument of an election handler: the fencing token for its writes, and its deadline."""

    def __init__(self, election: Election, token: int, level: Level, deadline: Callable[[], float]) -> None:
        self.id = election.id
        self.topic = election.topic
        self.mode = election.mode
        #: Higher than that of every grant before: who takes what we write refuses lower ones.
        self.token = token
        #: How far the promise of one winner holds.
        self.level = level
        self._deadline = deadline

    def __repr__(self) -> str:
        return f"<Mandate for {self.id} on {self.topic}, token {self.token}, level {self.level.name}>"

    def deadline(self) -> float:
        """Return the time before which no other node can be elected, by the monotonic clock.

        Infinite in mode ``once``.
        """
        return self._deadline()

    def still_leader(self) -> bool:
        """Return whether no other node can have been elected yet."""
        return monotonic() < self._deadline()
