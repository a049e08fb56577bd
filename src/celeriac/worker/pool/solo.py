"""Tasks one after the other, in the thread that submits them."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from time import monotonic, time
from types import FrameType
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import CallerError, SoftTimeLimitExceeded
from celeriac.worker.pool.base import Job, Listener
from celeriac.worker.pool.run import IMPORT_PATIENCE, ListenerReport, Runner, is_importing, perform

__all__ = ["SoloPool"]

#: When to warn a task again that was in the midst of an import.
_LOOK_AGAIN: Final = 0.05


class _TimedReport(ListenerReport):
    """Passes on what a task says, and interrupts it when its time is over, but not in the midst of that."""

    def __init__(self, key: int, listener: Listener, *, limit: float | None) -> None:
        super().__init__(key, listener)
        self._limit = limit
        self._is_running = False
        self._is_telling = False
        self._is_late = False
        self._due_at = 0.0
        self._handler_before: Any = None

    def begin(self) -> None:
        """From here on the task may be interrupted."""
        if self._limit is not None and current_thread() is main_thread():
            self._is_running, self._due_at = True, monotonic() + self._limit
            self._handler_before = signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, self._limit)

    def end(self) -> None:
        """From here on nothing interrupts the thread."""
        self._is_running = False
        if self._handler_before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler_before)

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Pass on an event."""
        with self._telling():
            super().told(kind, fields)

    def progressed(self, state: str, result: bytes) -> None:
        """Pass on a state."""
        with self._telling():
            super().progressed(state, result)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        self._is_telling = True
        try:
            yield
        finally:
            self._is_telling = False
        if self._is_late:
            self._interrupt()

    def _interrupt(self, _number: int = 0, frame: FrameType | None = None) -> None:
        if is_importing(frame) and monotonic() < self._due_at + IMPORT_PATIENCE:
            signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN)
            return
        self._is_late = self._is_telling
        if self._is_running and not self._is_telling:
            self._is_running = False
            raise SoftTimeLimitExceeded


class SoloPool:
    """No pool at all: :meth:`submit` runs a job, and returns when it has ended.

    A soft time limit counts only in the main thread, where a timer of the system sees to it. There is no
    hard one, and nothing else happens while a task runs: no heartbeat, no answer to a command.
    """

    name = "solo"
    runs_in_place = True
    shares_process = True
    size = 1

    def __init__(self, runner: Runner, *, settings: Settings) -> None:
        self._runner = runner
        self._settings = settings
        self._listener: Listener
        self._is_stopped = False

    def start(self, listener: Listener) -> None:
        """Make ready to run tasks."""
        self._listener = listener

    def submit(self, job: Job) -> None:
        """Run a job to its end; after a stop, forget it."""
        if self._is_stopped:
            return
        self._listener.started(job.key, pid=os.getpid(), at=time())
        report = _TimedReport(job.key, self._listener, limit=job.soft_time_limit)
        outcome = perform(self._runner.execute, job, report, begin=report.begin, end=report.end)
        self._listener.ended(job.key, outcome)

    def discard(self, key: int) -> bool:  # noqa: ARG002
        """Return False: what was submitted has ended."""
        return False

    def terminate(self, key: int, signal_number: int) -> bool:  # noqa: ARG002
        """Return False: there is nobody who could."""
        return False

    def grow(self, count: int = 1) -> None:
        """Raise CallerError."""
        raise CallerError(f"the solo pool runs one task at a time, not {1 + count}: use threads or processes")

    def shrink(self, count: int = 1) -> None:  # noqa: ARG002
        """Raise CallerError."""
        raise CallerError("the solo pool runs one task at a time, and cannot shrink")

    def tick(self, now: float) -> None:
        """Do nothing."""

    def stop(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        """Begin nothing more."""
        self._is_stopped = True
        return True

    def kill(self) -> None:
        """Begin nothing more."""
        self._is_stopped = True

    def info(self) -> dict[str, Any]:
        """Return what ``stats`` tells of the pool."""
        return {
            "implementation": "celeriac.worker.pool.solo:SoloPool",
            "max-concurrency": 1,
            "processes": [os.getpid()],
            "max-tasks-per-child": None,
            "timeouts": [self._settings.task_soft_time_limit or 0, 0],
        }
