"""The revoked tasks of a node, for several threads."""

from collections.abc import Iterable, Iterator
from threading import RLock
from time import monotonic

from celeriac.core.revoked import REVOKED_MAX_AGE, REVOKED_MAX_SIZE, RevokedSet

__all__ = ["SharedRevokedSet"]


class SharedRevokedSet(RevokedSet):
    """A :class:`RevokedSet` for any number of threads: an iteration sees it as of one moment.

    ``now`` is the time of ``time.monotonic()``, which is read where it is not given.
    """

    def __init__(self, *, max_size: int = REVOKED_MAX_SIZE, max_age: float = REVOKED_MAX_AGE) -> None:
        super().__init__(max_size=max_size, max_age=max_age)
        # Re-entrant, because the rules call each other: to add is to purge.
        self._mutex = RLock()

    def __iter__(self) -> Iterator[str]:
        with self._mutex:
            return iter(list(super().__iter__()))

    def add(self, task_id: str, *, now: float | None = None) -> None:
        """Revoke a task; if it was revoked before, its age begins anew."""
        with self._mutex:
            super().add(task_id, now=monotonic() if now is None else now)

    def merge(self, task_ids: Iterable[str], *, now: float | None = None, peer: str = "") -> None:
        """Take over what a peer revoked; an id that we hold keeps its age."""
        with self._mutex:
            super().merge(task_ids, now=monotonic() if now is None else now, peer=peer)

    def ages(self, *, now: float | None = None) -> list[tuple[str, float]]:
        """Return the ids, the oldest first, each with the seconds since it was revoked."""
        with self._mutex:
            return super().ages(now=monotonic() if now is None else now)

    def restore(self, ages: Iterable[tuple[str, float]], *, now: float | None = None) -> None:
        """Take back what :meth:`ages` returned in an earlier run."""
        with self._mutex:
            super().restore(ages, now=monotonic() if now is None else now)

    def discard(self, task_id: str) -> None:
        """Forget one id."""
        with self._mutex:
            super().discard(task_id)

    def purge(self, *, now: float | None = None) -> None:
        """Drop what is too old, and the oldest of what is too many."""
        with self._mutex:
            super().purge(now=monotonic() if now is None else now)
