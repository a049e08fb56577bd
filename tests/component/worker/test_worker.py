"""How a worker begins and ends, and what becomes of its tasks then."""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.model.outcome import Outcome
from celeriac.model.states import SUCCESS
from celeriac.worker.pool.base import Job
from celeriac.worker.worker import Worker
from tests.component.worker.kit import HOST, HandPool, Site, come_true


@pytest.fixture
def site() -> Site:
    site = Site()
    site.task("shop.pay")
    site.task("shop.late", acks_late=True)
    return site


@pytest.fixture
def running(site: Site) -> Iterator[Worker]:
    """A worker that a test stops by itself."""
    worker = site.worker()
    thread = Thread(target=worker.run)
    thread.start()
    assert worker.wait_until_ready(30)
    yield worker
    worker.stop_now()
    thread.join()


def back(site: Site) -> list[str]:
    """Return the ids of the tasks that are in the queue, in no order."""
    return sorted(request.id for request in site.queued())


# -- once


def test_a_warm_stop_waits_for_what_runs_and_gives_the_rest_back_at_once(site: Site, running: Worker) -> None:
    for task_id in ("t1", "t2", "t3"):
        site.post("shop.late", task_id)
    site.post("shop.late", "t4", eta=4e9)
    job = site.pool.begin()
    assert come_true(lambda: len(running.desk) == 4)

    running.stop()

    assert come_true(lambda: back(site) == ["t2", "t3", "t4"])
    assert [each.request.id for each in running.desk.all()] == ["t1"]
    site.pool.end(job)
    assert come_true(lambda: site.events("worker-offline"))
    assert site.has_told("task-succeeded", "t1")
    assert back(site) == ["t2", "t3", "t4"]


def test_no_task_is_begun_after_a_stop(site: Site, running: Worker) -> None:
    site.post(task_id="t1")
    job = site.pool.begin()

    running.stop()
    assert come_true(lambda: not running.tasks._is_consuming)
    site.post(task_id="t2")
    site.pool.end(job)

    assert come_true(lambda: site.events("worker-offline"))
    assert [job.request.id for job in site.pool.submitted] == ["t1"]
    assert [request.id for request in site.queued()] == ["t2"]


def test_results_of_the_last_tasks_are_stored_before_the_end() -> None:
    site = Site(result_backend="rpc://")
    add = site.app.task(name="shop.add")(lambda a, b: a + b)
    worker = site.app.Worker(HOST, concurrency=2)
    with worker:
        results = [add.delay(number, 1) for number in range(20)]
        assert come_true(lambda: worker.desk.begun["shop.add"] == 20)

    assert [result.get(timeout=120) for result in results] == list(range(1, 21))
    site.app.close()


def test_a_worker_ends_though_its_broker_is_away(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.worker.worker._PATIENCE", 0.1)
    monkeypatch.setattr("celeriac.worker.steps.events._PATIENCE", 0.1)
    worker = site.worker()
    with worker:
        site.post("shop.late", "t1")
        site.post("shop.late", "t2")
        job = site.pool.begin()
        site.broker.stop()
        assert come_true(lambda: not site.pool.waiting)
        site.pool.end(job)
        assert come_true(lambda: worker.desk.ended)

    assert "publisher: closed with unsent events, dropped=" in caplog.text
    site.broker.start()
    assert back(site) == ["t1", "t2"]


# -- twice


def test_a_cold_stop_loses_nothing_that_runs_or_waits(site: Site, running: Worker) -> None:
    site.post("shop.pay", "early")
    site.post("shop.late", "late")
    site.post("shop.pay", "waiting")
    site.pool.begin()
    site.pool.begin()
    assert come_true(lambda: running.tasks.is_quiet and running.desk.all()[0].verdict)

    running.stop_now()

    assert come_true(lambda: site.events("worker-offline"))
    assert back(site) == ["early", "late", "waiting"]
    assert site.pool.is_killed


def test_of_tasks_that_a_cold_stop_broke_off_it_is_told(site: Site, running: Worker) -> None:
    site.post("shop.pay", "early")
    site.post("shop.late", "late")
    site.post("shop.pay", "waiting")
    site.pool.begin()
    site.pool.begin()
    assert come_true(lambda: running.tasks.is_quiet and running.desk.all()[0].verdict)

    running.stop_now()

    assert come_true(lambda: site.events("worker-offline"))
    assert [event["uuid"] for event in site.events("task-cancelled")] == ["early", "late"]


def test_a_cold_stop_gives_back_what_was_just_about_to_be_acknowledged(site: Site) -> None:
    worker = site.worker()
    worker.graph.start()
    site.post()
    while not site.pool.waiting:
        worker.tasks.turn()
    site.pool.begin()  # the broker is not told yet that it began

    worker._break_off()
    worker.graph.stop()

    assert [request.id for request in site.queued()] == ["t1"]
    assert site.posted() == ["t1"]


def test_a_task_that_was_acknowledged_over_a_lost_link_is_not_lost_in_a_cold_stop(
    site: Site, running: Worker
) -> None:
    site.post(queue="celery")
    site.pool.begin()
    assert come_true(lambda: running.tasks.is_quiet and running.desk.all()[0].verdict)
    site.broker.cut()
    assert come_true(lambda: running.desk.all()[0].delivery is None)

    running.stop_now()

    assert come_true(lambda: site.events("worker-offline"))
    assert [request.id for request in site.queued()] == ["t1"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_task_that_ends_while_it_is_broken_off_ends_or_goes_back_but_not_both(
    site: Site, is_first: bool
) -> None:
    worker = site.worker()
    worker.graph.start()
    site.post("shop.late")
    while not site.pool.waiting:
        worker.tasks.turn()
    job, done = site.pool.begin(), Outcome(SUCCESS, b"1", "1")
    if is_first:
        site.pool.on_kill = lambda: site.pool.listener.ended(job.key, done)

    worker._break_off()
    site.pool.listener.ended(job.key, done)
    worker._end()

    assert (site.has_told("task-succeeded"), back(site)) == ((True, []) if is_first else (False, ["t1"]))


def test_tasks_that_are_lost_after_all_are_named(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.worker.worker._GIVE_BACK_PATIENCE", 0.05)
    worker = site.worker()
    worker.graph.start()
    site.post()
    while not site.pool.waiting:
        worker.tasks.turn()
    site.pool.begin()
    worker.tasks.turn()
    site.broker.stop()

    worker._break_off()

    assert "ids=t1" in caplog.text
    site.broker.start()
    worker.graph.stop()


# -- signals


class SignallingPool(HandPool):
    """Runs each job where it is submitted, by sending signals to this program."""

    name = "signalling"

    def __init__(self, *numbers: int) -> None:
        super().__init__(1, runs_in_place=True)
        self.numbers = numbers
        self.has_finished = Event()

    def submit(self, job: Job) -> None:
        super().submit(job)
        self.begin()
        for number in self.numbers:
            signal.raise_signal(number)
        self.has_finished.set()
        self.end(job)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_task_in_place_end(site: Site, number: int) -> None:
    pool = SignallingPool(number)
    site.post(task_id="t1")
    site.post(task_id="t2")

    site.worker(pool).run()

    assert site.has_told("task-succeeded", "t1")
    assert [job.request.id for job in pool.submitted] == ["t1"]
    assert [request.id for request in site.queued()] == ["t2"]


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGQUIT,)])
@pytest.mark.parametrize("task", ["shop.pay", "shop.late"])
def test_a_second_signal_breaks_off_a_task_in_place_which_goes_back(
    site: Site, numbers: tuple[int, ...], task: str
) -> None:
    pool = SignallingPool(*numbers)
    site.post(task)

    site.worker(pool).run()

    assert not pool.has_finished.is_set()
    assert [request.id for request in site.queued()] == ["t1"]
    assert not site.has_told("task-succeeded")


def test_the_handlers_of_signals_are_as_before_afterwards(site: Site) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)]
    site.post()

    site.worker(SignallingPool(signal.SIGTERM)).run()

    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)]
    assert after == before


# -- beginning


def test_a_worker_is_run_once(site: Site) -> None:
    worker = site.worker()
    with worker:
        pass

    with pytest.raises(CallerError, match="create another one"):
        worker.run()


def test_a_worker_that_is_stopped_before_it_is_ready_ends(site: Site) -> None:
    worker = site.worker()
    worker.stop()

    worker.run()

    assert site.pool.submitted == []
    assert not worker.wait_until_ready(0)


def test_a_worker_that_cannot_begin_says_why_where_it_is_begun(site: Site) -> None:
    class Broken(HandPool):
        def start(self, listener: object) -> None:  # noqa: ARG002
            raise ImproperlyConfigured("no app is named")

    with pytest.raises(ImproperlyConfigured, match="no app"), site.worker(Broken()):
        pass


def test_a_second_worker_of_one_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(worker_mingle_timeout=2.0)
    site.task("shop.pay")
    with site.worker(HandPool()):
        second = site.worker(HandPool())
        thread = Thread(target=second.run)
        thread.start()

        assert come_true(
            lambda: f"mingle: another worker named {HOST} is running: both receive the same" in caplog.text
        )

        second.stop()
        thread.join()


def test_without_what_is_left_out_a_worker_works(site: Site) -> None:
    with site.worker(without_mingle=True, without_gossip=True, without_heartbeat=True) as worker:
        site.post()
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended)

    assert site.events("worker-online", "worker-heartbeat", "worker-offline") == []
    assert worker.gossip.membership.alive_count == 1


def test_the_steps_are_those_of_celery_in_its_order(site: Site) -> None:
    names = [step.name for step in site.worker().graph]

    assert [name for name in names if name not in ("finisher", "pool")] == [
        *("connection", "events", "mingle", "gossip", "heart", "tasks", "control"),
    ]


# -- what outlives it


def test_clock_and_revoked_tasks_outlive_a_worker(tmp_path: Path) -> None:
    first = Site(worker_state_db=str(tmp_path / "state"))
    with first.worker() as worker:
        worker.revoked.add("t1", now=monotonic())
        first.app.clock.adjust(5000)

    second = Site(worker_state_db=str(tmp_path / "state"))
    with second.worker() as worker:
        revoked, clock = list(worker.revoked), second.app.clock.value

    assert revoked == ["t1"]
    assert clock > 5000


def test_a_damaged_state_is_told_and_the_worker_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state"
    with Site(worker_state_db=str(path)).worker():
        pass
    path.write_bytes(path.read_bytes()[:-5])

    with Site(worker_state_db=str(path)).worker() as worker:
        assert worker.wait_until_ready()

    assert "is damaged" in caplog.text
    assert [record.levelno for record in caplog.records if "is damaged" in record.getMessage()] == [
        logging.ERROR
    ]


def test_a_state_that_cannot_be_kept_ends_the_worker_before_it_takes_tasks(tmp_path: Path) -> None:
    site = Site(worker_state_db=str(tmp_path / "nowhere" / "state"))

    with pytest.raises(ImproperlyConfigured, match="does not exist: create it"):
        site.worker().run()
    assert site.pool.starts == 0


def test_a_state_that_cannot_be_written_is_told_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    with Site(worker_state_db=str(folder / "state")).worker():
        folder.rmdir()

    assert "cannot be written" in caplog.text
