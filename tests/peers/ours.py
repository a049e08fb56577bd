"""The app that our own workers run in tests: the same tasks, by the same names, as the peers' app.

Broker and result backend come from ``CELERIAC_BROKER_URL`` and ``CELERIAC_RESULT_BACKEND``.
"""

import os
import time
from pathlib import Path
from typing import Any

from celeriac import Celeriac, Ignore, Reject, SoftTimeLimitExceeded

app = Celeriac(task_send_sent_event=True, task_track_started=True)


@app.task(name="peers.add")
def add(x: float, y: float) -> float:
    return x + y


@app.task(name="peers.total")
def total(numbers: list[float]) -> float:
    return sum(numbers)


@app.task(name="peers.fail")
def fail(message: str = "planned") -> None:
    raise ValueError(message)


@app.task(name="peers.retry_then_succeed", bind=True, max_retries=2)
def retry_then_succeed(self: Any) -> int:
    """Is retried twice, at once, and then returns how often it was."""
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    retries: int = self.request.retries
    return retries


@app.task(name="peers.sleep_for")
def sleep_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@app.task(name="peers.echo")
def echo(value: Any, seconds: float = 0.0) -> Any:
    time.sleep(seconds)
    return value


@app.task(name="peers.reject", acks_late=True)
def reject() -> None:
    raise Reject("planned", requeue=False)


@app.task(name="peers.ignore")
def ignore() -> None:
    raise Ignore


@app.task(name="peers.send_custom_event", bind=True)
def send_custom_event(self: Any, steps: int = 3) -> int:
    """Tells of each step with an event of a type of its own."""
    for step in range(steps):
        self.send_event("task-progress", step=step, steps=steps)
    return steps


@app.task(name="ours.note", acks_late=True)
def note(file: str, text: str, seconds: float = 0.0) -> int:
    """Write that it began and that it ended, to a file that outlives every process, and return its own."""
    _write(file, f"begin {text}")
    time.sleep(seconds)
    _write(file, f"end {text}")
    return os.getpid()


@app.task(name="ours.note_early")
def note_early(file: str, text: str, seconds: float = 0.0) -> int:
    """Do the same, acknowledged when it begins."""
    return int(note.run(file, text, seconds))


@app.task(name="ours.record", acks_late=True)
def record(file: str, text: str, seconds: float = 0.0) -> str:
    """Do the same as ``note``, and return the text."""
    note.run(file, text, seconds)
    return text


@app.task(name="ours.spin")
def spin() -> None:
    """Never end."""
    while True:
        pass


@app.task(name="ours.die", acks_late=True, reject_on_worker_lost=True)
def die(file: str) -> str:
    """Kill the process that runs it, the first time."""
    if not Path(file).exists():
        _write(file, "died")
        os.kill(os.getpid(), 9)
    return "alive"


@app.task(name="ours.die_at_once")
def die_at_once() -> None:
    """Kill the process that runs it."""
    os.kill(os.getpid(), 9)


@app.task(name="ours.hold", acks_late=True)
def hold(file: str, text: str, until: str) -> str:
    """Write that it began, wait until there is a file, write that it ended, and return the text."""
    _write(file, f"begin {text}")
    while not Path(until).exists():
        time.sleep(0.02)
    _write(file, f"end {text}")
    return text


@app.task(name="ours.hold_early")
def hold_early(file: str, text: str, until: str) -> str:
    """Do the same, acknowledged when it begins."""
    return str(hold.run(file, text, until))


@app.task(name="ours.meet")
def meet(file: str, count: int) -> bool:
    """Wait until so many of its kind run at a time."""
    with Path(file).open("ab", buffering=0) as place:
        place.write(b"x")
    while Path(file).stat().st_size < count:
        time.sleep(0.02)
    return True


@app.task(name="ours.now")
def now() -> float:
    """Return when it ran."""
    return time.time()


@app.task(name="ours.hop", bind=True, max_retries=None)
def hop(self: Any, path: list[str], stops: int) -> list[str]:
    """Be tried again until so many workers have had it; return who had it, in order."""
    path = [*path, self.request.hostname]
    if len(set(path)) < stops:
        raise self.retry(args=[path, stops], countdown=0)
    return path


@app.task(name="ours.give_up", bind=True, max_retries=2)
def give_up(self: Any, file: str) -> None:
    """Never succeed."""
    _write(file, f"try {self.request.retries}")
    raise self.retry(countdown=0)


@app.task(
    name="ours.flaky", bind=True, autoretry_for=(OSError,), retry_kwargs={"countdown": 0}, max_retries=2
)
def flaky(self: Any, failures: int) -> int:
    """Fail so often, and be tried again by itself; return how often it was."""
    if self.request.retries < failures:
        raise OSError("planned")
    return int(self.request.retries)


@app.task(name="ours.tidy_up", soft_time_limit=0.5)
def tidy_up() -> str:
    """Take too long, and notice it."""
    try:
        while True:
            time.sleep(0.01)
    except SoftTimeLimitExceeded:
        return "tidy"


@app.task(name="ours.reject_once", acks_late=True)
def reject_once(file: str) -> str:
    """Go back to the queue, the first time."""
    if not Path(file).exists():
        _write(file, "rejected")
        raise Reject("planned", requeue=True)
    return "taken"


@app.task(name="ours.progress", bind=True)
def progress(self: Any, until: str) -> str:
    """Tell how far it is, and end when there is a file."""
    self.update_state("PROGRESS", {"done": 1, "of": 2})
    while not Path(until).exists():
        time.sleep(0.02)
    return "done"


@app.task(name="ours.seldom", rate_limit="1/h")
def seldom(text: str) -> str:
    return text


def _write(file: str, text: str) -> None:
    # One write to a file that is only added to: lines of several processes are never mixed.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)
