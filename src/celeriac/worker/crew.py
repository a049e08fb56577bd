"""A few threads that do what they are given, one thing after the other each."""

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread

__all__ = ["Crew"]

logger = logging.getLogger(__name__)


class Crew:
    """Up to ``size`` threads, started when there is something to do; none keeps the program from ending."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._mutex = Lock()
        self._threads = 0
        self._busy = 0
        self._is_closed = False

    def put(self, work: Callable[[], object]) -> None:
        """Have something done; after :meth:`close`, nothing."""
        with self._mutex:
            if self._is_closed:
                return
            self._busy += 1
            if self._threads < min(self._busy, self._size):
                self._threads += 1
                Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._queue.put(work)

    def close(self) -> None:
        """Let the threads end once they have done what they do."""
        with self._mutex:
            self._is_closed = True
            threads = self._threads
        for _ in range(threads):
            self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException:  # whoever gave it wanted it done, and the next is to be done all the same
                logger.exception("worker: a background job failed")
            with self._mutex:
                self._busy -= 1
