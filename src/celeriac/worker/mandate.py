"""What whoever won an election may do, and for how long."""

from collections.abc import Callable
from time import monotonic

from celeriac.model.election import Election, Level

__all__ = ["Mandate"]


class Mandate:
    """Given to the handler of an election: the token to fence what it writes, and the time it has."""

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
        """Return until when nobody else can be elected, by the monotonic clock; infinite in mode ``once``."""
        return self._deadline()

    def still_leader(self) -> bool:
        """Say whether nobody else can have been elected, at this very moment."""
        return monotonic() < self._deadline()
