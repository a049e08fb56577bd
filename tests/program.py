"""The program ``celeriac`` in processes of its own that begin at once, for tests that run it by the dozen.

Nearly all the time that a short command takes is to read the code. So one process reads it, and each
command is a fork of that: with its own streams, signals, environment, folder and exit code, as a new one
has. What a test must know of a program that is really new (its environment in ``/proc``, what it imports)
it has to start by itself: ``[*CELERIAC, ...]``. Commands that only read and write files can run in the
process of the tests.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO, Self

from typer.testing import CliRunner

from celeriac.cli.root import app
from tests.default_signals import WITH_DEFAULT_SIGNALS

__all__ = ["CELERIAC", "Program", "own_environment", "run_here", "run_program"]

#: What ``celeriac`` on the path runs, as started from a terminal.
CELERIAC = [*WITH_DEFAULT_SIGNALS, sys.executable, "-c", "from celeriac.cli import main; main()"]
#: Far more than any command needs, for a busy machine.
_PATIENCE = 120.0
_SEED = Path(__file__).with_name("peers") / "seed.py"


def own_environment(**more: str) -> dict[str, str]:
    """Return the environment of the tests without settings of ours, and with these variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CELERIAC_")} | more


class Program:
    """A command that runs, as ``subprocess.Popen`` has it; it is killed at the end of the context.

    ``before`` is code that it runs first. Streams that are not named are pipes.
    """

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        start_new_session: bool = False,
        before: str = "",
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        told = {
            "arguments": arguments,
            "env": dict(own_environment() if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "start_new_session": start_new_session,
            "before": before,
        }
        with ExitStack() as stack:
            nothing = stack.enter_context(Path(os.devnull).open("rb"))
            self._answer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.callback(theirs.close)
            files = [nothing if stdin is None else stdin]
            if stdout is None:
                self.stdout, end = _pipe()
                stack.callback(os.close, end)
                stdout = end
            if stderr is None:
                self.stderr, end = _pipe()
                stack.callback(os.close, end)
                stderr = end
            files += [stdout, stderr]
            numbers = [file if isinstance(file, int) else file.fileno() for file in files]
            socket.send_fds(_line(), [json.dumps(told).encode()], [*numbers, theirs.fileno()])
        self._answer.settimeout(_PATIENCE)
        told_pid = self._answer.recv(32)
        assert told_pid, f"no process could be made for celeriac {' '.join(arguments)}"
        self.pid = int(told_pid)

    def poll(self) -> int | None:
        """Return how it ended; none while it runs."""
        return self._wait(0.0)

    def wait(self, timeout: float = _PATIENCE) -> int:
        """Wait until it has ended, and return how."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("celeriac", timeout)
        return code

    def _wait(self, timeout: float) -> int | None:
        if self.returncode is None:
            self._answer.settimeout(timeout)
            try:
                self.returncode = int(self._answer.recv(32))
            except (TimeoutError, BlockingIOError):
                return None
            self._answer.close()
        return self.returncode

    def communicate(self, timeout: float = _PATIENCE) -> tuple[str, str]:
        """Read all that it says until it ends."""
        said = {"out": "", "err": ""}

        def read(name: str, stream: IO[str]) -> None:
            said[name] = stream.read()

        streams = {name: stream for name, stream in (("out", self.stdout), ("err", self.stderr)) if stream}
        readers = [Thread(target=read, args=item, daemon=True) for item in streams.items()]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return said["out"], said["err"]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def run_program(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = _PATIENCE,
    before: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with Program(*arguments, env=env, cwd=cwd, before=before) as program:
        out, err = program.communicate(timeout)
    return subprocess.CompletedProcess(arguments, program.wait(), out, err)


def run_here(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end in this process, and in its time zone."""
    done = CliRunner().invoke(app, arguments, prog_name="celeriac", env={**dict.fromkeys(os.environ), **env})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout_bytes, done.stderr_bytes)


def _pipe() -> tuple[IO[str], int]:
    ours, theirs = os.pipe()
    # Nothing is translated: who wants bytes can have them back.
    return open(ours, newline="", encoding="utf-8", errors="surrogateescape"), theirs  # noqa: PTH123


@cache
def _line() -> socket.socket:
    """Return the line to the process that has read the code; it ends with us."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command: Sequence[str] = [*WITH_DEFAULT_SIGNALS, sys.executable, str(_SEED), str(theirs.fileno())]
    with theirs:
        # A session of its own: Ctrl-C at the terminal is for the tests, which then end their programs.
        seed = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )

    def end() -> None:
        ours.close()
        seed.wait()

    atexit.register(end)
    return ours
