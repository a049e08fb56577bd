"""What many pages ask for each second is made once for all of them."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["Shared"]

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Returns what ``make`` returned, for some seconds; those who come meanwhile wait for it."""

    def __init__(
        self, make: Callable[[], _T], *, seconds: float, now: Callable[[], float] = monotonic
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._now = now
        self._mutex = Lock()
        self._made: tuple[float, _T] | None = None

    def __call__(self) -> _T:
        """Return it, no older than it may be."""
        with self._mutex:
            if self._made is None or self._now() >= self._made[0] + self._seconds:
                self._made = (self._now(), self._make())
            return self._made[1]
