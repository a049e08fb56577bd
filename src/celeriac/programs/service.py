"""Services: started, awaited, stopped, killed, started again in the same place."""

import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple, Self

from celeriac.errors import CallerError, CeleriacError
from celeriac.programs.process import GuardedProcess, wait_until

__all__ = ["Ailment", "Service"]

#: How much of a log an error shows: a startup failure fits, with its reason.
_LAST_LINES = 25


class Ailment(NamedTuple):
    """What keeps a program from what it is there for, though it runs."""

    #: The same for as long as it is the same ailment; the text may say how long, or why this time.
    kind: str
    text: str
    #: Whether nothing helps but its end.
    is_hung: bool = False


class Service(ABC):
    """A program with a folder of its own, that is ready some time after it was started.

    A context manager: starts, and at the end stops and removes the folder. The folder
    and what is in it stay over ``stop``, ``kill`` and ``restart``. It is made in ``home``, else among the
    temporary ones; what the program prints goes to ``log``, else to a file in the folder.
    """

    #: What people call it.
    name: str
    #: How long it may take to get ready; far more than needed, for a busy machine.
    start_patience = 60.0
    #: How long it may take to end when asked to.
    stop_patience = 30.0
    #: How often to ask for its ailment.
    look_every = 1.0

    def __init__(self, *, home: Path | None = None, log: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"celeriac-{self.name}-", dir=home))
        #: Where all that the program prints is kept, over every start.
        self.log_file = log or self.folder / "output.log"
        self._process: GuardedProcess | None = None
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The pid that the program has, or had when it last ran."""
        return self._started().pid

    @property
    def is_alive(self) -> bool:
        """The program was started and has not ended."""
        return self._process is not None and self._process.is_alive

    @property
    def exit_code(self) -> int | None:
        """How the program last ended, as a shell tells it; none before that."""
        return None if self._process is None else self._process.exit_code

    @property
    def is_ready(self) -> bool:
        """The program runs, and does what it is there for."""
        return self.is_alive and self._is_ready()

    def ailment(self) -> Ailment | None:
        """Return what ails the program, which was ready once; None if it is well, or nobody can tell."""
        return None

    def log(self) -> str:
        """Return all that the program has printed, over every start; nothing if that cannot be read."""
        try:
            return self.log_file.read_text(errors="replace")
        except OSError:
            return ""

    def last_lines(self) -> str:
        """Return the end of what the program has printed."""
        return "\n".join(self.log().splitlines()[-_LAST_LINES:])

    def start(self) -> None:
        """Start the program and wait until it is ready; the error, if it does not get so, shows its log."""
        self.begin()
        process = self._started()
        is_settled = wait_until(
            lambda: not process.is_alive or self._is_ready(), patience=self.start_patience
        )
        if not is_settled or not process.is_alive:
            code = process.exit_code
            process.kill()
            fate = (
                f"was not ready within {self.start_patience:g} s"
                if code is None
                else f"exited with code {code}"
            )
            raise CeleriacError(f"{self.name} {fate}; last lines of its log:\n{self.last_lines()}")

    def begin(self) -> None:
        """Start the program, and wait for nothing."""
        if self.is_alive:
            raise CallerError(f"{self.name} is already running: stop it first")
        self.kill()  # one that ended by itself has a line to its guard that is still open
        self._process = GuardedProcess(
            self._command(),
            folder=self.folder,
            log=self.log_file,
            cwd=self._cwd(),
            environment=self._environment(),
        )

    def ask_to_end(self) -> None:
        """Tell the program to end, and wait for nothing; ``stop`` or ``kill`` is still to be called."""
        if self._process is not None:
            self._process.ask_to_end()

    def stop(self) -> None:
        """End the program cleanly; kill it if it takes too long."""
        if self._process is not None:
            self._process.stop(patience=self.stop_patience)

    def kill(self) -> None:
        """End the program and all it started at once, as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop cleanly, and start again in the same place."""
        self.stop()
        self.start()

    def signal(self, number: int) -> None:
        """Send a signal to the program, such as SIGSTOP and SIGCONT; nothing happens if it has ended."""
        self._started().signal(number)

    def close(self) -> None:
        """Stop, and remove the folder. To be called once all is done; ``with`` calls it."""
        self.stop()
        self._remove()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> GuardedProcess:
        if self._process is None:
            raise CallerError(f"{self.name} was never started: start it first")
        return self._process

    def _cwd(self) -> Path:
        return self.folder

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Say whether the program does what it is there for."""
