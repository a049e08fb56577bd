"""The pool that is none."""

import signal
from threading import Thread

import pytest

from celeriac.config import Settings
from celeriac.errors import CallerError
from celeriac.model.outcome import Outcome
from celeriac.node.context import Report
from celeriac.worker.pool.base import Job
from celeriac.worker.pool.run import failed
from celeriac.worker.pool.solo import SoloPool
from tests.component.worker.pool.ledger import Ledger, job, started


def test_a_job_has_ended_when_it_is_submitted() -> None:
    with started("solo", size=1) as ledger:
        (given,) = ledger.submit(job("add", 1, 2))

        entries = ledger.of(given)

    assert [what for what, _ in entries] == ["started", "ended"]
    assert entries[1][1].result == b"3"


def test_a_soft_limit_counts_in_the_main_thread() -> None:
    with started("solo", size=1) as ledger:
        spun, slept = ledger.submit(job("spin_tidily", soft=0.02), job("doze", soft=0.02))

        outcomes = ledger.outcomes(spun, slept)

    assert [each.state for each in outcomes] == ["SUCCESS", "FAILURE"]
    assert outcomes[1].text == "SoftTimeLimitExceeded()"


def test_a_timer_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with started("solo", size=1) as ledger:
        ledger.run(job("add", 1, 2, soft=50.0))

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_elsewhere_there_is_no_limit() -> None:
    with started("solo", size=1) as ledger:
        given = job("add", 1, 2, soft=0.000001)
        thread = Thread(target=ledger.submit, args=(given,))
        thread.start()
        thread.join()

        (outcome,) = ledger.outcomes(given)

    assert outcome.result == b"3"


def test_what_a_task_says_is_passed_on() -> None:
    with started("solo", size=1) as ledger:
        (given,) = ledger.submit(job("report", soft=50.0))

        said = [what for what, _ in ledger.of(given)]

    assert said == ["started", "told", "progressed", "ended"]


def test_its_size_is_one_for_ever() -> None:
    with started("solo", size=1) as ledger:
        with pytest.raises(CallerError, match="use threads or processes"):
            ledger.pool.grow()
        with pytest.raises(CallerError, match="the solo pool runs one task at a time, and cannot shrink"):
            ledger.pool.shrink()

        info = ledger.pool.info()

    assert info["max-concurrency"] == 1


def test_after_a_stop_nothing_begins() -> None:
    with started("solo", size=1) as ledger:
        has_ended = ledger.pool.stop()
        (late,) = ledger.submit(job("add", 1, 2))

        assert ledger.of(late) == []
    assert has_ended is True
    assert ledger.pool.discard(late.key) is False
    assert ledger.pool.terminate(late.key, 15) is False


class Interrupted:
    """Runs jobs as if somebody pressed Ctrl-C meanwhile."""

    def execute(self, job: Job, report: Report) -> Outcome:  # noqa: ARG002
        raise KeyboardInterrupt

    def fail(self, job: Job, error: BaseException, *, cause: str, runtime: float) -> Outcome:  # noqa: ARG002
        return failed(error, cause=cause, runtime=runtime)


def test_ctrl_c_ends_the_task_and_is_passed_on() -> None:
    pool = SoloPool(Interrupted(), settings=Settings())
    ledger = Ledger(pool)
    pool.start(ledger)
    given = job("any", soft=50.0)

    with pytest.raises(KeyboardInterrupt):
        pool.submit(given)

    assert [what for what, _ in ledger.of(given)] == ["started"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
