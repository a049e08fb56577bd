"""One process of a pool, as its worker sees it."""

import os
import signal
import socket
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from celeriac.worker.pool.base import Job
from celeriac.worker.pool.frame import Assembly, Setup, ToChild, decode, frame

__all__ = ["ChildProcess", "Doom"]

_PIECE: Final = 1 << 18
#: Read from one process before the others have their turn.
_MOST_PIECES: Final = 16
#: How long a process that is to be ended may take to give back what waits behind the job it is ended for.
_GIVE_BACK_TIME: Final = 1.0
#: How long a process may live on after a signal that was to end it, and one that was asked to leave.
_PATIENCE: Final = 5.0


@dataclass(slots=True)
class Doom:
    """Why a process is ended in the midst of a job."""

    key: int
    #: ``time-limit`` or ``terminated``.
    cause: str
    signal_number: int
    #: When the signal is sent whatever happens; when it was.
    due_at: float
    sent_at: float | None = None


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Have processes that are started meanwhile hear no Ctrl-C, which is for the worker, until they allow it.

    Else one that is still loading its modules would end, and say where it was.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ChildProcess:
    """A process, the socket to it, and the jobs that it has. Nothing here waits.

    On Linux it ends with the thread that made it, which therefore has to outlive it.
    """

    def __init__(self, setup: Setup) -> None:
        first = frame(ToChild.SETUP, setup)
        self.line, theirs = socket.socketpair()
        self.line.setblocking(False)
        with theirs, _without_interrupts():
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    # Its folder is no place of modules, unless it is one of ours too.
                    "-P",
                    "-m",
                    "celeriac.worker.pool.child",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.pid = self._process.pid
        self.is_ready = False
        #: Whether it was asked to end.
        self.leaves_by: float | None = None
        #: Why it could not load the app.
        self.reason = ""
        #: Jobs that it was given and has not begun, and the one that it runs.
        self.at_hand: OrderedDict[int, Job] = OrderedDict()
        self.running: Job | None = None
        self.began_at = 0.0
        self.is_warned = False
        #: Jobs that it was given in all, less those that it gave back.
        self.given = 0
        self.is_giving_back = False
        self.doom: Doom | None = None
        self._assembly = Assembly()
        self._unsent = bytearray()
        self._is_behind = False
        self._send(first)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return self.running is None and not self.at_hand

    @property
    def takes_jobs(self) -> bool:
        """Whether it may be given a job."""
        return (
            self.is_ready
            and self.leaves_by is None
            and self.doom is None
            and not self.is_giving_back
            and not self._is_behind
            and len(self._unsent) < _PIECE
        )

    @property
    def load(self) -> int:
        """How many jobs it has."""
        return len(self.at_hand) + (self.running is not None)

    @property
    def is_behind(self) -> bool:
        """Whether something is left to be written when the socket has room."""
        return self._is_behind

    # -- what it is told

    def give(self, job: Job, job_frame: bytes, *, now: float) -> None:
        """Give it a job, which it gets with the next flush."""
        if self.is_idle:
            self.began_at = now
        self.at_hand[job.key] = job
        self.given += 1
        self._unsent += job_frame

    def take_back(self) -> None:
        """Ask for the jobs that it has not begun."""
        if not self.is_giving_back:
            self.is_giving_back = True
            self._send(frame(ToChild.TAKE_BACK))

    def warn(self) -> None:
        """Let it raise an exception in the job that it runs."""
        if self.running is not None and not self.is_warned:
            self.is_warned = True
            self._send(frame(ToChild.WARN, self.running.key))

    def leave(self, now: float) -> None:
        """Let it end when it has done what it does now; at once, if it is not ready."""
        if self.leaves_by is None:
            self.leaves_by = now + _PATIENCE
            self.is_giving_back = True
            if self.is_ready:
                self._send(frame(ToChild.LEAVE))
            else:
                self.kill()

    def _send(self, frames: bytes) -> None:
        self._unsent += frames
        self.flush()

    def flush(self) -> None:
        """Write what there is room for."""
        self._is_behind = False
        try:
            while self._unsent:
                sent = self.line.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            self._is_behind = True
        except OSError:
            self._unsent.clear()  # it is gone; who reads from it will notice

    # -- what it says

    def read(self) -> tuple[list[tuple[int, Any]], bool]:
        """Return what it said, and whether it has ended."""
        said: list[tuple[int, Any]] = []
        for _ in range(_MOST_PIECES):
            try:
                piece = self.line.recv(_PIECE)
            except BlockingIOError:
                return said, False
            except OSError:
                piece = b""
            if not piece:
                return said, True
            said += [(kind, decode(kind, body)) for kind, body in self._assembly.add(piece)]
            if len(piece) < _PIECE // 2:
                break
        return said, False

    def start(self, key: int, *, now: float) -> None:
        """Take note that it has begun a job."""
        self.running, self.began_at, self.is_warned = self.at_hand.pop(key), now, False

    def take_returned(self, keys: list[int]) -> list[Job]:
        """Return the jobs that it gives back."""
        self.is_giving_back = False
        self.given -= len(keys)
        return [self.at_hand.pop(key) for key in keys]

    def end(self, key: int, *, now: float) -> Doom | None:
        """Take note that it has ended the job it ran; return its doom, if it was doomed for that."""
        self.running, self.began_at = None, now
        doom = self.doom
        if doom is None or doom.key != key:
            return None
        if doom.sent_at is None:
            self.doom = None
        else:
            self.leave(now)  # the signal may come yet, and must hit nothing else
        return doom

    # -- its end

    def doom_for(self, job: Job, *, cause: str, now: float, signal_number: int = signal.SIGKILL) -> None:
        """End it for the job that it runs, once it has given back all others."""
        if self.doom is None:
            self.doom = Doom(job.key, cause, signal_number, due_at=now + _GIVE_BACK_TIME)
            if self.at_hand:
                self.take_back()
        self.enforce(now)

    def enforce(self, now: float) -> None:
        """Send the signal that is due, if one is."""
        doom = self.doom
        if doom is not None and doom.sent_at is None:
            # What waits behind the job might begin just now, and must not be hit.
            if not self.at_hand or now >= doom.due_at:
                doom.sent_at = now
                self._process.send_signal(doom.signal_number)
        elif doom is not None and doom.sent_at is not None and now >= doom.sent_at + _PATIENCE:
            self.kill()
        if self.leaves_by is not None and self.running is None and now >= self.leaves_by:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.send_signal(signal.SIGKILL)

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended, even if something that it started holds on to the socket."""
        return self._process.poll() is not None

    def bury(self) -> str:
        """End what is left of it, and say how it ended."""
        self.kill()
        code = self._process.wait()
        self.line.close()
        if code >= 0:
            return f"ended with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
