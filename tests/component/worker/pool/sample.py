"""An app whose tasks do what tests of pools want to see; processes of pools load it by its name."""

import ctypes
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from celeriac import Celeriac
from celeriac.errors import SoftTimeLimitExceeded
from celeriac.transport.memory import MemoryBroker

app = Celeriac(MemoryBroker(), "redis://", environ={})
#: Looked at by tasks that wait: often enough not to be noticed.
LOOK_EVERY = 0.005
#: Files that stay open.
kept: list[int] = []


def wait_for(file: str) -> None:
    """Wait until there is a file."""
    while not Path(file).exists():
        time.sleep(LOOK_EVERY)


@app.task(name="add")
def add(first: Any, second: Any) -> Any:
    return first + second


@app.task(name="pid")
def pid() -> int:
    return os.getpid()


@app.task(name="wait")
def wait(file: str, began: str = "") -> int:
    """Note in a file that it began, and wait for another."""
    if began:
        with Path(began).open("a") as notes:
            notes.write(f"{os.getpid()}\n")
    wait_for(file)
    return os.getpid()


@app.task(name="spin")
def spin() -> None:
    while True:
        pass


@app.task(name="spin_tidily")
def spin_tidily() -> str:
    """Go on until it is told that it takes too long."""
    try:
        while True:
            pass
    except SoftTimeLimitExceeded:
        return "tidied up"


@app.task(name="doze")
def doze() -> None:
    """Wait in the system until it is interrupted."""
    time.sleep(60)


@app.task(name="fail")
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(name="exit")
def leave(code: int) -> None:
    sys.exit(code)


@app.task(name="die")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="long_text")
def long_text(length: int) -> str:
    return "x" * length


@app.task(name="length")
def length(text: str) -> int:
    return len(text)


@app.task(name="report", bind=True)
def report(self: Any) -> None:
    self.send_event("task-halfway", step=1)
    self.update_state("PROGRESS", {"step": 2})


@app.task(name="ignore_signals")
def ignore_signals(began: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(began).touch()
    while True:
        time.sleep(LOOK_EVERY)


@app.task(name="fork")
def fork(file: str) -> int:
    """Leave a process behind that holds on to all that this one had open, and die."""
    child: int = ctypes.PyDLL(None).fork()  # as C code does it, of which Python does not know
    if child == 0:
        wait_for(file)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    return child


@app.task(name="fork_and_return")
def fork_and_return(file: str) -> str:
    """Return from both processes; from this one when the other is gone."""
    child = os.fork()
    if child == 0:
        Path(file).write_text(str(os.getpid()))
        return "copy"
    os.waitpid(child, 0)
    return "original"


@app.task(name="close_files")
def close_files(reuse: str = "") -> str:
    """Close all files of the process, and perhaps open others in their place."""
    os.closerange(3, 256)
    if reuse:
        kept.extend(os.open(f"{reuse}-{number}", os.O_CREAT | os.O_WRONLY) for number in range(64))
    return "closed"


@app.task(name="interrupt")
def interrupt() -> None:
    raise KeyboardInterrupt


@app.task(name="import_slowly")
def import_slowly(folder: str) -> str:
    """Import a module that takes its time; it is in a folder."""
    sys.path.insert(0, folder)
    try:
        import_module("slow_to_import")
    finally:
        sys.path.remove(folder)
    while True:
        time.sleep(LOOK_EVERY)


@app.task(name="has_imported")
def has_imported() -> list[bool]:
    """Say whether that module is there, and is whole."""
    module = sys.modules.pop("slow_to_import", None)
    return [module is not None, hasattr(module, "is_whole")]
