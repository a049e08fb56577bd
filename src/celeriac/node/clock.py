"""The Lamport clock for several threads."""

from collections.abc import Iterable
from threading import RLock

from celeriac.core.clock import MAX_JUMP, LamportClock

__all__ = ["SharedClock"]


class SharedClock(LamportClock):
    """A :class:`LamportClock` for any number of threads: no stamp is given out twice."""

    def __init__(self, initial_value: int = 0, *, max_jump: int = MAX_JUMP) -> None:
        super().__init__(initial_value, max_jump=max_jump)
        # Re-entrant, because the rules call each other: to receive is to adjust is to forward.
        self._mutex = RLock()

    def forward(self) -> int:
        """Count one event of our own, and return its stamp."""
        with self._mutex:
            return super().forward()

    def adjust(self, other: object) -> int:
        """Move past a clock from a source we trust, and return the new value."""
        with self._mutex:
            return super().adjust(other)

    def receive(self, other: object, *, peer: str, alive: int = 0) -> bool:
        """Move past the clock of a message from the node ``peer``; say if it was adopted."""
        with self._mutex:
            return super().receive(other, peer=peer, alive=alive)

    def receive_client(self) -> int:
        """Stamp an event of a client, and move on."""
        with self._mutex:
            return super().receive_client()

    def start(self, replies: Iterable[object], *, persisted: object = 0) -> int:
        """Begin where the cluster and our own last run left off."""
        with self._mutex:
            return super().start(replies, persisted=persisted)
