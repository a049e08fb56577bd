"""Tasks in greenlets of gevent."""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from time import monotonic, time
from typing import Any, Final

from gevent import Greenlet, GreenletExit, get_hub, joinall
from gevent.monkey import is_module_patched

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured, SoftTimeLimitExceeded, TaskRevoked, TimeLimitExceeded
from celeriac.worker.pool.base import Job, Listener
from celeriac.worker.pool.run import ListenerReport, Runner, perform

__all__ = ["GeventPool"]

#: How often limits are looked at while somebody waits for the last tasks.
_LOOK_EVERY: Final = 0.1


class _Seat(ListenerReport):
    """One job, the greenlet that runs it, and what that says, which nothing may interrupt."""

    def __init__(self, job: Job, listener: Listener) -> None:
        super().__init__(job.key, listener)
        self.job = job
        self.greenlet: Greenlet
        self.began_at = monotonic()
        #: Whether the greenlet does something for the pool.
        self._is_shielded = True
        self.is_warned = False
        #: Whether nobody listens any more.
        self.is_abandoned = False

    def begin(self) -> None:
        """From here on the job may be interrupted."""
        self.began_at = monotonic()
        self._is_shielded = False

    def end(self) -> None:
        """From here on nothing interrupts the greenlet."""
        self._is_shielded = True

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Pass on an event, unless nobody listens any more."""
        with self._shield():
            if not self.is_abandoned:
                super().told(kind, fields)

    def progressed(self, state: str, result: bytes) -> None:
        """Pass on a state, unless nobody listens any more."""
        with self._shield():
            if not self.is_abandoned:
                super().progressed(state, result)

    @contextmanager
    def _shield(self) -> Iterator[None]:
        before, self._is_shielded = self._is_shielded, True
        try:
            yield
        finally:
            self._is_shielded = before

    def interrupt(self, error: BaseException) -> None:
        """Raise an exception within the job soon, if it still runs then."""

        def throw() -> None:
            if not self._is_shielded and not self.greenlet.dead:
                self.greenlet.throw(error)

        get_hub().loop.run_callback(throw)


class GeventPool:
    """A number of greenlets, each of which runs one task.

    Limits and :meth:`terminate` raise an exception within the greenlet when it waits for something; one
    that never waits cannot be ended, and stops all others too. For a program whose modules are patched.
    """

    name = "gevent"
    runs_in_place = False
    shares_process = True

    def __init__(self, runner: Runner, *, size: int, settings: Settings) -> None:
        if not all(is_module_patched(name) for name in ("socket", "select", "threading", "time")):
            raise ImproperlyConfigured(
                "the gevent pool needs a patched program: call gevent.monkey.patch_all() first"
            )
        self.size = size
        self._runner = runner
        self._settings = settings
        self._listener: Listener
        # One thread does it all, and gives way only where somebody is told: no lock is needed.
        self._waiting: OrderedDict[int, Job] = OrderedDict()
        self._running: dict[int, _Seat] = {}
        self._is_stopped = False

    def start(self, listener: Listener) -> None:
        """Make ready to run tasks."""
        self._listener = listener

    def submit(self, job: Job) -> None:
        """Run a job as soon as there is room; after a stop, forget it."""
        if not self._is_stopped:
            self._waiting[job.key] = job
            self._fill()

    def discard(self, key: int) -> bool:
        """Forget a job that has not begun; say whether that was so."""
        return self._waiting.pop(key, None) is not None

    def terminate(self, key: int, signal_number: int) -> bool:
        """End a job that runs."""
        seat = self._running.get(key)
        if seat is not None:
            why = TaskRevoked(f"terminated by signal {signal_number}", task_id=seat.job.request.id)
            self._abandon(seat, why, cause="terminated")
        return seat is not None

    def grow(self, count: int = 1) -> None:
        """Run more tasks at a time."""
        self.size += count
        self._fill()

    def shrink(self, count: int = 1) -> None:
        """Run fewer tasks at a time; at least one is left."""
        self.size = max(1, self.size - count)

    def tick(self, now: float) -> None:
        """See to the time limits."""
        for seat in list(self._running.values()):
            job, runtime = seat.job, now - seat.began_at
            if job.time_limit is not None and runtime >= job.time_limit:
                self._abandon(seat, TimeLimitExceeded(job.time_limit), cause="time-limit")
            elif job.soft_time_limit is not None and runtime >= job.soft_time_limit and not seat.is_warned:
                seat.is_warned = True
                seat.interrupt(SoftTimeLimitExceeded())

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing more, and wait until what runs has ended; say whether all of it did."""
        self._is_stopped = True
        self._waiting.clear()
        deadline = inf if timeout is None else monotonic() + timeout
        while self._running and monotonic() < deadline:
            greenlets = [seat.greenlet for seat in self._running.values()]
            joinall(greenlets, min(_LOOK_EVERY, max(0.0, deadline - monotonic())))
            self.tick(monotonic())
        return not self._running

    def kill(self) -> None:
        """End every task at once; nobody is told of them."""
        self._is_stopped = True
        self._waiting.clear()
        seats, self._running = list(self._running.values()), {}
        for seat in seats:
            seat.is_abandoned = True
            seat.interrupt(GreenletExit())

    def info(self) -> dict[str, Any]:
        """Return what ``stats`` tells of the pool."""
        return {
            "implementation": "celeriac.worker.pool.gevent:GeventPool",
            "max-concurrency": self.size,
            "processes": [os.getpid()],
            "running-threads": len(self._running),
            "max-tasks-per-child": None,
            "timeouts": [self._settings.task_soft_time_limit or 0, self._settings.task_time_limit or 0],
        }

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.size:
            key, job = self._waiting.popitem(last=False)
            seat = self._running[key] = _Seat(job, self._listener)
            seat.greenlet = Greenlet(self._run, seat)
            seat.greenlet.start()

    def _run(self, seat: _Seat) -> None:
        key = seat.job.key
        self._listener.started(key, pid=os.getpid(), at=time())
        outcome = perform(self._runner.execute, seat.job, seat, begin=seat.begin, end=seat.end)
        if self._running.pop(key, None) is not None:
            self._listener.ended(key, outcome)
        self._fill()

    def _abandon(self, seat: _Seat, error: Exception, *, cause: str) -> None:
        """Tell how a job ended that goes on until its greenlet notices."""
        seat.is_abandoned = True
        del self._running[seat.job.key]
        seat.interrupt(GreenletExit())
        runtime = monotonic() - seat.began_at
        self._listener.ended(seat.job.key, self._runner.fail(seat.job, error, cause=cause, runtime=runtime))
        self._fill()
