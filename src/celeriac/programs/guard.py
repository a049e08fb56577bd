"""Runs one program, and lets nothing of it outlive its owner.

Started by :mod:`celeriac.programs.process` as a program of its own, with nothing but
the standard library::

    python -I -S guard.py LINE FOLDER PROGRAM ARGUMENT…

``LINE`` is the number of a socket whose other end the owner holds. The guard says the
program's pid over it, then takes orders, one byte each: the number of a signal to send
to the program. SIGKILL goes to all that the program ever started. When the line ends,
the owner is gone: everything is killed and ``FOLDER`` is removed. When the program
ends, what it left behind is killed, and the guard exits as it did.

Why a guard. To kill a process group misses those who left it: epmd, the child setup of
Erlang and its port programs each make a session of their own. ``PR_SET_PDEATHSIG``
alone reaches one process, not its children, and fires when the *thread* that started it
ends. ``atexit`` does not run on SIGKILL. A line that the system closes for the dead
owner works however the owner ends, and as *child subreaper* the guard inherits every
orphan below it, so that nobody gets away.
"""

import ctypes
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _prctl(option: int, value: int) -> None:
    """Set a trait of this process, where the system has such (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(command: list[str], heeded: list[signal.Signals]) -> int:
    """Start the program as leader of its own session and return its pid; it heeds these signals, not we."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        # Python ignores the first two, and we the others; what is ignored stays so over exec.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, *heeded):
            signal.signal(number, signal.SIG_DFL)
        # Should the guard itself be killed, then at least the program goes too.
        # Safe here: the guard has one thread, and it never ends before the guard.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvp(command[0], command)  # noqa: S606 - that is what we are for
    except OSError as error:
        print(f"cannot run {command[0]}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _children() -> Iterator[int]:
    """Yield the pids of those whose parent is the guard, born or adopted."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything; state and parent follow it.
            parent = entry.read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                yield int(entry.parent.name)


def _kill_everything(program: int) -> None:
    """Kill the program's group, then whoever is left, until there is nobody."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program, signal.SIGKILL)
    while True:
        # The children of whom we kill become ours, and are next.
        for child in list(_children()):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _reap(program: int) -> int | None:
    """Bury the dead; return the exit code of the program if it is among them."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == program:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            return None


def _next_order(line: socket.socket) -> int | None:
    """Return the signal that the owner orders; none if the owner is gone."""
    try:
        order = line.recv(1)
    except ConnectionError:
        return None
    return order[0] if order else None


def watch(line: socket.socket, folder: str, command: list[str]) -> int:
    """Run the program to its end, or to the owner's, and return its exit code."""
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    # A signal with no action of ours would not be written to the pipe.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Who ends many programs at once means the program: it is to end in good order, and we after it.
    heeded = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    line.set_inheritable(False)
    program = _start(command, heeded)
    with suppress(OSError):  # an owner already gone is noticed below
        line.send(str(program).encode())

    code = None
    is_owned = True
    sources: list[socket.socket | int] = [line, awake]
    while code is None:
        ready, _, _ = select.select(sources, [], [])
        if awake in ready:
            os.read(awake, 4096)
            code = _reap(program)
            continue
        order = _next_order(line)
        if order is None or order == signal.SIGKILL:
            code = -signal.SIGKILL
            is_owned = order is not None
        else:
            os.kill(program, order)
    _kill_everything(program)
    if not is_owned:
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(watch(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:]))
