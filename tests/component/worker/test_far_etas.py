"""More tasks with an ETA than a worker may hold: which leave, for how long, and what becomes of them."""

import logging
from time import time
from typing import Any

import pytest

from celeriac.core.schedule import time_aside
from celeriac.errors import CallerError, ConnectionLost
from celeriac.model.message import Delivery
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.worker import intake
from celeriac.worker.assignment import Stage
from celeriac.worker.worker import Worker
from tests.component.worker.kit import Site, come_true

LIMIT = 5
#: Far beyond what is set aside for seconds, or for a minute.
FAR = 250_000_000_000.0


class AsideConnection(MemoryConnection):
    """A connection to a broker that may set aside nothing, and that notes what it was asked for."""

    def __init__(self, broker: MemoryBroker, site: "FarSite") -> None:
        super().__init__(broker)
        self._site = site

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:
        self._site.asked.append(seconds)
        if self._site.fault is not None:
            raise self._site.fault
        return self._site.can_set_aside and super().set_aside(delivery, self._site.pace or seconds)

    def clone(self) -> "AsideConnection":
        return AsideConnection(self.broker, self._site)


class FarSite(Site):
    """A site whose workers hold few tasks with an ETA."""

    def __init__(self) -> None:
        super().__init__(worker_eta_task_limit=LIMIT)
        self.task("shop.pay")
        self.can_set_aside = True
        #: Raised when a task is to be set aside.
        self.fault: Exception | None = None
        #: How long tasks are really aside; None for as long as they should be.
        self.pace: float | None = None
        #: For how long tasks were to be set aside.
        self.asked: list[float] = []

    def worker(self, pool: Any = None, **choices: Any) -> Worker:
        worker = super().worker(pool, **choices)
        worker.tasks._connect = lambda: AsideConnection(self.broker, self)
        return worker

    def post_all(self, *etas: float) -> None:
        for number, eta in enumerate(etas):
            self.post(task_id=f"t{number}", eta=eta)


@pytest.fixture
def site() -> FarSite:
    return FarSite()


def scheduled(worker: Worker) -> list[str]:
    """Return the ids of the tasks that wait in a worker, in the order of their ETA."""
    return [each.request.id for each in worker.tasks.intake.schedule]


def left(worker: Worker) -> int:
    return worker.tasks.intake.aside_count


def test_tasks_run_behind_more_far_ones_than_a_worker_may_hold(
    site: FarSite, caplog: pytest.LogCaptureFixture
) -> None:
    site.post_all(*[FAR] * 60)
    site.post(task_id="now")

    with site.worker() as worker:
        assert site.pool.begin().request.id == "now"

        assert left(worker) == 60 - LIMIT
        assert len(scheduled(worker)) == len(worker.desk.all(Stage.SCHEDULED)) == LIMIT
        assert worker.tasks.prefetch == worker.pool.size * 4 + LIMIT
        site.pool.end(next(iter(site.pool.running.values())))
    warning, *_ = [each for each in caplog.records if "worker_eta_task_limit" in each.message]
    assert warning.levelno == logging.WARNING
    assert "returned=1" in warning.message
    assert f"worker_eta_task_limit={LIMIT}. The broker redelivers them before" in warning.message
    assert set(site.asked) == {time_aside(FAR)}


def test_the_latest_leaves_whenever_it_came(site: FarSite) -> None:
    now = time()
    # The first two are the latest, though others come after them.
    site.post_all(now + 9000, now + 8000, *(now + 3000 + number for number in range(LIMIT)))

    with site.worker() as worker:
        assert come_true(lambda: left(worker) == 2)
        assert scheduled(worker) == [f"t{number + 2}" for number in range(LIMIT)]
    # The worker decides a moment after ``now``.
    assert sorted(site.asked) == [3600, 3600]


def test_tasks_that_are_due_soon_stay(site: FarSite) -> None:
    soon = time() + 9
    site.post_all(*[soon] * (LIMIT + 1))

    with site.worker() as worker:
        assert come_true(lambda: len(scheduled(worker)) == LIMIT + 1 or site.pool.waiting)
        assert site.asked == []
        assert left(worker) == 0


class Clock:
    """The time that workers see; an ETA is rounded to microseconds on its way."""

    def __init__(self) -> None:
        self.now = time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(intake, "time", clock)
    return clock


def test_what_was_set_aside_runs_when_its_eta_has_come(site: FarSite, clock: Clock) -> None:
    site.pace = 0.01
    site.post_all(*[clock.now + 1000] * 12)

    with site.worker() as worker:
        assert come_true(lambda: left(worker) >= 12 - LIMIT)
        assert not site.pool.submitted
        clock.now += 1001
        for _ in range(12):
            site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 12)
    assert sorted(job.request.id for job in site.pool.submitted) == sorted(
        f"t{number}" for number in range(12)
    )
    assert site.queued() == []


@pytest.mark.parametrize("is_expired", [False, True])
def test_what_was_revoked_or_expires_while_it_is_aside_ends_when_it_returns(
    site: FarSite, clock: Clock, is_expired: bool
) -> None:
    site.pace = 0.05
    site.post_all(*[FAR] * LIMIT)
    site.post(task_id="late", eta=FAR, expires=clock.now + 500 if is_expired else None)

    with site.worker() as worker:
        assert come_true(lambda: site.asked)
        if is_expired:
            clock.now += 501
        else:
            site.app.control.revoke("late")

        assert come_true(lambda: site.has_told("task-revoked", "late"))
        assert site.events("task-revoked")[0]["expired"] is is_expired
        assert len(scheduled(worker)) == LIMIT
    assert len(site.queued()) == LIMIT


def test_a_task_that_is_aside_is_not_taken_for_one_of_its_id_that_is_done(site: FarSite) -> None:
    site.pace = 0.01
    site.post_all(*[FAR] * LIMIT)
    site.post(task_id="twice", eta=FAR)

    with site.worker() as worker:
        assert come_true(lambda: site.asked)
        site.post(task_id="twice")
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 1)

        before = len(site.asked)
        assert come_true(lambda: len(site.asked) > before + 2)


@pytest.mark.parametrize("times", [1, 3])
def test_nothing_is_lost_when_the_connection_is_lost_while_tasks_are_set_aside(
    site: FarSite, times: int
) -> None:
    with site.worker() as worker:
        for _ in range(times):
            before = len(site.asked)
            for number in range(10):
                site.post(task_id=f"t{before}-{number}", eta=FAR)
            assert come_true(lambda: len(site.asked) - before >= 10 - LIMIT)  # noqa: B023 - called at once
            site.broker.cut()
        assert come_true(lambda: len(scheduled(worker)) == LIMIT)
        assert come_true(lambda: left(worker) == 10 * times - LIMIT)

    assert len(site.queued()) == LIMIT
    assert len(site.broker._lendings._aside) == 10 * times - LIMIT


def test_a_connection_that_is_lost_by_setting_aside_leaves_the_task_in_hand(site: FarSite) -> None:
    site.fault = ConnectionLost("cut")
    site.post_all(*[FAR] * (LIMIT + 1))

    with site.worker() as worker:
        assert come_true(lambda: site.asked)
        assert come_true(lambda: len(scheduled(worker)) == LIMIT + 1)
        assert left(worker) == 0
    assert len(site.queued()) == LIMIT + 1


def test_where_nothing_can_be_set_aside_tasks_stay_and_that_is_logged(
    site: FarSite, caplog: pytest.LogCaptureFixture
) -> None:
    site.can_set_aside = False
    site.post_all(*[FAR] * (LIMIT + 3))

    with site.worker() as worker:
        assert come_true(lambda: len(scheduled(worker)) == LIMIT + 3)
        assert left(worker) == 0
    warning, *_ = [each for each in caplog.records if "worker_eta_task_limit" in each.message]
    assert "cannot return tasks to the broker" in warning.message
    assert len(site.queued()) == LIMIT + 3


def test_what_could_not_be_set_aside_for_a_while_is_once_it_can(site: FarSite) -> None:
    site.can_set_aside = False
    site.post_all(*[FAR] * 60)
    site.post(task_id="now")

    with site.worker() as worker:
        assert come_true(lambda: len(scheduled(worker)) > LIMIT and site.asked)
        site.can_set_aside = True

        job = site.pool.begin()
        assert job.request.id == "now"
        site.pool.end(job)


def test_a_message_that_cannot_be_sent_again_is_rejected_and_keeps_no_other_from_leaving(
    site: FarSite,
) -> None:
    site.post_all(*[1000 + time() + number for number in range(LIMIT)])
    site.post(task_id="odd", eta=FAR)

    with site.worker() as worker:
        assert come_true(lambda: left(worker) == 1)
        site.fault = CallerError("a header has a number of 70 bits: send it as string, or in the body")
        site.post(task_id="odd too", eta=FAR)
        assert come_true(lambda: worker.tasks.intake.refused["headers"] == 1)
        site.fault = None
        site.post(task_id="good", eta=FAR)
        assert come_true(lambda: left(worker) == 2)
        assert scheduled(worker) == [f"t{number}" for number in range(LIMIT)]


def test_the_count_is_in_the_stats(site: FarSite) -> None:
    site.post_all(*[FAR] * (LIMIT + 2))

    with site.worker() as worker:
        assert come_true(lambda: left(worker) == 2)
        (stats,) = site.app.control.inspect([worker.hostname], timeout=60).stats().values()

    assert stats["set_aside"] == 2
