"""How long a silence is too long, learnt from how regularly messages came before."""

from array import array
from math import erfc, log10, sqrt
from typing import Final

__all__ = ["MAX_PHI", "Gaps", "deviations", "phi"]

#: Gaps that are remembered of each peer: at a heartbeat of 2 s the last seven minutes, in 1.6 kB.
WINDOW: Final = 200
#: Beyond this the chance is too small for a float.
MAX_PHI: Final = 300.0


class Gaps:
    """The last gaps between heartbeats of one peer; to add one takes the same time however many there are."""

    __slots__ = ("_next", "_squares", "_sum", "_values")

    def __init__(self) -> None:
        self._values = array("d")
        self._next = 0
        self._sum = 0.0
        self._squares = 0.0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, gap: float) -> None:
        """Remember one more gap; of too many the oldest goes."""
        if len(self._values) < WINDOW:
            self._values.append(gap)
        else:
            oldest = self._values[self._next]
            self._values[self._next] = gap
            self._sum -= oldest
            self._squares -= oldest * oldest
        self._sum += gap
        self._squares += gap * gap
        self._next = (self._next + 1) % WINDOW
        if self._next == 0:
            # Once a round from scratch: what rounding adds up to stays too small to matter.
            self._sum = sum(self._values)
            self._squares = sum(value * value for value in self._values)

    def mean(self, regular: float) -> float:
        """Return their mean. Until there are enough of them the rest count as ``regular``.

        So one long gap of a newcomer does not pass for its habit.
        """
        return (self._sum + self._missing * regular) / WINDOW

    def deviation(self, regular: float) -> float:
        """Return their standard deviation, with the rest as regular as for the mean."""
        squares = self._squares + self._missing * regular * regular
        return sqrt(max(0.0, squares / WINDOW - self.mean(regular) ** 2))

    @property
    def _missing(self) -> int:
        return WINDOW - len(self._values)


def phi(silence: float, *, mean: float, deviation: float) -> float:
    """Return how unlikely a silence is: n for one that is longer once in 10^n times.

    Gaps are taken to be normally distributed about ``mean``.
    """
    chance = 0.5 * erfc((silence - mean) / deviation / sqrt(2))
    return min(MAX_PHI, -log10(chance)) if chance > 0 else MAX_PHI


def deviations(level: float) -> float:
    """Return how many deviations beyond the mean a silence has the :func:`phi` of ``level``."""
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if phi(middle, mean=0.0, deviation=1.0) < level:
            low = middle
        else:
            high = middle
    return high
