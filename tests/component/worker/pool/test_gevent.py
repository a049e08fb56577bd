"""The pool of greenlets, each time in a program of its own: patching cannot be undone."""

import subprocess

from tests.results import run_program

#: What every program here begins with.
START = """
from gevent import monkey
monkey.patch_all()
import os
from pathlib import Path
from tempfile import mkdtemp
from tests.component.worker.pool.ledger import job, started
gate = str(Path(mkdtemp()) / "gate")
"""


def run_patched(code: str) -> subprocess.CompletedProcess[str]:
    lines = [line[4:] for line in code.splitlines()]
    done = run_program(START + "\n".join(lines))
    assert done.stderr == ""
    return done


def test_jobs_run_side_by_side_in_one_thread() -> None:
    done = run_patched("""
    with started("gevent", size=2) as ledger:
        jobs = ledger.submit(job("wait", gate), job("wait", gate), job("add", 1, 2))
        ledger.wait(lambda: bool(ledger.of(jobs[0]) and ledger.of(jobs[1])))
        print(len(ledger.of(jobs[2])), ledger.pool.info()["running-threads"])
        Path(gate).touch()
        print(*[each.state for each in ledger.outcomes(*jobs)])
        print({ledger.pid_of(each) for each in jobs} == {os.getpid()})
    """)

    assert done.stdout.splitlines() == ["0 2", "SUCCESS SUCCESS SUCCESS", "True"]


def test_limits_end_jobs_that_wait() -> None:
    done = run_patched("""
    with started("gevent", size=1) as ledger:
        for each in ledger.run(job("doze", soft=0.01), job("doze", hard=0.01), job("add", 1, 2)):
            print(each.state, each.cause or "-", each.text)
        print([what for _, what, _ in ledger.entries])
    """)

    assert done.stdout.splitlines() == [
        "FAILURE - SoftTimeLimitExceeded()",
        "FAILURE time-limit TimeLimitExceeded(0.01)",
        "SUCCESS - 3",
        str(["started", "ended"] * 3),
    ]


def test_jobs_can_be_terminated_and_forgotten() -> None:
    done = run_patched("""
    with started("gevent", size=1) as ledger:
        running, waiting, last = ledger.submit(job("doze"), job("add", 1, 2), job("add", 3, 4))
        ledger.pid_of(running)
        print(ledger.pool.discard(waiting.key), ledger.pool.discard(running.key))
        print(ledger.pool.terminate(running.key, 15), ledger.pool.terminate(waiting.key, 15))
        (ended, added) = ledger.outcomes(running, last)
        print(ended.state, ended.cause, added.result, ledger.of(waiting))
    """)

    assert done.stdout.splitlines() == ["True False", "True False", "FAILURE terminated b'7' []"]


def test_a_pool_grows_shrinks_stops_and_is_killed() -> None:
    done = run_patched("""
    with started("gevent", size=1) as ledger:
        jobs = ledger.submit(job("wait", gate), job("wait", gate), job("report"))
        ledger.pool.grow()
        ledger.wait(lambda: bool(ledger.of(jobs[1])))
        ledger.pool.shrink(5)
        print(ledger.pool.size, ledger.pool.stop(0.01))
        Path(gate).touch()
        print(ledger.pool.stop(), [what for _, what, _ in ledger.entries], ledger.of(jobs[2]))
    with started("gevent", size=1) as ledger:
        (given,) = ledger.submit(job("doze"))
        ledger.pid_of(given)
        ledger.pool.kill()
        print(ledger.pool.stop(), [what for what, _ in ledger.of(given)])
    """)

    assert done.stdout.splitlines() == [
        "1 False",
        "True ['started', 'started', 'ended', 'ended'] []",
        "True ['started']",
    ]


def test_what_a_task_says_is_passed_on() -> None:
    done = run_patched("""
    with started("gevent", size=1) as ledger:
        given = job("report")
        ledger.run(given)
        print([what for what, _ in ledger.of(given)])
    """)

    assert done.stdout.splitlines() == ["['started', 'told', 'progressed', 'ended']"]
