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

#: How long who asks waits for what comes at once from a disk of this machine.
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
    """Returns what ``make`` returned, and has it made anew, aside, when it is older than some seconds.

    Who asks then waits for it for a moment, ``patience``, and those who come later do not wait for one that
    takes longer: a disk may hang, and a store be away. They get what was made last; None while there is none.
    """

    def __init__(self, make: Callable[[], _T], *, seconds: float, patience: float = _PATIENCE) -> None:
        self._make = make
        self._seconds = seconds
        self._patience = patience
        self._mutex = Lock()
        self._thread: Thread | None = None
        self._begun_at = 0.0
        self._made: _T | None = None
        self._made_at: float | None = None

    def __call__(self) -> _T | None:
        """Return it, as it was when it was last made."""
        with self._mutex:
            now, made_at = monotonic(), self._made_at
            if self._thread is None and (made_at is None or now >= made_at + self._seconds):
                self._thread = Thread(target=self._renew, name="aside", daemon=True)
                self._begun_at = now
                self._thread.start()
            thread, left = self._thread, self._begun_at + self._patience - now
        if thread is not None and left > 0:
            # What was made long ago, when somebody last asked, may be wrong by now.
            thread.join(left)
        return self._made

    def _renew(self) -> None:
        made: _T | None = None
        try:
            made = self._make()
        except CeleriacError as error:
            logger.debug("web: background update failed: %s", error)
        except Exception:
            logger.exception("web: background update failed")
        finally:
            with self._mutex:
                self._made, self._made_at, self._thread = made, monotonic(), None
