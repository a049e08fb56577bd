"""The ids of revoked tasks: bounded in number and in age.

Whoever reaches the broker can send a ``hello`` with any number of ids. So when the set is full, the peer that
most ids came from loses its oldest one: no peer can push out the revocations of others. Ids that were revoked
here go last.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import nlargest

__all__ = ["REVOKED_MAX_AGE", "REVOKED_MAX_SIZE", "RevokedSet"]

#: As many as a stock worker keeps; at 36 characters an id about 10 MB.
REVOKED_MAX_SIZE = 50_000
#: Three hours: longer than a message waits for redelivery by default.
REVOKED_MAX_AGE = 10_800.0
#: Peers whose ids are counted apart; those of further peers count as of one.
_MAX_PEERS = 100


class RevokedSet:
    """Ids in the order in which they were revoked. ``now`` is any monotonic clock.

    Ids from peers have no age. Therefore an id that expired here is remembered as
    expired while peers still send it: otherwise nodes that greet each other would keep it revoked
    indefinitely.
    """

    def __init__(self, *, max_size: int = REVOKED_MAX_SIZE, max_age: float = REVOKED_MAX_AGE) -> None:
        self.max_size = max_size
        self.max_age = max_age
        self._revoked_at: OrderedDict[str, float] = OrderedDict()
        self._expired_at: OrderedDict[str, float] = OrderedDict()
        #: The ids that came from each peer, the oldest first; and the peer of each.
        self._learned: dict[str, OrderedDict[str, None]] = {}
        self._peers: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._revoked_at)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, the oldest first: the shape a ``hello`` carries."""
        return iter(self._revoked_at)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._revoked_at

    def add(self, task_id: str, *, now: float) -> None:
        """Revoke a task; if it was revoked before, its age restarts."""
        self._expired_at.pop(task_id, None)
        self._forget_peer(task_id)
        _renew(self._revoked_at, task_id, now)
        self.purge(now=now)

    def merge(self, task_ids: Iterable[str], *, now: float, peer: str = "") -> None:
        """Add the ids that a peer revoked; known ids keep their age."""
        self.purge(now=now)
        if peer not in self._learned and len(self._learned) >= _MAX_PEERS:
            peer = ""
        for task_id in task_ids:
            if task_id in self._expired_at:
                _renew(self._expired_at, task_id, now)
            elif task_id not in self._revoked_at:
                self._revoked_at[task_id] = now
                self._peers[task_id] = peer
                self._learned.setdefault(peer, OrderedDict())[task_id] = None
        self.purge(now=now)

    def ages(self, *, now: float) -> list[tuple[str, float]]:
        """Return the ids, the oldest first, each with the seconds since it was revoked, for storage."""
        self.purge(now=now)
        return [(task_id, max(0.0, now - at)) for task_id, at in self._revoked_at.items()]

    def restore(self, ages: Iterable[tuple[str, float]], *, now: float) -> None:
        """Restore the result of :meth:`ages` of an earlier run; of two ages of one id the lower counts."""
        for task_id, age in ages:
            at = now - max(0.0, age)
            self._revoked_at[task_id] = max(at, self._revoked_at.get(task_id, at))
        # What is too old is looked for at the beginning only.
        self._revoked_at = OrderedDict(sorted(self._revoked_at.items(), key=lambda entry: entry[1]))
        self.purge(now=now)

    def discard(self, task_id: str) -> None:
        """Forget one id."""
        self._revoked_at.pop(task_id, None)
        self._forget_peer(task_id)

    def purge(self, *, now: float) -> None:
        """Remove expired ids, and beyond the limit the oldest of the peer that sent the most."""
        for task_id in _drop_old(self._revoked_at, now - self.max_age):
            self._forget_peer(task_id)
            _renew(self._expired_at, task_id, now)
        _drop_old(self._expired_at, now - self.max_age)
        while len(self._revoked_at) > self.max_size:
            self._drop_surplus(len(self._revoked_at) - self.max_size)
        while len(self._expired_at) > self.max_size:
            self._expired_at.popitem(last=False)

    def _drop_surplus(self, count: int) -> None:
        """Drop up to so many ids of the peer that most came from, until another has as many."""
        if not self._learned:
            self._revoked_at.popitem(last=False)
            return
        most, *others = nlargest(2, self._learned.values(), key=len)
        lead = len(most) - len(others[0]) if others else len(most)
        for task_id in [task_id for task_id, _ in zip(most, range(min(count, max(lead, 1))), strict=False)]:
            self.discard(task_id)

    def _forget_peer(self, task_id: str) -> None:
        peer = self._peers.pop(task_id, None)
        if peer is not None:
            ids = self._learned[peer]
            del ids[task_id]
            if not ids:
                del self._learned[peer]


def _renew(moments: OrderedDict[str, float], task_id: str, now: float) -> None:
    moments[task_id] = now
    moments.move_to_end(task_id)


def _drop_old(moments: OrderedDict[str, float], until: float) -> list[str]:
    """Take out and return the ids with a moment not after ``until``."""
    dropped = []
    while moments and next(iter(moments.values())) <= until:
        dropped.append(moments.popitem(last=False)[0])
    return dropped
