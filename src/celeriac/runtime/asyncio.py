"""The tasks of an event loop, woken from other threads."""

from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

__all__ = ["LoopFlag"]

#: Flags raised in one turn of the loop. More wait for the next, so that the loop's other work goes on.
_MOST_AT_ONCE: Final = 10


class _Bell:
    """Carries the flags that others raised into one event loop, many at a time."""

    def __init__(self) -> None:
        # Not the loop: that would keep it for ever.
        self._raised: deque[LoopFlag] = deque()
        self._is_rung = False

    def ring(self, flag: "LoopFlag", loop: AbstractEventLoop) -> None:
        """Raise a flag inside the loop soon; from any thread."""
        self._raised.append(flag)
        if self._is_rung:
            return
        self._is_rung = True
        try:
            loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # The loop is closed, and nobody waits in it any more.
            self._raised.clear()
            self._is_rung = False

    def _answer(self) -> None:
        # Lowered before looking: whoever raises a flag from now on rings again.
        self._is_rung = False
        for _ in range(_MOST_AT_ONCE):
            if not self._raised:
                return
            self._raised.popleft().wake()
        if self._raised and not self._is_rung:
            self._is_rung = True
            get_running_loop().call_soon(self._answer)


_bells: WeakKeyDictionary[AbstractEventLoop, _Bell] = WeakKeyDictionary()


class LoopFlag:
    """Raised from any thread, awaited by one task of one loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._bell = _bells.get(loop) or _bells.setdefault(loop, _Bell())
        self._future: Future[None] | None = None
        self._is_raised = False

    def set(self) -> None:
        """Raise it; from any thread."""
        self._bell.ring(self, self._loop)

    def clear(self) -> None:
        """Lower it again."""
        self._is_raised = False

    def wake(self) -> None:
        """Raise it, inside the loop."""
        self._is_raised = True
        if self._future is not None:
            self._end(self._future)

    @staticmethod
    def _end(future: "Future[None]") -> None:
        if not future.done():
            future.set_result(None)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it is raised, or ``timeout`` seconds have passed; cancelling leaves nothing behind."""
        if self._is_raised:
            return
        self._future = future = self._loop.create_future()
        timer: TimerHandle | None = None
        if timeout is not None:
            timer = self._loop.call_later(timeout, self._end, future)
        try:
            await future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()
