"""The thread that seals write-ahead files, while more events come in."""

from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Thread
from time import monotonic
from typing import Final, Generic, TypeVar

from celeriac.errors import DiskError

__all__ = ["Sealer"]

_T = TypeVar("_T")
#: Files that wait while one is sealed. Where more come than can be sealed, who writes has to wait.
_MAX_WAITING: Final = 2
#: How many times as long one waits at the end.
_LAST_PATIENCE: Final = 6


class Sealer(Generic[_T]):
    """Seals one file after the other, in a thread that is there only while there is something to do.

    What fails stays at the head of the line, and is tried again after ``retry_after`` seconds: nothing is
    sealed before what came before it. An object store that is away for an hour, or does not answer, keeps
    nobody from recording: files wait on the disk meanwhile. ``patience`` is for how many seconds one waits.
    """

    def __init__(self, seal: Callable[[_T], None], *, retry_after: float, patience: float) -> None:
        self._seal = seal
        self._retry_after = retry_after
        self._patience = patience
        self._changed = Condition()
        self._line: deque[_T] = deque()
        self._thread: Thread | None = None
        self._error: DiskError | None = None
        self._retry_at: float | None = None
        #: Somebody waited in vain: nobody else does until one more is sealed.
        self._is_stuck = False

    @property
    def pending(self) -> int:
        """How many files are not sealed yet."""
        return len(self._line)

    def put(self, task: _T) -> None:
        """Have a file sealed. If too many are in the line, one of those is waited for, but not for long."""
        with self._changed:
            before = len(self._line)
            if before >= _MAX_WAITING and not self._is_stuck:
                self._is_stuck = not self._has_gone_on(self._patience)
            self._line.append(task)
            self._begin()

    def put_all(self, tasks: Iterable[_T]) -> None:
        """Have the files sealed that another run left, however many. Nobody waits."""
        with self._changed:
            self._line.extend(tasks)
            self._begin()

    def wake(self) -> None:
        """Try again what failed, if it is time."""
        with self._changed:
            self._begin()

    def resume(self) -> None:
        """Try again what failed, if it is time. Raises DiskError for what failed since the last call."""
        self.wake()
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def drain(self) -> None:
        """Seal all that is left, or try to, once. Raises DiskError if some of it still is."""
        with self._changed:
            self._wait_until_idle()
            self._retry_at = None
            self._begin()
            self._wait_until_idle()
            error, self._error = self._error, None
        if error is not None and self._line:
            raise error

    def _wait_until_idle(self) -> None:
        """Wait for the thread to end, as long as it goes on. Raises DiskError if it does not."""
        # Nothing is held up at the end, and to seal now spares it the next start.
        patience = self._patience * _LAST_PATIENCE
        while self._thread is not None:
            if not self._has_gone_on(patience):
                raise DiskError(
                    f"sealing {self._line[0]} is stuck for {patience:g} seconds: check that the storage of "
                    f"the log responds. {len(self._line)} files stay in the spool, and are sealed when a "
                    "recorder of this name starts again"
                )

    def _has_gone_on(self, patience: float) -> bool:
        """Wait until one more is sealed or the thread has ended; False if it does neither."""
        before = len(self._line)
        return self._changed.wait_for(lambda: len(self._line) < before or self._thread is None, patience)

    def _begin(self) -> None:
        """Start the thread, if there is something to do and it is time."""
        if self._thread is not None or not self._line:
            return
        if self._retry_at is not None and monotonic() < self._retry_at:
            return
        self._retry_at = None
        # A daemon: one that hangs must not keep the process from ending. What it was at can be done again.
        thread = Thread(target=self._run, name="celeriac-sealer", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # None is to be had: the process ends, or has too many.
            self._run()
        else:
            self._thread = thread

    def _run(self) -> None:
        """Seal all that is in the line, until one fails."""
        while True:
            # Only this thread takes from the line.
            task = self._line[0]
            error = self._tried(task)
            with self._changed:
                if error is None:
                    self._line.popleft()
                    self._is_stuck = False
                else:
                    # It stays the first: what is sealed is then always all up to some number.
                    self._error = error
                    self._retry_at = monotonic() + self._retry_after
                is_done = error is not None or not self._line
                if is_done:
                    self._thread = None
                self._changed.notify_all()
            if is_done:
                return

    def _tried(self, task: _T) -> DiskError | None:
        try:
            self._seal(task)
        except DiskError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the thread would end, and nobody would hear of it
            made = DiskError(f"{task} cannot be sealed, retrying: {type(error).__name__}: {error}")
            made.__cause__ = error
            return made
        return None
