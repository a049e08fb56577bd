"""Who listens to a pool in tests, and the jobs that it is given."""

import gc
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from threading import Lock
from time import monotonic
from typing import Any

from celeriac.config import Settings
from celeriac.model.outcome import Outcome
from celeriac.model.task_request import TaskRequest
from celeriac.programs.process import wait_until
from celeriac.worker.execute import Executor
from celeriac.worker.pool.base import Job, Pool
from celeriac.worker.pool.choose import make_pool
from tests.component.worker.pool.sample import app

APP = "tests.component.worker.pool.sample:app"
#: Far more than needed, for a busy machine.
PATIENCE = 60.0

_keys = count(1)
_mutex = Lock()


def job(name: str, *args: Any, soft: float | None = None, hard: float | None = None, **fields: Any) -> Job:
    """Return a job of the sample app, with a key of its own."""
    with _mutex:
        key = next(_keys)
    body = json.dumps([args, {}, {}]).encode()
    request = TaskRequest(f"id-{key}", name, body, **fields)
    return Job(key, request, "w1@sample", time_limit=hard, soft_time_limit=soft)


class Ledger:
    """Writes down all that a pool tells, and drives the pool while somebody waits for that."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        #: What was told, in order: the key, what, and more of it.
        self.entries: list[tuple[int, str, Any]] = []

    # -- the listener

    def started(self, key: int, *, pid: int, at: float) -> None:
        self.entries.append((key, "started", (pid, at)))

    def told(self, key: int, kind: str, fields: Mapping[str, Any]) -> None:
        self.entries.append((key, "told", (kind, dict(fields))))

    def progressed(self, key: int, state: str, result: bytes) -> None:
        self.entries.append((key, "progressed", (state, result)))

    def ended(self, key: int, outcome: Outcome) -> None:
        self.entries.append((key, "ended", outcome))

    # -- for tests

    def submit(self, *jobs: Job) -> list[Job]:
        for each in jobs:
            self.pool.submit(each)
        return list(jobs)

    def of(self, given: Job) -> list[tuple[str, Any]]:
        """Return what was told of a job."""
        return [(what, content) for key, what, content in list(self.entries) if key == given.key]

    def has_ended(self, *jobs: Job) -> bool:
        """Say whether all of these have ended."""
        return {each.key for each in jobs} <= {key for key, what, _ in list(self.entries) if what == "ended"}

    def outcomes(self, *jobs: Job) -> list[Outcome]:
        """Wait until jobs have ended, and return how."""
        self.wait(lambda: self.has_ended(*jobs))
        outcomes = {key: content for key, what, content in list(self.entries) if what == "ended"}
        return [outcomes[each.key] for each in jobs]

    def run(self, *jobs: Job) -> list[Outcome]:
        return self.outcomes(*self.submit(*jobs))

    def pid_of(self, given: Job) -> int:
        """Wait until a job has begun, and return where."""
        self.wait(lambda: bool(self.of(given)))
        (pid, _) = self.of(given)[0][1]
        return int(pid)

    def wait(self, condition: Callable[[], bool]) -> None:
        def look() -> bool:
            self.pool.tick(monotonic())
            return condition()

        assert wait_until(look, patience=PATIENCE), self.entries[-20:]


@contextmanager
def started(name: str, *, size: int, place: str = APP, **settings: Any) -> Iterator[Ledger]:
    """Start a pool that runs the tasks of the sample app, and end it in the end.

    Meanwhile no garbage is collected: the collector calls functions of a test tool in whatever thread
    it happens to run, and a time limit that hits one of those is ignored by Python, with a warning.
    """
    pool = make_pool(
        name,
        runner=Executor(app.tasks, app.conf),
        app=place,
        size=size,
        settings=Settings(**settings),
        overrides=settings,
    )
    ledger = Ledger(pool)
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        pool.start(ledger)
        yield ledger
    finally:
        pool.kill()
        if was_collecting:
            gc.enable()
