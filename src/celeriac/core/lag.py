"""How late events come to us, whatever the clocks of those say who send them."""

from collections import OrderedDict
from typing import Final

__all__ = ["Lag"]

#: Nodes that are remembered: more than enough to tell what most of them have in common.
MAX_NODES: Final = 1000
#: For how long the quickest delivery of a node is what others are held against, and twice that at the most:
#: longer than events are late, and a clock that was set counts for no longer.
_SPAN: Final = 1800.0
#: Nodes that were not heard of for so long say nothing of now.
_RECENT: Final = 60.0


class _Node:
    """One node: how long its last event took by the two clocks, and what the quickest took."""

    __slots__ = ("best", "best_before", "received_at", "since_at", "took")

    def __init__(self, took: float, received_at: float) -> None:
        self.took = self.best = self.best_before = took
        self.received_at = self.since_at = received_at

    def take(self, took: float, received_at: float) -> None:
        if not 0.0 <= received_at - self.since_at < _SPAN:
            is_next = 0.0 <= received_at - self.since_at < 2 * _SPAN
            self.best_before = self.best if is_next else took
            self.best, self.since_at = took, received_at
        self.took, self.received_at = took, received_at
        self.best = min(self.best, took)

    @property
    def late(self) -> float:
        return self.took - min(self.best, self.best_before)


class Lag:
    """How much later events come than at best, by what each node sends at regular intervals.

    By how much a clock and ours differ is in the best case too, and so it does not count. Nor does what was
    late for an hour: that cannot be told from a clock that is wrong.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[str, _Node] = OrderedDict()

    def take(self, node: str, *, sent_at: float, received_at: float) -> None:
        """Note when an event was sent by the clock of its node, and when it came by ours."""
        known = self._nodes.get(node)
        if known is None:
            self._nodes[node] = _Node(received_at - sent_at, received_at)
            if len(self._nodes) > MAX_NODES:
                self._nodes.popitem(last=False)
        else:
            known.take(received_at - sent_at, received_at)
            self._nodes.move_to_end(node)

    def seconds(self, now: float) -> float | None:
        """Return how late most nodes are at least; None if none was heard of lately.

        That one node is late is its own matter, and one that has just come is never late.
        """
        late = sorted(each.late for each in self._nodes.values() if now - each.received_at <= _RECENT)
        return late[(len(late) - 1) // 2] if late else None
