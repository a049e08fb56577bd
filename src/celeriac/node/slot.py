"""Where results are put for somebody who waits."""

from collections import deque
from collections.abc import Callable, Collection

from celeriac.model.result import ResultMeta
from celeriac.runtime.base import Flag

__all__ = ["LastingSlot", "Slot"]


class Slot:
    """Holds what came for one waiter until the waiter takes it.

    Written by the one who drains, read by the one who waits, without a lock: what is put
    in is there before the flag is raised, and the flag is lowered before looking. So no
    result slips between the two.
    """

    def __init__(self, flag: Flag, task_ids: Collection[str], *, wants_all: bool = False) -> None:
        self.flag = flag
        #: Why nothing will come, if that is so.
        self.error: Exception | None = None
        self._awaited = len(task_ids)
        #: Whether states before the last matter too.
        self._wants_all = wants_all
        self._news: deque[ResultMeta] = deque()

    @property
    def ready(self) -> bool:
        """Whether nothing more will come."""
        return self._awaited <= 0 or self.error is not None

    @property
    def has_news(self) -> bool:
        """Whether something is there to be taken."""
        return bool(self._news)

    def put(self, meta: ResultMeta) -> bool:
        """Put a state in; return whether the waiter wants to be woken for it."""
        if meta.is_ready:
            self._news.append(meta)
            self._awaited -= 1
            return True
        if self._wants_all:
            self._news.append(meta)
        return self._wants_all

    def fail(self, error: Exception) -> None:
        """Let the waiter know that nothing will come."""
        self.error = error

    def ring(self) -> None:
        """Wake the waiter."""
        self.flag.set()

    def take(self) -> list[ResultMeta]:
        """Return what came since the last call."""
        self.flag.clear()
        news = []
        while self._news:
            news.append(self._news.popleft())
        return news


class LastingSlot(Slot):
    """A slot that nobody waits at: what comes is handed on to ``receive`` at once.

    ``receive`` gets the last state of a task, or why it will not come, in the thread or greenlet
    that drains; it must be quick.
    """

    def __init__(self, receive: "Callable[[ResultMeta | Exception], object]") -> None:
        self._receive = receive
        super().__init__(_NoFlag(), ("",))

    def ring(self) -> None:
        """Hand on what came."""
        for meta in self.take():
            self._receive(meta)
        if self.error is not None:
            self._receive(self.error)


class _NoFlag:
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> None: ...
