"""What many pages ask for each second is made once for all of them.

What may take long is made aside.
"""

import logging
from collections.abc import Callable
from threading import Lock, Thread
from time import monotonic
from typing import Final, Generic, TypeVar

from celeriac.errors import CeleriacError

__all__ = ["Aside", "Shared"]

_T = TypeVar("_T")

#: How long who asks first waits for what comes at once from a disk of this machine.
_PATIENCE: Final = 0.5

logger = logging.getLogger(__name__)


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


class Aside(Generic[_T]):
    """Returns what ``make`` returned last, and has it made anew when it is older than some seconds.

    Nobody is kept waiting for it: a disk may hang, and a store be away. None while it is not known.
    """

    def __init__(self, make: Callable[[], _T], *, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._mutex = Lock()
        self._thread: Thread | None = None
        self._made: _T | None = None
        self._made_at: float | None = None

    def __call__(self) -> _T | None:
        """Return it, as it was when it was last made."""
        with self._mutex:
            made_at = self._made_at
            if self._thread is None and (made_at is None or monotonic() >= made_at + self._seconds):
                self._thread = Thread(target=self._renew, name="aside", daemon=True)
                self._thread.start()
            thread = self._thread
        if made_at is None and thread is not None:
            thread.join(_PATIENCE)
        return self._made

    def _renew(self) -> None:
        made: _T | None = None
        try:
            made = self._make()
        except CeleriacError as error:
            logger.debug("This could not be looked at: %s", error)
        except Exception:
            logger.exception("This could not be looked at")
        finally:
            with self._mutex:
                self._made, self._made_at, self._thread = made, monotonic(), None
