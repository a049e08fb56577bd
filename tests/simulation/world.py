"""Time that passes only from one event to the next."""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from tests.simulation.plan import Plan

__all__ = ["Violation", "World"]

#: More events than this in one run are a run that does not come to an end.
MAX_EVENTS: Final = 200_000


class Violation(Exception):
    """A promise was broken: which one, and how."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


class World:
    """True time, what is to happen, and what has happened."""

    def __init__(self, plan: Plan, *, is_traced: bool = False) -> None:
        self.plan = plan
        self.now = 0.0
        #: What faults were really met, and how often.
        self.met: Counter[str] = Counter()
        self.events = 0
        #: Whether nobody is to begin anything any more.
        self.is_over = False
        self.transcript: list[str] | None = [] if is_traced else None
        self._heap: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = count()

    @property
    def is_healed(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self.now >= self.plan.heal_at

    def at(self, moment: float, step: Callable[..., Any], *args: Any) -> None:
        """Have something happen."""
        heappush(self._heap, (moment, next(self._numbers), step, args))

    def run(self, until: float) -> None:
        """Let everything happen up to a moment."""
        heap = self._heap
        events = 0
        while heap and heap[0][0] <= until:
            self.now, _, step, args = heappop(heap)
            step(*args)
            events += 1
            if events > MAX_EVENTS:
                raise Violation("progress", f"{events:,} events, and no end")
        self.now = until
        self.events += events

    def tell(self, who: str, what: str) -> None:
        """Write a line of the transcript; guard it with ``transcript is not None`` where it must be fast."""
        if self.transcript is not None:
            self.transcript.append(f"{self.now:9.3f}  {who:<8} {what}")
