"""Programs that never outlive those who started them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from celeriac.errors import ImproperlyConfigured

__all__ = ["GuardedProcess", "find_program", "wait_until"]

_GUARD = Path(__file__).with_name("guard.py")
#: Conditions are checked often at first, and less often the longer the wait: a check may cost milliseconds,
#: in this process and in a server, and nobody notices that a wait takes a twentieth longer.
_LOOK_EVERY, _SHARE, _LOOK_AT_LEAST_EVERY = 0.02, 0.05, 0.2
#: Where Debian puts servers; not on the path of everybody.
_SERVER_FOLDERS = ("/usr/sbin", "/usr/local/sbin")


def wait_until(condition: Callable[[], bool], *, patience: float) -> bool:
    """Look until the condition holds, for ``patience`` seconds; say whether it came to hold."""
    started_at = time.monotonic()
    while not condition():
        waited = time.monotonic() - started_at
        if waited > patience:
            return False
        time.sleep(min(max(_LOOK_EVERY, waited * _SHARE), _LOOK_AT_LEAST_EVERY))
    return True


def find_program(name: str, *, package: str) -> Path:
    """Return where a program is; if it is missing, name the Debian package to install."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SERVER_FOLDERS])
    found = shutil.which(name, path=folders)
    if found is None:
        raise ImproperlyConfigured(f"{name} is not installed: apt-get install {package}")
    return Path(found)


class GuardedProcess:
    """A program that ends when told, or when we do, with all it ever started.

    The guard that sees to it says how and why (:mod:`celeriac.programs.guard`). It also
    removes ``folder`` if we die. The line to it is inherited by plain forks of this
    process, so those count as us.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._line, theirs = socket.socketpair()
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(theirs.fileno()), str(folder)]
        with ExitStack() as on_failure:
            on_failure.enter_context(self._line)
            with theirs, log.open("ab") as output:
                self._guard = subprocess.Popen(  # noqa: S603 - the command is the caller's
                    [*guard, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    # Ctrl-C at the terminal is for who started it, and who then ends it in order.
                    start_new_session=True,
                )
            on_failure.pop_all()
        #: The program's own pid; it leads a process group of that number.
        self.pid = int(self._line.recv(32) or 0)

    @property
    def is_alive(self) -> bool:
        """The program, or something it left, still runs."""
        return self._guard.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the program ended, as a shell tells it; none while it runs."""
        return self._guard.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the program alone; nothing happens if it has ended."""
        try:
            self._line.send(bytes([number]))
        except OSError:  # the guard has closed the line, for the program has ended
            self._guard.wait()

    def kill(self) -> None:
        """End the program and all it started at once, as ``kill -9`` does."""
        self.signal(signal.SIGKILL)
        self._end()

    def ask_to_end(self) -> None:
        """Ask the program to end, and wait for nothing."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # one that was paused would not hear

    def stop(self, *, patience: float) -> bool:
        """Ask the program to end; kill it after ``patience`` seconds. Say whether it went by itself."""
        self.ask_to_end()
        try:
            self._guard.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._end()
        return True

    def _end(self) -> None:
        self._guard.wait()
        self._line.close()
