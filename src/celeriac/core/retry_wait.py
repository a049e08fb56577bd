"""How long a task waits before it is tried again by itself."""

from collections.abc import Callable

__all__ = ["retry_wait"]


def retry_wait(*, first: float, retries: int, longest: float, random: Callable[[], float] | None) -> float:
    """Return a wait in seconds: ``first``, twice that after one retry, and so on, up to ``longest``.

    With ``random``, which gives numbers from 0 to 1, any wait up to that: tasks that failed
    together do not come back together.
    """
    # Beyond 2^64 times the first every longest wait is reached; the power must not outgrow a float.
    wait = min(longest, first * 2.0 ** min(retries, 64))
    return wait if random is None else wait * random()
