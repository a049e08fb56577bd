"""How far a node can trust its own ears."""

from collections import deque
from math import inf
from typing import Final

__all__ = ["LAG", "MAX_SCORE", "LocalHealth"]

#: A loop that is late by more than this was stalled: it may have missed what others said.
LAG: Final = 0.5
#: At eight a node gives others nine times the time; to doubt oneself more than that helps nobody.
MAX_SCORE: Final = 8
#: How long our own heartbeat takes to come back to us at the most, when all is well.
ECHO: Final = 2.0
#: Heartbeats of ours that are waited for: more than can be on their way in that time.
MAX_AWAITED: Final = 16
#: Stalls remembered one by one; beyond it the two oldest count as one that lasted all the while.
MAX_STALLS: Final = 256


class LocalHealth:
    """The times when this node could not hear, and a score of how ill it is, from 0 to 8.

    Each stall, each lost link and each heartbeat of our own that does not come back to us in time
    adds one; each ``period`` without any of these takes one away. :meth:`tick` is to be called
    every ``pulse`` seconds: that it comes late is how a stall is noticed. ``now`` is any clock
    that does not go back.
    """

    def __init__(self, *, period: float, pulse: float, now: float = 0.0) -> None:
        self.score = 0
        #: When the link was last made again.
        self.reconnected_at = -inf
        self._period = period
        self._pulse = pulse
        self._stalls: deque[tuple[float, float]] = deque()
        self._ticked_at: float | None = None
        self._disconnected_at: float | None = None
        self._clean_from = now
        self._woke_at = -inf
        #: The stamps of our heartbeats that we wait to hear, and when they left, oldest first.
        self._awaited: deque[tuple[int, float]] = deque(maxlen=MAX_AWAITED)

    @property
    def is_connected(self) -> bool:
        """Whether there is a link to hear by."""
        return self._disconnected_at is None

    def can_judge(self, now: float) -> bool:
        """Tell whether a silence can be told from deafness: not without a link, nor just after a stall.

        What came while we were stalled waits to be read, and is read after the tick that notices.
        """
        return self.is_connected and now >= self._woke_at + self._pulse

    def lagged(self, seconds: float, now: float) -> None:
        """Note that we were stalled for so long until now."""
        if seconds <= LAG or not self.is_connected:  # without a link no time counts anyway
            return
        if self._add_stall(now - seconds, now) > LAG:
            self._worsen(now)
        self._woke_at = now

    def disconnected(self, now: float) -> None:
        """Note that the link is lost."""
        if self._disconnected_at is None:
            self._disconnected_at = now
            self._awaited.clear()

    def reconnected(self, now: float) -> None:
        """Note that the link is made again."""
        if self._disconnected_at is None:
            return
        self._add_stall(self._disconnected_at, now)
        self._disconnected_at = None
        self.reconnected_at = self._ticked_at = now
        self._worsen(now)

    def beat(self, clock: int, now: float) -> None:
        """Note that our heartbeat with this stamp has left."""
        if self.is_connected:
            self._awaited.append((clock, now))

    def echo(self, clock: int) -> None:
        """Note that our own event with this stamp came back to us, and so did all before it."""
        while self._awaited and self._awaited[0][0] <= clock:
            self._awaited.popleft()

    def tick(self, now: float) -> None:
        """Note that time passed."""
        if self._ticked_at is not None:
            self.lagged(now - self._ticked_at - self._pulse, now)
        self._ticked_at = now
        if not self.is_connected:
            self._clean_from = now
            return
        while self._awaited and self._is_overdue(self._awaited[0][1], now):
            self._awaited.popleft()
            self._worsen(now)
        while self.score and now - self._clean_from >= self._period:
            self.score -= 1
            self._clean_from += self._period

    def stalled_since(self, moment: float, now: float) -> float:
        """Return how much of the time since a moment we were stalled or without a link."""
        total = 0.0
        if self._disconnected_at is not None:
            total = now - max(moment, self._disconnected_at)
        for begin, end in reversed(self._stalls):
            if end <= moment:
                break
            total += end - max(begin, moment)
        return total

    def _is_overdue(self, left_at: float, now: float) -> bool:
        return now - left_at - self.stalled_since(left_at, now) > ECHO

    def _add_stall(self, begin: float, end: float) -> float:
        """Remember a stall, less what is known of it already, and return how much that leaves."""
        if self._stalls:
            begin = max(begin, self._stalls[-1][1])
        if begin >= end:
            return 0.0
        self._stalls.append((begin, end))
        if len(self._stalls) > MAX_STALLS:
            first, _ = self._stalls.popleft()
            _, last = self._stalls.popleft()
            self._stalls.appendleft((first, last))
        return end - begin

    def _worsen(self, now: float) -> None:
        self.score = min(MAX_SCORE, self.score + 1)
        self._clean_from = now
