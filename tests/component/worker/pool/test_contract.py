"""What a pool promises, whatever it runs tasks in."""

import os
from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest

from tests.component.worker.pool.ledger import Ledger, job, started

#: A module that is read for longer than the limit of who reads it, in many small steps.
SLOW = """
import time
until = time.monotonic() + 0.4
while time.monotonic() < until:
    time.sleep(0.005)
is_whole = True
"""


@pytest.fixture(scope="module", params=["threads", "processes"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """Return who listens to a pool of two, which all tests here share."""
    with started(request.param, size=2) as made:
        yield made


def test_a_job_begins_and_ends_with_what_its_task_returned(ledger: Ledger) -> None:
    before = time()
    given = job("pid")

    (outcome,) = ledger.run(given)

    assert [what for what, _ in ledger.of(given)] == ["started", "ended"]
    pid, at = ledger.of(given)[0][1]
    assert before <= at <= time()
    assert (outcome.state, outcome.result) == ("SUCCESS", b"%d" % pid)
    assert pid in ledger.pool.info()["processes"]


def test_a_job_that_fails_harms_no_other(ledger: Ledger) -> None:
    failed, added = ledger.run(job("fail", "no"), job("add", 1, 2))

    assert failed.state == "FAILURE"
    assert failed.text == "ValueError('no')"
    assert (added.state, added.result) == ("SUCCESS", b"3")


def test_a_task_that_wants_to_end_the_program_fails_and_does_not(ledger: Ledger) -> None:
    pids = ledger.pool.info()["processes"]

    (outcome,) = ledger.run(job("exit", 3))

    assert outcome.state == "FAILURE"
    assert "SystemExit(3)" in outcome.text
    assert ledger.run(job("add", 1, 2))[0].result == b"3"
    assert ledger.pool.info()["processes"] == pids


def test_a_task_that_raises_what_ctrl_c_does_fails_and_ends_nothing(ledger: Ledger) -> None:
    before = ledger.run(*[job("pid") for _ in range(4)])

    (outcome,) = ledger.run(job("interrupt"))

    assert outcome.state == "FAILURE"
    assert b"WorkerLostError" in outcome.result
    after = ledger.run(*[job("pid") for _ in range(4)])
    assert {each.result for each in after} <= {b"%d" % pid for pid in ledger.pool.info()["processes"]}
    assert {each.state for each in (*before, *after)} == {"SUCCESS"}


def test_as_many_jobs_run_at_a_time_as_the_pool_is_large(ledger: Ledger, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    first, second, third = ledger.submit(job("wait", gate), job("wait", gate), job("wait", gate))

    ledger.wait(lambda: bool(ledger.of(first) and ledger.of(second)))

    assert ledger.of(third) == []
    Path(gate).touch()
    assert [outcome.state for outcome in ledger.outcomes(first, second, third)] == ["SUCCESS"] * 3


def test_a_job_that_has_not_begun_can_be_forgotten(ledger: Ledger, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    running = ledger.submit(job("wait", gate), job("wait", gate))
    ledger.wait(lambda: all(ledger.of(each) for each in running))
    (waiting,) = ledger.submit(job("add", 1, 2))

    was_forgotten = [ledger.pool.discard(each.key) for each in (waiting, waiting, running[0])]

    assert was_forgotten == [True, False, False]
    Path(gate).touch()
    ledger.outcomes(*running)
    ledger.run(job("add", 1, 2))
    assert ledger.of(waiting) == []


def test_what_a_task_says_comes_before_its_end(ledger: Ledger) -> None:
    given = job("report")

    ledger.run(given)

    started_, told, progressed, ended = ledger.of(given)
    assert told == ("told", ("task-halfway", {"step": 1}))
    assert progressed == ("progressed", ("PROGRESS", b'{"step": 2}'))
    assert (started_[0], ended[0]) == ("started", "ended")


def test_a_task_beyond_its_soft_limit_may_tidy_up(ledger: Ledger) -> None:
    (outcome,) = ledger.run(job("spin_tidily", soft=0.05))

    assert outcome.state == "SUCCESS"
    assert outcome.result == b'"tidied up"'


def test_a_task_that_does_not_mind_its_soft_limit_fails(ledger: Ledger) -> None:
    (outcome,) = ledger.run(job("spin", soft=0.05))

    assert (outcome.state, outcome.cause) == ("FAILURE", "")
    assert outcome.text == "SoftTimeLimitExceeded()"
    assert b"billiard.exceptions" in outcome.result


@pytest.mark.parametrize("name", ["threads", "processes", "solo"])
def test_a_soft_limit_lets_a_module_be_imported_first(name: str, tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    with started(name, size=1) as ledger:
        (late,) = ledger.run(job("import_slowly", str(tmp_path), soft=0.05))
        (after,) = ledger.run(job("has_imported"))

    assert late.text == "SoftTimeLimitExceeded()"
    assert after.result == b"[true, true]"


def test_a_task_beyond_its_hard_limit_is_ended(ledger: Ledger) -> None:
    given = job("spin", hard=0.05)

    (outcome,) = ledger.run(given)

    assert (outcome.state, outcome.cause) == ("FAILURE", "time-limit")
    assert outcome.text == "TimeLimitExceeded(0.05)"
    assert outcome.runtime >= 0.05
    assert [each.state for each in ledger.run(*[job("add", 1, 2) for _ in range(4)])] == ["SUCCESS"] * 4
    assert len([what for what, _ in ledger.of(given) if what == "ended"]) == 1


def test_a_limit_that_comes_as_its_task_ends_hits_nothing_else(ledger: Ledger) -> None:
    jobs = [job("add", number, 0, soft=0.00001) for number in range(500)]
    others = [job("add", number, 0) for number in range(500)]

    for limited, other in zip(jobs, others, strict=True):
        ledger.submit(limited, other)
        ledger.pool.tick(float("inf"))
    outcomes = ledger.outcomes(*jobs)

    assert [each.result for each in ledger.outcomes(*others)] == [b"%d" % number for number in range(500)]
    assert {each.state for each in outcomes} <= {"SUCCESS", "FAILURE"}
    assert len(outcomes) == 500
    assert {each.text for each in outcomes if each.state == "FAILURE"} <= {"SoftTimeLimitExceeded()"}


def test_a_pool_grows_and_shrinks(ledger: Ledger, tmp_path: Path) -> None:
    gates = [str(tmp_path / name) for name in "abc"]
    ledger.pool.grow()
    jobs = ledger.submit(*[job("wait", gate) for gate in gates])
    ledger.wait(lambda: all(ledger.of(each) for each in jobs))

    ledger.pool.shrink(2)

    assert (ledger.pool.size, ledger.pool.info()["max-concurrency"]) == (1, 1)
    (last,) = ledger.submit(job("add", 1, 2))
    for gate in gates[:2]:
        Path(gate).touch()
    ledger.outcomes(*jobs[:2])
    assert ledger.of(last) == []
    Path(gates[2]).touch()
    assert ledger.outcomes(last)[0].result == b"3"
    ledger.pool.shrink(5)
    assert ledger.pool.size == 1
    ledger.pool.grow()


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_jobs_begin_in_the_order_they_came(name: str) -> None:
    with started(name, size=1) as ledger:
        jobs = [job("add", number, 0) for number in range(200)]

        ledger.run(*jobs)

        begun = [key for key, what, _ in ledger.entries if what == "started"]
    assert begun == [each.key for each in jobs]


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_a_stop_waits_for_what_runs_and_begins_nothing_more(name: str, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with started(name, size=1) as ledger:
        running, waiting = ledger.submit(job("wait", gate), job("add", 1, 2))
        ledger.pid_of(running)

        had_ended_at_once = ledger.pool.stop(0.05)
        late = job("add", 1, 2)
        ledger.pool.submit(late)
        Path(gate).touch()
        has_ended = ledger.pool.stop()

    assert (had_ended_at_once, has_ended) == (False, True)
    assert [what for what, _ in ledger.of(running)] == ["started", "ended"]
    assert ledger.of(waiting) == ledger.of(late) == []


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_after_a_kill_nobody_is_told_of_anything(name: str, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with started(name, size=1) as ledger:
        running, waiting = ledger.submit(job("wait", gate), job("add", 1, 2))
        pid = ledger.pid_of(running)

        ledger.pool.kill()

        Path(gate).touch()
        assert ledger.pool.stop() is True
    assert [what for what, _ in ledger.of(running)] == ["started"]
    assert ledger.of(waiting) == []
    assert name == "threads" or not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
