"""Tasks in processes of their own."""

import logging
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Condition, Lock, Thread, current_thread
from time import monotonic
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.worker.pool.base import Job, Listener
from celeriac.worker.pool.child_process import ChildProcess
from celeriac.worker.pool.crew import LONG, Crew, News
from celeriac.worker.pool.frame import Setup
from celeriac.worker.pool.run import Runner

__all__ = ["ProcessPool"]

logger = logging.getLogger(__name__)

#: How long :meth:`ProcessPool.start` waits for the first process; a large app takes seconds to load.
_START_PATIENCE: Final = 60.0
#: How often the pool looks whether processes have died unseen.
_LOOK_EVERY: Final = 0.2


class ProcessPool:
    """A number of processes that run one task each at a time.

    Each is a fresh interpreter that loads the app, ``module:attribute``, by itself, so nothing is
    inherited: no lock, no connection. Short jobs are handed out some at a time; each is run once or, if its
    process dies after it began, told of as lost. One thread of the pool talks to all processes.
    Limits are looked at in :meth:`tick`.
    """

    name = "processes"
    runs_in_place = False
    shares_process = False

    def __init__(
        self,
        runner: Runner,
        *,
        app: str,
        size: int,
        settings: Settings,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self._overrides = dict(overrides or {})
        self.size = size
        self._settings = settings
        self._app = app
        self._crew = Crew(runner, size=size, max_tasks=settings.worker_max_tasks_per_child)
        #: Guards the crew; notified when one of it is ready, and when none ever will be.
        self._changed = Condition(Lock())
        self._is_stopped = False
        self._is_killed = False
        self._thread: Thread | None = None
        self._selector: DefaultSelector
        self._bell: socket.socket
        self._ringer: socket.socket | None = None
        self._looked_at = 0.0

    # -- for the worker

    def start(self, listener: Listener) -> None:
        """Start the processes, and wait until one is ready. Raises ImproperlyConfigured if none ever is."""
        self._crew.listener = listener
        self._selector = DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._selector.register(self._bell, EVENT_READ)
        self._thread = Thread(target=self._serve, name="celeriac-pool", daemon=True)
        self._thread.start()
        with self._changed:
            crew = self._crew
            has_begun = self._changed.wait_for(
                lambda: crew.fault or crew.is_ready or self._is_stopped, _START_PATIENCE
            )
        if not has_begun:
            logger.warning("pool: no process ready within %g s; tasks are waiting", _START_PATIENCE)
        if crew.fault:
            self.kill()
            self._check()

    def submit(self, job: Job) -> None:
        """Run a job as soon as a process is free; after a stop, forget it.

        Raises ImproperlyConfigured if no process can be started any more.
        """
        with self._changed:
            if self._is_stopped:
                return
            self._check()
            self._crew.waiting[job.key] = job
            news = self._feed()
        self._tell(news)

    def discard(self, key: int) -> bool:
        """Forget a job that no process has been given; say whether that was so."""
        with self._changed:
            return self._crew.waiting.pop(key, None) is not None

    def terminate(self, key: int, signal_number: int = signal.SIGTERM) -> bool:
        """End the process that runs a job by a signal, by SIGKILL if that does not help."""
        with self._changed:
            child = self._crew.find_running(key)
            if child is None or child.running is None:
                return False
            child.doom_for(child.running, cause="terminated", signal_number=signal_number, now=monotonic())
            return True

    def grow(self, count: int = 1) -> None:
        """Start more processes."""
        self._resize(self.size + count)

    def shrink(self, count: int = 1) -> None:
        """Let processes go, once they have done what they do; at least one is left."""
        self._resize(max(1, self.size - count))

    def tick(self, now: float) -> None:
        """See to the time limits. Raises ImproperlyConfigured if no process can be started any more."""
        with self._changed:
            if not self._is_stopped:
                self._check()
            self._crew.enforce(now)

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing more, wait until what runs has ended, and end; say whether all of it did."""
        self._is_stopped = True
        self._let_begin()
        return self._end(timeout)

    def kill(self) -> None:
        """End every process at once; nobody is told of their jobs."""
        self._is_stopped = self._is_killed = True
        self._let_begin()
        self._end(None)

    def info(self) -> dict[str, Any]:
        """Return what ``stats`` tells of the pool."""
        with self._changed:
            pids = [child.pid for child in self._crew.children]
        return {
            "implementation": "celeriac.worker.pool.processes:ProcessPool",
            "max-concurrency": self.size,
            "processes": pids,
            "max-tasks-per-child": self._settings.worker_max_tasks_per_child,
            "timeouts": [self._settings.task_soft_time_limit or 0, self._settings.task_time_limit or 0],
        }

    def _let_begin(self) -> None:
        """Have who waits for the first process wait no more."""
        with self._changed:
            self._changed.notify_all()

    def _resize(self, size: int) -> None:
        with self._changed:
            # Here, not in the thread of the pool: a process that ends its job meanwhile gets no other one
            # beyond the new size.
            self.size = self._crew.size = size
        self._ring()

    def _check(self) -> None:
        if self._crew.fault:
            raise ImproperlyConfigured(self._crew.fault)

    def _end(self, timeout: float | None) -> bool:
        self._ring()
        if self._thread is None or self._thread is current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _ring(self) -> None:
        """Wake the thread of the pool."""
        if self._ringer is not None:
            with suppress(OSError):  # it has been rung already, or has ended
                self._ringer.send(b"!")

    def _feed(self) -> list[News]:
        """Hand out jobs; with the lock held."""
        if self._is_stopped:
            self._crew.waiting.clear()
            return []
        news = self._crew.feed(now=monotonic())
        if current_thread() is not self._thread and any(child.is_behind for child in self._crew.children):
            self._ring()  # who waits for processes to read must know that there is more
        return news

    def _tell(self, news: list[News]) -> None:
        """Tell who listens; without the lock, since that may come back for more."""
        for tell in news:
            if self._is_killed:
                return
            try:
                tell()
            except Exception:  # all jobs hang on this thread
                logger.exception("pool: cannot report the outcome of a job")

    # -- the thread of the pool

    def _serve(self) -> None:
        try:
            self._turn()
        except BaseException as error:
            # The processes end with this thread. Who submits a job must know, and not wait for ever.
            with self._changed:
                self._crew.fault = f"the process pool failed; restart the worker: {error!r}"
                self._changed.notify_all()
            raise
        finally:
            self._selector.close()
            self._bell.close()
            if self._ringer is not None:
                self._ringer.close()

    def _turn(self) -> None:
        while self._has_crew():
            for key, mask in self._selector.select(self._patience()):
                if key.data is None:
                    self._bell.recv(4096)
                    continue
                if mask & EVENT_WRITE:
                    with self._changed:
                        key.data.flush()
                if mask & EVENT_READ:
                    self._hear(key.data)
            self._look(monotonic())

    def _has_crew(self) -> bool:
        """Have as many processes as there should be; say whether the pool goes on."""
        with self._changed:
            missing = 0 if self._is_stopped else self._crew.resize(now=monotonic())
            if self._is_stopped:
                self._crew.dismiss(now=monotonic())
            if self._is_killed:
                for child in self._crew.children:
                    child.kill()
            if self._is_stopped and not self._crew.children:
                return False
            if self._crew.fault:
                missing = 0
        for _ in range(missing):
            self._hire()
        for child in self._crew.children:
            events = EVENT_READ | EVENT_WRITE if child.is_behind else EVENT_READ
            if self._selector.get_key(child.line).events != events:
                self._selector.modify(child.line, events, child)
        return True

    def _hire(self) -> None:
        setup = Setup(self._app, sys.path, logging.getLogger().getEffectiveLevel(), self._overrides)
        try:
            child = ChildProcess(setup)
        except (OSError, CallerError) as error:
            with self._changed:
                self._crew.count_early_death(f"cannot start a process: {error}")
                self._changed.notify_all()
            return
        self._selector.register(child.line, EVENT_READ, child)
        with self._changed:
            self._crew.children.append(child)

    def _patience(self) -> float:
        return LONG if any(child.load > 1 for child in self._crew.children) else _LOOK_EVERY

    def _look(self, now: float) -> None:
        """Take back what waits behind long jobs, and notice processes that have died unseen."""
        with self._changed:
            self._crew.take_back(now=now)
            if self._is_stopped:
                self._crew.enforce(now)  # who waits for the end does not tick
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            for child in list(self._crew.children):
                if child.is_dead:
                    self._hear(child, is_dead=True)

    def _hear(self, child: ChildProcess, *, is_dead: bool = False) -> None:
        """Take in what a process said."""
        said, has_ended = child.read()
        # Something that it started may hold on to its socket; it is given up when nothing more comes.
        has_ended = has_ended or (is_dead and not said)
        how = ""
        if has_ended:
            self._selector.unregister(child.line)
            how = child.bury()
        news: list[News] = []
        now = monotonic()
        with self._changed:
            for kind, content in said:
                told = self._crew.apply(child, kind, content, now=now)
                if told is not None:
                    news.append(told)
            if has_ended:
                news += self._crew.lose(child, how, now=now)
            news += self._feed()
            self._changed.notify_all()
        self._tell(news)
