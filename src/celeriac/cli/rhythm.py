"""When a program is started again, and when something is due: rules that are told the time."""

from typing import Final

from celeriac.core.backoff import Backoff

__all__ = ["Restarts", "Turns"]

#: The first pause, and the longest: short for what fell by chance, long for what cannot stand.
_FIRST, _LONGEST = 1.0, 30.0
#: What has run for so long works; an end of it is the first of its kind.
_STEADY: Final = 60.0
#: So many ends in a row, within half a minute, are no chance.
_MOST: Final = 5


class Restarts:
    """How long to wait before a program that ended by itself is started again: longer each time."""

    def __init__(self) -> None:
        # There is one of each program, so that chance need not keep them apart.
        self._backoff = Backoff(base=_FIRST, cap=_LONGEST, random=lambda: 1.0)

    def ended(self, *, after: float) -> float:
        """Take that it ended after so many seconds, and return the pause."""
        if after >= _STEADY:
            self._backoff.reset()
        return self._backoff.next()

    @property
    def is_hopeless(self) -> bool:
        """It has ended so often in a row that one more start would not help, if it never worked."""
        return self._backoff.attempts >= _MOST


class Turns:
    """When something is due: ``first`` seconds from now, then ``every`` so many.

    The time is counted from beginning to beginning. What takes longer than that is due again at its end.
    """

    def __init__(self, *, first: float, every: float, now: float) -> None:
        self.due_at = now + first
        self._every = every

    def is_due(self, now: float) -> bool:
        """Say whether it is time."""
        return now >= self.due_at

    def begin(self, now: float) -> None:
        """Take that it begins now."""
        self.due_at = now + self._every
