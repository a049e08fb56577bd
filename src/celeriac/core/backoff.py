"""How long to wait before trying again."""

from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Waits that double up to ``cap``, each drawn evenly from nothing to its full length.

    So many nodes that lost one broker do not all come back in the same instant.
    ``random`` gives numbers from 0 to 1.
    """

    def __init__(self, *, base: float, cap: float, random: Callable[[], float]) -> None:
        self.base = base
        self.cap = cap
        #: Waits since the last success.
        self.attempts = 0
        self._random = random

    def next(self) -> float:
        """Return the next wait, in seconds."""
        # Beyond 2^32 times the base every cap is reached; the power must not outgrow a float.
        longest = min(self.cap, self.base * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return self._random() * longest

    def reset(self) -> None:
        """Begin again with short waits: it worked."""
        self.attempts = 0
