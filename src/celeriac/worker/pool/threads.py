"""Tasks in threads of the worker's own process."""

import ctypes
import logging
import os
import sys
from collections.abc import Mapping
from itertools import count
from math import inf
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from time import monotonic, time
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import SoftTimeLimitExceeded, TimeLimitExceeded
from celeriac.worker.pool.base import Job, Listener
from celeriac.worker.pool.run import IMPORT_PATIENCE, ListenerReport, Runner, is_importing, perform

__all__ = ["ThreadPool"]

logger = logging.getLogger(__name__)

#: How often limits are looked at while somebody waits for the last tasks.
_LOOK_EVERY: Final = 0.1


class _Calmed(BaseException):
    """Takes the place of an exception that is not to be raised any more."""


class _Seat:
    """One thread of the pool, and the job that it runs. All of it is guarded by the mutex of the pool."""

    def __init__(self) -> None:
        self.ident = 0
        self.thread: Thread
        #: What runs now, from when to when the thread may be interrupted.
        self.job: Job | None = None
        self.began_at = 0.0
        #: Whether it was told that it takes too long.
        self.is_warned = False
        #: Since when it does, if somebody has noticed.
        self.late_since = 0.0
        #: Whether an exception was raised in the thread from outside.
        self.is_interrupted = False
        #: Whether the thread does something for the pool, in the midst of which nothing may interrupt it.
        self.is_shielded = False
        #: Whether it is to be interrupted right after that.
        self.is_late = False
        #: Whether its job took too long: the thread is left to itself, and nobody listens to it any more.
        self.is_abandoned = False

    def warn(self, now: float) -> None:
        """Raise SoftTimeLimitExceeded in the thread; while it imports something, wait for a while."""
        self.late_since = self.late_since or now
        frame = sys._current_frames().get(self.ident)  # noqa: SLF001 - the documented way to see it
        if is_importing(frame) and now - self.late_since < IMPORT_PATIENCE:
            return
        self.is_warned = True
        if self.is_shielded:
            self.is_late = True
        else:
            self.interrupt(SoftTimeLimitExceeded)

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise an exception in the thread, as soon as it is back in Python code."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(error))
        self.is_interrupted = True

    def calm(self) -> None:
        """Let no exception be raised any more that was to be; in the thread itself.

        Not by taking it back: Python 3.11 would look for it for ever, at each call in each thread, and
        under a tracer never go on. So another takes its place, which is raised here and now.
        """
        try:
            self.interrupt(_Calmed)
            while True:  # it comes with the next turn, or before
                pass
        except _Calmed:
            self.is_interrupted = False


class _Report(ListenerReport):
    """Passes on what a task says, shielded: what sends it must not be torn apart by a time limit."""

    def __init__(self, key: int, listener: Listener, seat: _Seat, mutex: Lock) -> None:
        super().__init__(key, listener)
        self._seat = seat
        self._mutex = mutex

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Pass on an event, unless nobody listens any more."""
        try:
            if self._shield():
                super().told(kind, fields)
        finally:
            self._unshield()

    def progressed(self, state: str, result: bytes) -> None:
        """Pass on a state, unless nobody listens any more."""
        try:
            if self._shield():
                super().progressed(state, result)
        finally:
            self._unshield()

    def _shield(self) -> bool:
        """Let nothing interrupt this thread from now on; what was to interrupt it before does so right here.

        Say whether somebody listens. A thread that the task started is never interrupted, and shields nobody.
        """
        if get_ident() == self._seat.ident:
            with self._mutex:
                self._seat.is_shielded = True
        return not self._seat.is_abandoned

    def _unshield(self) -> None:
        seat = self._seat
        if get_ident() == seat.ident:
            with self._mutex:
                seat.is_shielded = False
                is_late, seat.is_late = seat.is_late, False
            if is_late:
                raise SoftTimeLimitExceeded


class ThreadPool:
    """A number of threads that run one task each at a time.

    A soft time limit raises SoftTimeLimitExceeded in the thread; one that waits in the system, or
    in C code, notices when it is back, and where it hits a finalizer Python ignores it. No thread can
    be ended from outside: beyond its time limit a task fails, its thread is abandoned, and another
    takes its place. Limits are looked at in :meth:`tick`.
    """

    name = "threads"
    runs_in_place = False
    shares_process = True

    def __init__(self, runner: Runner, *, size: int, settings: Settings) -> None:
        self.size = size
        self._runner = runner
        self._settings = settings
        self._listener: Listener
        self._mutex = Lock()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        #: Jobs that have not begun; who removes one from here may begin it, or forget it.
        self._waiting: dict[int, Job] = {}
        self._seats: set[_Seat] = set()
        self._abandoned: set[_Seat] = set()
        self._numbers = count(1)
        self._is_killed = False

    def start(self, listener: Listener) -> None:
        """Start the threads."""
        self._listener = listener
        with self._mutex:
            self._fill()

    def submit(self, job: Job) -> None:
        """Run a job as soon as a thread is free; after a stop, forget it."""
        if self.size:
            self._waiting[job.key] = job
            self._queue.put(job)

    def discard(self, key: int) -> bool:
        """Forget a job that has not begun; say whether that was so."""
        return self._waiting.pop(key, None) is not None

    def terminate(self, key: int, signal_number: int) -> bool:  # noqa: ARG002
        """Return False: no thread can be ended from outside."""
        return False

    def grow(self, count: int = 1) -> None:
        """Start more threads."""
        with self._mutex:
            self.size += count
            self._fill()

    def shrink(self, count: int = 1) -> None:
        """Let threads go, once they have done what they do; at least one is left."""
        self._shrink_to(max(1, self.size - count))

    def tick(self, now: float) -> None:
        """See to the time limits."""
        overdue: list[tuple[Job, float]] = []
        with self._mutex:
            for seat in list(self._seats):
                job = seat.job
                if job is None:
                    continue
                if _is_over(job.time_limit, now - seat.began_at):
                    overdue.append((job, now - seat.began_at))
                    self._abandon(seat)
                elif _is_over(job.soft_time_limit, now - seat.began_at) and not seat.is_warned:
                    seat.warn(now)
            self._fill()
        for job, runtime in overdue:
            logger.error(
                "Task %s[%s] exceeded its time limit of %g s; a thread cannot be killed, so it is "
                "abandoned, abandoned=%d: use the processes pool for tasks that may hang",
                job.request.task,
                job.request.id,
                job.time_limit,
                len(self._abandoned),
            )
            error = TimeLimitExceeded(job.time_limit)
            self._listener.ended(job.key, self._runner.fail(job, error, cause="time-limit", runtime=runtime))

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing more, and wait until what runs has ended; say whether all of it did."""
        self._waiting.clear()
        self._shrink_to(0)
        deadline = inf if timeout is None else monotonic() + timeout
        while self._seats and monotonic() < deadline:
            for seat in list(self._seats)[:1]:
                seat.thread.join(min(_LOOK_EVERY, max(0.0, deadline - monotonic())))
            self.tick(monotonic())
        return not self._seats

    def kill(self) -> None:
        """Begin nothing more, and listen to nobody. What runs ends by itself, or with the program."""
        self._is_killed = True
        self._waiting.clear()
        self._shrink_to(0)
        with self._mutex:
            for seat in list(self._seats):
                self._abandon(seat)

    def info(self) -> dict[str, Any]:
        """Return what ``stats`` tells of the pool."""
        return {
            "implementation": "celeriac.worker.pool.threads:ThreadPool",
            "max-concurrency": self.size,
            "processes": [os.getpid()],
            "threads": len(self._seats),
            "abandoned-threads": len(self._abandoned),
            "max-tasks-per-child": None,
            "timeouts": [self._settings.task_soft_time_limit or 0, self._settings.task_time_limit or 0],
        }

    # -- with the mutex held

    def _fill(self) -> None:
        """Have as many threads as there should be."""
        while len(self._seats) < self.size:
            seat = _Seat()
            seat.thread = Thread(
                target=self._work, args=(seat,), name=f"celeriac-task-{next(self._numbers)}", daemon=True
            )
            self._seats.add(seat)
            seat.thread.start()

    def _abandon(self, seat: _Seat) -> None:
        seat.is_abandoned = True
        self._seats.discard(seat)
        if seat.job is not None:
            self._abandoned.add(seat)
            if not seat.is_shielded:
                # That ends what goes round in circles in Python, and would take a processor for ever.
                seat.interrupt(TimeLimitExceeded)

    # -- the threads

    def _shrink_to(self, size: int) -> None:
        with self._mutex:
            surplus = len(self._seats) - size
            self.size = size
        for _ in range(surplus):
            self._queue.put(None)  # wakes one that waits; others look when they have done what they do

    def _work(self, seat: _Seat) -> None:
        seat.ident = get_ident()
        try:
            while not self._is_left(seat):
                job = self._queue.get()
                if job is not None and self._waiting.pop(job.key, None) is not None:
                    self._run(seat, job)
        except TimeLimitExceeded:
            # It was raised in an abandoned thread, which had just come to its end by itself.
            if not seat.is_abandoned:
                raise
        finally:
            with self._mutex:
                self._seats.discard(seat)
                self._abandoned.discard(seat)

    def _is_left(self, seat: _Seat) -> bool:
        """Say whether a thread is to end: it was abandoned, or there are too many."""
        with self._mutex:
            if seat.is_abandoned:
                return True
            if len(self._seats) <= self.size:
                return False
            self._seats.discard(seat)
            return True

    def _run(self, seat: _Seat, job: Job) -> None:
        self._listener.started(job.key, pid=os.getpid(), at=time())
        outcome = perform(
            self._runner.execute,
            job,
            _Report(job.key, self._listener, seat, self._mutex),
            begin=lambda: self._begin(seat, job),
            end=lambda: self._end(seat),
        )
        if not seat.is_abandoned and not self._is_killed:
            self._listener.ended(job.key, outcome)

    def _begin(self, seat: _Seat, job: Job) -> None:
        with self._mutex:
            if seat.is_abandoned:
                # The pool was killed while it was told that the job begins: somebody else runs it.
                raise TimeLimitExceeded
            seat.job, seat.began_at, seat.is_warned, seat.is_late = job, monotonic(), False, False
            seat.late_since = 0.0

    def _end(self, seat: _Seat) -> None:
        """From here on nothing interrupts the thread, and no limit counts."""
        with self._mutex:
            seat.job = None
            if seat.is_interrupted:
                seat.calm()


def _is_over(limit: float | None, seconds: float) -> bool:
    return limit is not None and seconds >= limit
