"""The Lamport clock, guarded against peers that lie."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Any

from celeriac.errors import CallerError
from celeriac.model.clock import clock_value

__all__ = ["CEILING", "CLIENT_CLOCK_SKEW", "MAX_JUMP", "LamportClock"]

#: How far ahead of us a single peer may be. At a million events a second this is
#: 71 minutes of silence; only a node that joins is legitimately further behind.
MAX_JUMP = 2**32

#: No value from here on is adopted from anyone, so that the clock keeps half of
#: its domain to grow in.
CEILING = 2**52

#: Added to our clock to stamp an event of a client, which has no clock to trust.
CLIENT_CLOCK_SKEW = -1

#: Distinct nodes that must agree on a far clock before it is adopted.
CONSENT = 3

#: Hosts counted as refused.
MAX_REJECTED = 1024

#: Peers remembered as far ahead: all of them are compared with each other.
MAX_FAR = 64


class LamportClock:
    """A logical clock: it never falls, and a receipt is later than its sending.

    Not for use by several threads at once; :class:`celeriac.SharedClock` is.
    """

    def __init__(self, initial_value: int = 0, *, max_jump: int = MAX_JUMP) -> None:
        value = clock_value(initial_value)
        if value is None or value >= CEILING:
            raise CallerError(f"initial_value must be an integer from 0 to 2^52 - 1, not {initial_value!r}")
        self.value = value
        self.max_jump = max_jump
        #: How many clocks of each host were refused.
        self.rejected: OrderedDict[str, int] = OrderedDict()
        self._far: OrderedDict[str, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.value}>"

    def forward(self) -> int:
        """Count one event of our own, and return its stamp."""
        self.value += 1
        return self.value

    def adjust(self, other: object) -> int:
        """Move past ``other``, a trusted clock, and return the new value.

        Invalid values, and values near the upper limit, advance the clock by one, like any receipt.
        For the clock of a peer use :meth:`receive`.
        """
        clock = clock_value(other)
        if clock is not None and self.value < clock < CEILING:
            self.value = clock
        return self.forward()

    def receive(self, other: object, *, peer: str, alive: int = 0) -> bool:
        """Move past the clock of a message from the node ``peer``; say if it was adopted.

        A clock further ahead than ``max_jump`` is held back until three nodes, or
        most of the ``alive`` ones, report clocks as far ahead and close together:
        one poisoned node cannot move us, a cluster that is truly ahead can.
        """
        value = self.value
        if type(other) is int and 0 <= other <= value + self.max_jump and other < CEILING:
            # The usual case, without a call: every message received passes here.
            self.value = (max(value, other)) + 1
            return True
        clock = clock_value(other)
        if clock is None or clock >= CEILING:
            return self._reject(peer)
        if clock > self.value + self.max_jump and not self._has_consent(clock, peer=peer, alive=alive):
            return self._reject(peer)
        self.adjust(clock)
        return True

    def receive_client(self) -> int:
        """Stamp an event of a client, whose own clock is never used, and move on."""
        stamp = (self.value or 1) + CLIENT_CLOCK_SKEW
        self.adjust(stamp)
        return stamp

    def start(self, replies: Iterable[object], *, persisted: object = 0) -> int:
        """Continue from the clocks of the cluster and of the last run; never earlier than now.

        ``replies`` are the clocks of peers. With three or more the median
        counts, so that one wrong peer cannot choose the start.
        """
        clocks = [clock for reply in replies if (clock := _adoptable(reply)) is not None]
        told = median_low(clocks) if len(clocks) >= CONSENT else max(clocks, default=0)
        self.value = max(self.value, told, _adoptable(persisted) or 0)
        return self.value

    @staticmethod
    def sort_heap(heap: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the entry ``(clock, node id, …)`` with the lowest clock, ties to the lowest id."""
        if not heap:
            raise CallerError("sort_heap needs at least one entry (clock, node id, …)")
        # What follows the id is never compared: two entries may carry dicts there.
        return min(heap, key=lambda entry: (entry[0], entry[1]))

    def _reject(self, peer: str) -> bool:
        self.rejected[peer] = self.rejected.pop(peer, 0) + 1
        if len(self.rejected) > MAX_REJECTED:
            self.rejected.popitem(last=False)
        self.forward()
        return False

    def _has_consent(self, clock: int, *, peer: str, alive: int) -> bool:
        # Counted by node name, not by process: a poisoned node has many pids.
        self._far.pop(peer, None)
        self._far[peer] = clock
        if len(self._far) > MAX_FAR:
            self._far.popitem(last=False)
        floor = self.value + self.max_jump
        claims = [claim for claim in self._far.values() if claim > floor]
        agreeing = max(
            sum(low <= claim <= low + self.max_jump for claim in claims)
            for low in claims
            if low <= clock <= low + self.max_jump
        )
        if agreeing < CONSENT and not agreeing * 2 > alive > 0:
            return False
        self._far.clear()
        return True


def _adoptable(raw: object) -> int | None:
    clock = clock_value(raw)
    return clock if clock is not None and clock < CEILING else None
