"""The ids of revoked tasks: bounded in number and in age."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

__all__ = ["REVOKED_MAX_AGE", "REVOKED_MAX_SIZE", "RevokedSet"]

#: As many as a stock worker keeps; at 36 characters an id about 10 MB.
REVOKED_MAX_SIZE = 50_000
#: Three hours: longer than a message waits for redelivery by default.
REVOKED_MAX_AGE = 10_800.0


class RevokedSet:
    """Ids in the order they were revoked. ``now`` is any clock that does not go back."""

    def __init__(self, *, max_size: int = REVOKED_MAX_SIZE, max_age: float = REVOKED_MAX_AGE) -> None:
        self.max_size = max_size
        self.max_age = max_age
        self._revoked_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._revoked_at)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, the oldest first: the shape a ``hello`` carries."""
        return iter(self._revoked_at)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._revoked_at

    def add(self, task_id: str, *, now: float) -> None:
        """Revoke a task; if it was revoked before, its age begins anew."""
        self._revoked_at.pop(task_id, None)
        self._revoked_at[task_id] = now
        self.purge(now=now)

    def merge(self, task_ids: Iterable[str], *, now: float) -> None:
        """Take over what a peer revoked.

        An id we already hold keeps its age: nodes that greet each other for ever
        must not keep it alive for ever.
        """
        for task_id in task_ids:
            self._revoked_at.setdefault(task_id, now)
        self.purge(now=now)

    def discard(self, task_id: str) -> None:
        """Forget one id."""
        self._revoked_at.pop(task_id, None)

    def purge(self, *, now: float) -> None:
        """Drop what is too old, and the oldest of what is too many."""
        revoked_at = self._revoked_at
        while revoked_at:
            task_id, moment = next(iter(revoked_at.items()))
            if len(revoked_at) <= self.max_size and now - moment < self.max_age:
                break
            del revoked_at[task_id]
