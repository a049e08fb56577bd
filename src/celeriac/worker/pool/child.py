"""The program of one process of a pool: ``python -m celeriac.worker.pool.child SOCKET PARENT``.

It loads the app it is told, and runs the jobs that come over the socket, one at a time, in its main thread.
Another thread listens to the socket: it takes jobs in, gives back those that have not begun, and ends
the process when the worker is gone, whatever the main thread does by then.
"""

import ctypes
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from threading import Lock, Thread, Timer, get_ident
from time import monotonic, time
from types import FrameType
from typing import Any, Final

from celeriac.errors import CallerError, ImproperlyConfigured, SoftTimeLimitExceeded
from celeriac.worker.execute import Executor
from celeriac.worker.pool.base import Job
from celeriac.worker.pool.frame import Assembly, FromChild, Setup, ToChild, decode, frame
from celeriac.worker.pool.run import IMPORT_PATIENCE, failed, is_importing, perform

__all__ = ["load_app", "main"]

logger = logging.getLogger(__name__)

_PIECE: Final = 1 << 18
#: Of Linux: have a signal sent when the parent ends.
_PR_SET_PDEATHSIG: Final = 1
_MAX_REASON_CHARS: Final = 4000
#: When to warn a task again that was in the midst of an import.
_LOOK_AGAIN: Final = 0.05


def load_app(place: str) -> Any:
    """Return what is found at ``module:attribute``; raises ImproperlyConfigured if nothing is."""
    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise ImproperlyConfigured(
            f"{place!r} names no app: give the module and the name, as in 'shop.tasks:app'"
        )
    found: Any = import_module(module_name)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ImproperlyConfigured(
                f"module {module_name!r} has no {attribute!r}: give the name of the app in that module"
            ) from None
    return found


class _Line:
    """The socket to the worker. Frames from several threads are never mixed, nor torn apart by a warning."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._identity = _identity(line)
        self._assembly = Assembly()
        self._mutex = Lock()
        self._is_let_go = False
        #: Whether a frame is being written.
        self.is_writing = False
        os.register_at_fork(after_in_child=self._let_go)

    def read(self) -> list[tuple[int, bytes]]:
        """Wait for frames, and return them; none if the worker is gone."""
        frames: list[tuple[int, bytes]] = []
        while not frames:
            try:
                piece = self._line.recv(_PIECE)
            except OSError:
                piece = b""
            if not piece:
                break
            frames = list(self._assembly.add(piece))
        return frames

    def write(self, frames: bytes) -> None:
        """Write frames; waits while the worker is behind. Ends the process if they cannot be written."""
        if self._is_let_go:
            return
        with self._mutex:
            self.is_writing = True
            try:
                if _identity(self._line) != self._identity:
                    raise OSError("another file uses this file descriptor")  # noqa: TRY301
                self._line.sendall(frames)
            except ConnectionError:
                os._exit(1)  # the worker is gone
            except OSError as error:
                # Of a job that has ended the worker would wait for ever to hear.
                logger.critical(
                    "pool: the socket to the worker was closed (%s), so this process exits; do not close "
                    "file descriptors that a task did not open",
                    error,
                )
                os._exit(1)
            finally:
                self.is_writing = False

    def _let_go(self) -> None:
        """Say nothing any more, in a forked copy of this process: the worker did not start that."""
        self._is_let_go = True
        self._line.close()


def _identity(line: socket.socket) -> tuple[int, int]:
    """Return what tells an open file from others, also from one that has got its number."""
    stat = os.fstat(line.fileno())
    return stat.st_dev, stat.st_ino


class _Desk:
    """The jobs of this process: one that runs, and those that wait behind it."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._main = get_ident()
        self._pid = os.getpid()
        #: The job that may be interrupted now, and the one that is to be.
        self._running: int | None = None
        self._late: int | None = None
        self._late_since = 0.0
        signal.signal(signal.SIGUSR1, self._interrupt)

    # -- in the thread that listens

    def listen(self) -> None:
        """Take in what the worker says, until it is gone; then end the process."""
        try:
            while frames := self._line.read():
                for kind, body in frames:
                    self._receive(kind, decode(kind, body))
        finally:
            os._exit(1)  # whatever it was: a process that listens no more is of no use

    def _receive(self, kind: int, content: Any) -> None:
        if kind == ToChild.JOB:
            self._jobs.put(content)
        elif kind == ToChild.WARN:
            self._late, self._late_since = content, monotonic()
            self._warn()
        elif kind == ToChild.TAKE_BACK:
            self._give_back()
        elif kind == ToChild.LEAVE:
            self._give_back()
            self._jobs.put(None)

    def _give_back(self) -> None:
        keys = []
        # Whoever gets a job out of the queue has it, this thread or the main one.
        while (job := self._next()) is not None:
            keys.append(job.key)
        self.write(frame(FromChild.RETURNED, keys))

    def _next(self) -> Job | None:
        """Return a job, if one is there."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)  # that is for who waits
        return job

    # -- warnings

    def _warn(self) -> None:
        # A signal, since it ends the main thread's waiting in the system too.
        signal.pthread_kill(self._main, signal.SIGUSR1)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        """Raise an exception in the main thread, if the job that takes too long still runs there."""
        if self._late is None or self._late != self._running or self._line.is_writing:
            return
        if is_importing(frame) and monotonic() - self._late_since < IMPORT_PATIENCE:
            Timer(_LOOK_AGAIN, self._warn).start()
            return
        self._late = None
        raise SoftTimeLimitExceeded

    # -- in the main thread

    def work(self, executor: Executor) -> None:
        """Run jobs until the worker wants no more."""
        job = self._jobs.get()
        if job is not None:
            self._line.write(_started(job))
        while job is not None:
            ended = self._run(executor, job)
            job = self._next()
            if job is not None:
                self._line.write(ended + _started(job))  # in one go: that is the busy time
                continue
            self._line.write(ended)
            job = self._jobs.get()
            if job is not None:
                self._line.write(_started(job))

    def _run(self, executor: Executor, job: Job) -> bytes:
        report, begin = _Report(job.key, self), partial(self._set, job.key)
        outcome = perform(executor.execute, job, report, begin=begin, end=self._clear)
        if os.getpid() != self._pid:
            os._exit(0)  # a copy, made by a task that forked; this is its end, and not that of the job
        try:
            return frame(FromChild.ENDED, (job.key, outcome))
        except CallerError as error:
            return frame(FromChild.ENDED, (job.key, failed(error, runtime=outcome.runtime)))

    def _set(self, key: int) -> None:
        self._running = key
        if self._late == key:
            self._warn()

    def _clear(self) -> None:
        self._running = None

    def write(self, frames: bytes) -> None:
        """Write something while a job may be running."""
        self._line.write(frames)
        if self._late is not None:
            self._warn()  # the warning may have come in the midst of writing


def _started(job: Job) -> bytes:
    return frame(FromChild.STARTED, (job.key, time()))


class _Report:
    """Passes on what a task says to the worker."""

    def __init__(self, key: int, desk: _Desk) -> None:
        self._key = key
        self._desk = desk

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._desk.write(frame(FromChild.TOLD, (self._key, kind, fields)))

    def progressed(self, state: str, result: bytes) -> None:
        self._desk.write(frame(FromChild.PROGRESSED, (self._key, state, result)))


def _end_with(parent: int) -> None:
    """Have this process ended with the worker, even if no line of Python is run any more."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _load(setup: Setup) -> Executor:
    sys.path[:] = setup.path
    app = load_app(setup.app)
    app.configure(**setup.overrides)
    # After the app, which may set up the log as it likes.
    logging.basicConfig(
        level=setup.log_level, format=f"[%(asctime)s: %(levelname)s/child {os.getpid()}] %(message)s"
    )
    return Executor(app.tasks, app.conf)


def main(line_number: int, parent: int) -> None:
    """Run tasks for the worker at the other end of a socket."""
    _end_with(parent)
    # Ctrl-C reaches every process of a terminal; what it means is for the worker to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It was held back until now; what tasks start would inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.set_inheritable(line_number, False)
    line = _Line(socket.socket(fileno=line_number))
    frames = line.read()
    if not frames:
        os._exit(1)
    desk = _Desk(line)
    setup = decode(*frames[0])
    Thread(target=desk.listen, name="celeriac-line", daemon=True).start()
    try:
        executor = _load(setup)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything
        reason = "".join(traceback.format_exception(error))[-_MAX_REASON_CHARS:]
        line.write(frame(FromChild.BROKEN, reason.encode("utf-8", "replace").decode()))
        sys.exit(1)  # the worker tells why
    line.write(frame(FromChild.READY))
    desk.work(executor)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
