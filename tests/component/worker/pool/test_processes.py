"""The pool of processes: what its processes live through, and what they do not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.model.outcome import Outcome
from celeriac.programs.process import wait_until
from celeriac.worker.execute import Executor
from celeriac.worker.pool.child import load_app
from celeriac.worker.pool.choose import make_pool
from tests.component.worker.pool.ledger import PATIENCE, Ledger, job, started

#: As a test that has this many bytes in hand finds no room for them in a socket.
LARGE = 10_000_000


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    """Return who listens to a pool of two, which tests here share; none may leave it in trouble."""
    with started("processes", size=2) as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """Return where a file is not yet."""
    return str(tmp_path / "gate")


def pids(ledger: Ledger) -> list[int]:
    return list(ledger.pool.info()["processes"])


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def hand_out_freely(ledger: Ledger) -> None:
    """Let the pool take all jobs for short ones, and give each process many."""
    ledger.pool._crew._pace = 1e-6  # type: ignore[attr-defined]


def codes(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(each.state, each.cause) for each in outcomes]


# -- a process that dies


def test_the_job_of_a_killed_process_is_lost_and_no_other(ledger: Ledger, gate: str) -> None:
    victim, survivor = ledger.submit(job("wait", gate), job("wait", gate))
    pid = ledger.pid_of(victim)
    ledger.pid_of(survivor)

    os.kill(pid, signal.SIGKILL)

    (lost,) = ledger.outcomes(victim)
    assert (lost.state, lost.cause) == ("FAILURE", "lost")
    assert b"WorkerLostError" in lost.result
    assert "was killed by SIGKILL" in lost.text
    Path(gate).touch()
    assert ledger.outcomes(survivor)[0].state == "SUCCESS"


def test_a_process_that_died_is_replaced(ledger: Ledger) -> None:
    given = job("die")

    ledger.run(given)

    ledger.wait(lambda: len(pids(ledger)) == 2)
    assert ledger.pid_of(given) not in pids(ledger)


def test_jobs_that_a_dead_process_had_not_begun_run_elsewhere(ledger: Ledger) -> None:
    crew = ledger.pool._crew  # type: ignore[attr-defined]
    ledger.wait(lambda: len(crew.children) == 2 and all(child.is_ready for child in crew.children))
    frozen, _ = pids(ledger)
    os.kill(frozen, signal.SIGSTOP)
    ledger.wait(lambda: ") T " in Path(f"/proc/{frozen}/stat").read_text())
    hand_out_freely(ledger)
    jobs = ledger.submit(*[job("add", number, 0) for number in range(20)])
    at_hand = [len(child.at_hand) for child in crew.children if child.pid == frozen]

    os.kill(frozen, signal.SIGKILL)

    assert at_hand[0] > 0
    assert [each.result for each in ledger.outcomes(*jobs)] == [b"%d" % number for number in range(20)]


def test_every_job_ends_once_though_processes_die_all_the_time(ledger: Ledger) -> None:
    hand_out_freely(ledger)
    jobs = [job("die") if number % 50 == 25 else job("add", number, 0) for number in range(200)]

    outcomes = ledger.run(*jobs)

    assert codes(outcomes) == [
        ("FAILURE", "lost") if each.request.task == "die" else ("SUCCESS", "") for each in jobs
    ]
    keys = [key for key, what, _ in ledger.entries if what == "ended"]
    assert len(keys) == len(set(keys))
    begun = [key for key, what, _ in ledger.entries if what == "started"]
    assert len(begun) == len(set(begun))


def test_a_death_is_noticed_though_somebody_holds_on_to_the_socket(ledger: Ledger, gate: str) -> None:
    (outcome,) = ledger.run(job("fork", gate))

    Path(gate).touch()
    assert (outcome.state, outcome.cause) == ("FAILURE", "lost")


def test_a_job_whose_task_forks_ends_once_and_its_copy_with_it(ledger: Ledger, gate: str) -> None:
    given = job("fork_and_return", gate)

    (outcome,) = ledger.run(given)

    assert outcome.result == b'"original"'
    assert [what for what, _ in ledger.of(given)] == ["started", "ended"]
    assert not is_alive(int(Path(gate).read_text()))


@pytest.mark.parametrize("has_reused", [False, True])
def test_a_job_that_closes_the_socket_of_its_process_is_lost_and_keeps_nobody_waiting(
    ledger: Ledger, tmp_path: Path, has_reused: bool
) -> None:
    given = job("close_files", str(tmp_path / "file") if has_reused else "")

    (outcome,) = ledger.run(given)

    assert (outcome.state, outcome.cause) == ("FAILURE", "lost")
    # It is ended as soon as its socket is seen to be closed, which may be before it has opened all 64.
    assert {each.stat().st_size for each in tmp_path.iterdir()} <= {0}
    assert ledger.run(job("add", 1, 2))[0].result == b"3"


# -- a job that takes long


def test_jobs_that_wait_behind_a_long_one_are_taken_back(ledger: Ledger, gate: str) -> None:
    ledger.run(job("add", 1, 2))
    hand_out_freely(ledger)
    (long,) = ledger.submit(job("wait", gate))
    jobs = ledger.submit(*[job("add", number, 0) for number in range(20)])

    outcomes = ledger.outcomes(*jobs)

    assert [each.result for each in outcomes] == [b"%d" % number for number in range(20)]
    assert not ledger.has_ended(long)
    Path(gate).touch()
    ledger.outcomes(long)


def test_a_soft_limit_wakes_a_task_that_sleeps_in_the_system(ledger: Ledger) -> None:
    (outcome,) = ledger.run(job("doze", soft=0.05))

    assert outcome.text == "SoftTimeLimitExceeded()"
    assert outcome.runtime < 30


def test_the_process_of_a_runaway_task_is_dead_when_its_time_is_over(ledger: Ledger) -> None:
    runaway = job("spin", hard=0.05)
    ledger.submit(runaway)
    pid = ledger.pid_of(runaway)

    ledger.outcomes(runaway)

    assert not is_alive(pid)


# -- terminate


def test_a_job_that_runs_can_be_terminated(ledger: Ledger, gate: str) -> None:
    (running,) = ledger.submit(job("wait", gate))
    pid = ledger.pid_of(running)

    can = ledger.pool.terminate(running.key, signal.SIGTERM)

    assert can is True
    assert codes(ledger.outcomes(running)) == [("FAILURE", "terminated")]
    assert not is_alive(pid)


def test_a_job_that_does_not_run_cannot_be_terminated(ledger: Ledger) -> None:
    ended = job("add", 1, 2)
    ledger.run(ended)

    can = ledger.pool.terminate(ended.key, signal.SIGTERM)

    assert can is False


def test_a_task_that_lives_through_a_signal_is_killed_later(ledger: Ledger, gate: str) -> None:
    (stubborn,) = ledger.submit(job("ignore_signals", gate))
    ledger.pid_of(stubborn)
    ledger.wait(Path(gate).exists)
    ledger.pool.terminate(stubborn.key, signal.SIGTERM)

    ledger.pool.tick(monotonic() + 60)

    assert codes(ledger.outcomes(stubborn)) == [("FAILURE", "terminated")]


# -- what crosses


def test_large_arguments_and_results_cross_both_ways_at_once(ledger: Ledger) -> None:
    jobs = [job("long_text", LARGE), job("length", "y" * LARGE), job("long_text", LARGE)]

    outcomes = ledger.run(*jobs)

    assert [len(each.result) for each in outcomes] == [LARGE + 2, len(str(LARGE)), LARGE + 2]


def test_a_job_that_cannot_cross_fails_with_the_reason(ledger: Ledger) -> None:
    huge = job("add", 1, 2, headers={"number": 2**70})

    (outcome,) = ledger.run(huge)

    assert outcome.state == "FAILURE"
    assert "cannot send it to another process" in outcome.text
    assert "2**64" in outcome.text


def test_ctrl_c_ends_no_process(ledger: Ledger) -> None:
    ledger.wait(lambda: len(pids(ledger)) == 2)
    ledger.run(*[job("add", 1, 2) for _ in range(10)])
    before = pids(ledger)

    for pid in before:
        os.kill(pid, signal.SIGINT)

    assert {each.state for each in ledger.run(*[job("add", 1, 2) for _ in range(10)])} == {"SUCCESS"}
    assert pids(ledger) == before


def test_ctrl_c_ends_no_process_that_is_still_loading(ledger: Ledger) -> None:
    ledger.wait(lambda: len(pids(ledger)) == 2)
    before = pids(ledger)
    os.kill(before[0], signal.SIGKILL)
    ledger.wait(lambda: len({*pids(ledger)} - {*before}) == 1)
    (new,) = {*pids(ledger)} - {*before}

    os.kill(new, signal.SIGINT)

    ledger.wait(lambda: new in {int(each.result) for each in ledger.run(*[job("pid") for _ in range(4)])})


# -- the life of a pool


def test_a_process_is_replaced_after_as_many_tasks_as_it_may_run() -> None:
    with started("processes", size=1, worker_max_tasks_per_child=2) as ledger:
        outcomes = ledger.run(*[job("pid") for _ in range(5)])

    processes = [int(each.result) for each in outcomes]
    assert processes[0] == processes[1]
    assert processes[2] == processes[3]
    assert len(set(processes)) == 3


def test_settings_that_an_app_was_given_later_count_in_its_processes() -> None:
    with started("processes", size=1, task_ignore_result=True) as ledger:
        (outcome,) = ledger.run(job("add", 1, 2))

    assert (outcome.state, outcome.result) == ("SUCCESS", b"null")


def test_a_pool_whose_processes_cannot_load_the_app_says_why() -> None:
    with (
        pytest.raises(ImproperlyConfigured) as caught,
        started("processes", size=1, place="no_such_module:app"),
    ):
        pass

    assert "No module named 'no_such_module'" in str(caught.value)


def test_a_stop_while_processes_are_started_waits_for_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(600)\n")
    settings, runner = Settings(), Executor({}, Settings())
    pool = make_pool("processes", runner=runner, app="slow_to_load:app", size=1, settings=settings)
    sys.path.append(str(tmp_path))
    start = Thread(target=pool.start, args=(Ledger(pool),))
    start.start()
    assert wait_until(lambda: bool(pool.info()["processes"]), patience=PATIENCE)

    has_ended = pool.stop(PATIENCE)

    sys.path.remove(str(tmp_path))
    start.join(PATIENCE / 2)
    assert (has_ended, start.is_alive()) == (True, False)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("tests.component.worker.pool.sample:no_such_app", "has no 'no_such_app'"),
        ("tests.component.worker.pool.sample", "names no app"),
        (":app", "names no app"),
    ],
)
def test_a_place_where_no_app_is_cannot_be_loaded(place: str, reason: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=reason):
        load_app(place)


def test_an_app_is_found_by_module_and_name() -> None:
    found = load_app("tests.component.worker.pool.sample:app.tasks")

    assert "add" in found


def test_no_process_outlives_a_worker_that_is_killed() -> None:
    code = """
        from tests.component.worker.pool.ledger import job, started
        with started("processes", size=2) as ledger:
            jobs = ledger.submit(job("spin"), job("doze"))
            print(*[ledger.pid_of(each) for each in jobs], flush=True)
            ledger.outcomes(*jobs)
    """
    lines = "\n".join(line[8:] for line in code.splitlines())
    with subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True) as worker:  # noqa: S603
        assert worker.stdout is not None
        children = [int(pid) for pid in worker.stdout.readline().split()]

        worker.kill()

    assert len(children) == 2
    assert wait_until(lambda: not any(is_alive(pid) for pid in children), patience=PATIENCE)
