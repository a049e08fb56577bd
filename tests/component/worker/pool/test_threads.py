"""The pool of threads: what only threads can, and cannot."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import SoftTimeLimitExceeded
from celeriac.model.outcome import Outcome
from celeriac.node.context import Report
from celeriac.programs.process import wait_until
from celeriac.worker.pool.base import Job
from celeriac.worker.pool.run import failed
from celeriac.worker.pool.threads import ThreadPool
from tests.component.worker.pool.ledger import PATIENCE, Ledger, job, started


def thread_names() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("celeriac-task-")}


def test_no_thread_can_be_terminated(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with started("threads", size=1) as ledger:
        (running,) = ledger.submit(job("wait", str(gate)))
        ledger.pid_of(running)

        can = ledger.pool.terminate(running.key, 15)

        gate.touch()
        assert ledger.outcomes(running)[0].state == "SUCCESS"
    assert can is False


def test_what_an_abandoned_thread_returns_counts_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = tmp_path / "gate"
    with started("threads", size=1) as ledger:
        pool, late = ledger.pool, job("wait", str(gate), hard=0.01)
        (outcome,) = ledger.run(late)
        after = ledger.run(job("pid"))
        gate.touch()
        ledger.wait(lambda: pool.info()["abandoned-threads"] == 0)

        ends = [what for what, _ in ledger.of(late)]

    assert (outcome.state, outcome.cause) == ("FAILURE", "time-limit")
    assert after[0].result == b"%d" % os.getpid()
    assert ends == ["started", "ended"]
    assert "exceeded its time limit of 0.01 s" in caplog.text


def test_a_runaway_loop_in_an_abandoned_thread_ends() -> None:
    with started("threads", size=1) as ledger:
        ledger.run(job("spin", hard=0.01))

        ledger.wait(lambda: ledger.pool.info()["abandoned-threads"] == 0)

        assert ledger.pool.info()["threads"] == 1


def test_limits_count_while_a_stop_waits() -> None:
    with started("threads", size=2) as ledger:
        jobs = ledger.submit(job("spin", hard=0.05), job("spin", soft=0.05))
        for each in jobs:
            ledger.pid_of(each)

        has_ended = ledger.pool.stop()

        assert has_ended is True
        hard, soft = ledger.outcomes(*jobs)
    assert hard.cause == "time-limit"
    assert soft.text == "SoftTimeLimitExceeded()"


def test_a_pool_that_was_stopped_leaves_no_thread() -> None:
    before = thread_names()
    with started("threads", size=3) as ledger:
        ledger.run(job("add", 1, 2))

        ledger.pool.stop()

        assert wait_until(lambda: thread_names() <= before, patience=PATIENCE)


class SlowListener(Ledger):
    """Takes its time when it is told something, until a limit would have interrupted it."""

    def told(self, key: int, kind: str, fields: Mapping[str, Any]) -> None:
        for _ in range(1000):
            self.pool.tick(float("inf"))
        super().told(key, kind, fields)


class Teller:
    """Runs jobs that say something, again and again, until they are interrupted."""

    def execute(self, job: Job, report: Report) -> Outcome:  # noqa: ARG002
        number = 0
        try:
            while True:
                report.told("task-number", {"number": number})
                number += 1
        except SoftTimeLimitExceeded:
            return Outcome("SUCCESS", b"%d" % number)

    def fail(self, job: Job, error: BaseException, *, cause: str, runtime: float) -> Outcome:  # noqa: ARG002
        return failed(error, cause=cause, runtime=runtime)


def test_a_limit_never_interrupts_who_is_told_something() -> None:
    pool = ThreadPool(Teller(), size=1, settings=Settings())
    ledger = SlowListener(pool)
    pool.start(ledger)
    given = job("any", soft=0.0)
    ledger.submit(given)

    ledger.wait(lambda: len(ledger.of(given)) > 1)
    pool.tick(monotonic())
    (outcome,) = ledger.outcomes(given)

    assert pool.stop() is True
    said = [content[1]["number"] for what, content in ledger.of(given) if what == "told"]
    assert outcome.state == "SUCCESS"
    assert said == list(range(len(said)))
    # It may be interrupted right after somebody was told.
    assert len(said) - int(outcome.result) in (0, 1)


class Slow:
    """A listener that keeps a job that begins until it is let go."""

    def __init__(self) -> None:
        self.is_there, self.may_go = threading.Event(), threading.Event()
        self.ends: list[int] = []

    def started(self, key: int, *, pid: int, at: float) -> None:  # noqa: ARG002
        self.is_there.set()
        self.may_go.wait(120)

    def told(self, key: int, kind: str, fields: Mapping[str, Any]) -> None: ...

    def progressed(self, key: int, state: str, result: bytes) -> None: ...

    def ended(self, key: int, outcome: Outcome) -> None:  # noqa: ARG002
        self.ends.append(key)


class Counting:
    """Runs nothing, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.runs = 0

    def execute(self, job: Job, report: Report) -> Outcome:  # noqa: ARG002
        self.runs += 1
        return Outcome("SUCCESS")

    def fail(self, job: Job, error: BaseException, *, cause: str, runtime: float) -> Outcome:  # noqa: ARG002
        return failed(error, cause=cause, runtime=runtime)


def test_a_job_that_is_about_to_begin_when_the_pool_is_killed_is_not_run() -> None:
    runner, listener = Counting(), Slow()
    pool = ThreadPool(runner, size=1, settings=Settings())
    before = {*threading.enumerate()}
    pool.start(listener)
    (thread,) = {*threading.enumerate()} - before
    pool.submit(job("pid"))
    assert listener.is_there.wait(120)

    pool.kill()
    listener.may_go.set()
    thread.join(120)

    assert runner.runs == 0
    assert listener.ends == []


#: Has a task run into its limit, and then goes on under a tracer, as coverage and debuggers do.
TRACED = """
import sys
from tests.component.worker.pool.ledger import job, started

with started("threads", size=1) as ledger:
    ledger.run(job("spin", soft=0.05))

def go_on():
    return "it goes on"

sys.settrace(lambda *_: None)
print(go_on())
"""


def test_a_task_that_ran_into_its_limit_leaves_nothing_behind_that_stops_a_tracer() -> None:
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", TRACED],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.stdout == "it goes on\n", done.stderr
