"""Who stands in one election, and who has heard of whom."""

from collections.abc import Collection
from typing import Final

from celeriac.model.election import Candidate

__all__ = ["MAX_CANDIDATES", "Candidates"]

#: As many as a cluster has nodes; whoever comes later is not preferred, and can still win.
MAX_CANDIDATES: Final = 5000


class Candidates:
    """The candidates of one election as one node has heard of them, and who has heard of that node.

    It only says whom everybody would prefer. Nothing that must be safe depends on it.
    """

    def __init__(self, own_name: str) -> None:
        self.own_name = own_name
        #: The clock of each, by name: the lowest that was heard.
        self._clocks: dict[str, int] = {}
        #: Those that ask no arbiter.
        self._celery: set[str] = set()
        self._heard_by: set[str] = set()

    def __len__(self) -> int:
        return len(self._clocks)

    @property
    def has_celery(self) -> bool:
        """Whether a node of Celery stands, which decides for itself."""
        return bool(self._celery)

    @property
    def is_celery_first(self) -> bool:
        """Whether such a node is preferred."""
        return bool(self._celery) and min(self._all()).name in self._celery

    def reason_to_follow(self, *, acts_beside_celery: bool) -> str:
        """Say why we leave it to others; empty if we need not."""
        if self.is_celery_first:
            return "a Celery worker is preferred, and decides by itself"
        if self.has_celery and not acts_beside_celery:
            return "a Celery worker takes part, so two winners are possible (level L0)"
        return ""

    def add(self, candidate: Candidate, *, is_ours: bool) -> None:
        """Note that somebody stands; the earliest of several messages counts."""
        clock, name = candidate
        known = self._clocks.get(name)
        if known is None and len(self._clocks) >= MAX_CANDIDATES:
            return
        self._clocks[name] = clock if known is None else min(clock, known)
        if not is_ours:
            self._celery.add(name)

    def heard(self, by: str) -> None:
        """Note that a node has heard of us: a set, as one that says so twice is still one."""
        if len(self._heard_by) < MAX_CANDIDATES:
            self._heard_by.add(by)

    def is_heard_by(self, names: Collection[str]) -> bool:
        """Say whether all of these have heard of us, and we too.

        Until we hear ourselves we do not know our rank, and acknowledgements can be faster.
        """
        return self.own_name in self._clocks and self._heard_by.issuperset(names)

    def own_rank(self) -> int:
        """Return how many are preferred to us; all, if we have not heard ourselves."""
        ranked = sorted(self._all())
        names = [candidate.name for candidate in ranked]
        return names.index(self.own_name) if self.own_name in self._clocks else len(ranked)

    def _all(self) -> list[Candidate]:
        return [Candidate(clock, name) for name, clock in self._clocks.items()]
