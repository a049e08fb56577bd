"""Callbacks, run one after the other beside whoever asked for them."""

import logging
from collections import deque
from collections.abc import Callable
from threading import Lock

from celeriac.runtime.base import Runtime

__all__ = ["Callbacks"]

logger = logging.getLogger(__name__)


class Callbacks:
    """Runs what is put in, in order, in a thread or greenlet that ends when nothing is left to run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[Callable[[], object]] = deque()
        self._mutex = Lock()
        self._is_running = False

    def put(self, callback: Callable[[], object]) -> None:
        """Run a callback soon."""
        with self._mutex:
            self._waiting.append(callback)
            if self._is_running:
                return
            self._is_running = True
        self._start()

    def _start(self) -> None:
        try:
            self._runtime.spawn(self._run, name="celeriac-callbacks")
        except BaseException:
            self._is_running = False
            raise

    def _run(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._is_running = False
                    return
                callback = self._waiting.popleft()
            try:
                callback()
            except Exception:
                logger.exception("results: a callback failed")
            except BaseException:
                # It ends this thread or greenlet, and not the callbacks after it.
                self._start()
                raise
