"""The ids of revoked tasks: bounded in number and in age."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

__all__ = ["REVOKED_MAX_AGE", "REVOKED_MAX_SIZE", "RevokedSet"]

#: As many as a stock worker keeps; at 36 characters an id about 10 MB.
REVOKED_MAX_SIZE = 50_000
#: Three hours: longer than a message waits for redelivery by default.
REVOKED_MAX_AGE = 10_800.0


class RevokedSet:
    """Ids in the order they were revoked. ``now`` is any clock that does not go back.

    What a peer tells carries no age. So an id that grew too old here is remembered as
    such while peers go on telling it: nodes that greet each other for ever must not
    keep it revoked for ever.
    """

    def __init__(self, *, max_size: int = REVOKED_MAX_SIZE, max_age: float = REVOKED_MAX_AGE) -> None:
        self.max_size = max_size
        self.max_age = max_age
        self._revoked_at: OrderedDict[str, float] = OrderedDict()
        self._expired_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._revoked_at)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, the oldest first: the shape a ``hello`` carries."""
        return iter(self._revoked_at)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._revoked_at

    def add(self, task_id: str, *, now: float) -> None:
        """Revoke a task; if it was revoked before, its age begins anew."""
        self._expired_at.pop(task_id, None)
        _renew(self._revoked_at, task_id, now)
        self.purge(now=now)

    def merge(self, task_ids: Iterable[str], *, now: float) -> None:
        """Take over what a peer revoked; an id that we hold keeps its age."""
        self.purge(now=now)
        for task_id in task_ids:
            if task_id in self._expired_at:
                _renew(self._expired_at, task_id, now)
            else:
                self._revoked_at.setdefault(task_id, now)
        self.purge(now=now)

    def ages(self, *, now: float) -> list[tuple[str, float]]:
        """Return the ids, the oldest first, each with the seconds since it was revoked: what can be kept."""
        self.purge(now=now)
        return [(task_id, max(0.0, now - at)) for task_id, at in self._revoked_at.items()]

    def restore(self, ages: Iterable[tuple[str, float]], *, now: float) -> None:
        """Take back what :meth:`ages` returned in an earlier run; of two ages of one id the lesser counts."""
        for task_id, age in ages:
            at = now - max(0.0, age)
            self._revoked_at[task_id] = max(at, self._revoked_at.get(task_id, at))
        # What is too old is looked for at the beginning only.
        self._revoked_at = OrderedDict(sorted(self._revoked_at.items(), key=lambda entry: entry[1]))
        self.purge(now=now)

    def discard(self, task_id: str) -> None:
        """Forget one id."""
        self._revoked_at.pop(task_id, None)

    def purge(self, *, now: float) -> None:
        """Drop what is too old, and the oldest of what is too many."""
        for task_id in _drop_old(self._revoked_at, now - self.max_age):
            _renew(self._expired_at, task_id, now)
        _drop_old(self._expired_at, now - self.max_age)
        for moments in (self._revoked_at, self._expired_at):
            while len(moments) > self.max_size:
                moments.popitem(last=False)


def _renew(moments: OrderedDict[str, float], task_id: str, now: float) -> None:
    moments[task_id] = now
    moments.move_to_end(task_id)


def _drop_old(moments: OrderedDict[str, float], until: float) -> list[str]:
    """Take out and return the ids with a moment not after ``until``."""
    dropped = []
    while moments and next(iter(moments.values())) <= until:
        dropped.append(moments.popitem(last=False)[0])
    return dropped
