"""Reads the code of ``celeriac`` once, and runs each command in a fork of itself; see ``tests/program.py``.

Between the fork and this process stands one more, that waits for the command and tells how it ended.
"""

import gc
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from typer.testing import CliRunner

from celeriac.cli import main

__all__: list[str] = []

_STREAMS = 3
#: Threads that a fork can do without: an allocator of pyarrow has this one for its housekeeping.
_SPARE_THREADS = {"jemalloc_bg_thd"}


def read_the_code() -> None:
    """Import what commands import when they are called, but nothing that begins threads: a fork has none."""
    # It would start a thread for each processor when numpy is imported. Commands have their own environment.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import_packages("app", "cli", "history", "node", "store", "transport", "views")
    # Others are imported by what reads the arguments, and by the drivers of brokers.
    CliRunner().invoke(import_module("celeriac.cli.root").app, ["conf"])
    # pyarrow imports pandas, if it is installed, when it makes its first column.
    for name in (
        "kombu.transport.redis",
        "kombu.transport.pyamqp",
        "pandas",
        "pyarrow.compute",
        "pyarrow.parquet",
    ):
        import_module(name)
    check_threads()


@cache
def read_the_dashboard() -> None:
    """Import what ``celeriac web`` needs: a CPU second, so only for tests that start it."""
    import_packages("web", "web.api", "web.pages")
    gc.freeze()
    check_threads()


def import_packages(*names: str) -> None:
    """Import all modules of these packages of ours."""
    for name in names:
        package = import_module(f"celeriac.{name}")
        for module in iter_modules(getattr(package, "__path__", ()), f"celeriac.{name}."):
            with suppress(ImportError):
                import_module(module.name)


def check_threads() -> None:
    """Fail if this process has a thread that its forks would miss."""
    names = [thread.joinpath("comm").read_text().strip() for thread in Path("/proc/self/task").iterdir()]
    assert len([name for name in names if name not in _SPARE_THREADS]) == 1, names


def wait_for_a_command(line: socket.socket) -> dict[str, Any]:
    """Return what is to be run, in a process of its own; end with all commands when the tests have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        told, files, _, _ = socket.recv_fds(line, 1 << 20, _STREAMS + 1)
        if not told:
            # Nobody is left to end the commands that still run: the tests were killed. They are of our group.
            os.killpg(0, signal.SIGKILL)
        command: dict[str, Any] = json.loads(told)
        if command["arguments"][:1] == ["web"]:
            read_the_dashboard()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            line.close()
            *streams, answer = files
            watch(socket.socket(fileno=answer), streams)
            become(command, streams)
            return command
        for file in files:
            os.close(file)


def watch(answer: socket.socket, streams: list[int]) -> None:
    """Return in a new process; in this one tell its id, wait for it, and tell how it ended."""
    pid = os.fork()
    if pid == 0:
        answer.close()
        return
    for stream in streams:  # whoever reads from the command is to see its end
        os.close(stream)
    answer.send(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    answer.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(command: dict[str, Any], streams: list[int]) -> None:
    """Make of this process what a new one would be."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    if command["start_new_session"]:
        os.setsid()
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    time.tzset()
    sys.path[0] = ""
    sys.argv = ["celeriac", *command["arguments"]]


if __name__ == "__main__":
    read_the_code()
    gc.freeze()
    task = wait_for_a_command(socket.socket(fileno=int(sys.argv[1])))
    exec(task["before"])  # noqa: S102 - the test's own
    main()
