"""Where passwords and tokens are tried: apart from all else, since each try takes memory and a processor."""

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

__all__ = ["run_guess"]

_T = TypeVar("_T")

#: Tries at once, 16 MB each. The others wait, and keep no thread from those who were let in.
_MOST_AT_ONCE: Final = 2

_limiter: Final = CapacityLimiter(_MOST_AT_ONCE)


async def run_guess(attempt: Callable[..., _T], *told: str) -> _T:
    """Run what tries a secret, in a thread, when it is its turn."""
    return await run_sync(attempt, *told, limiter=_limiter)
