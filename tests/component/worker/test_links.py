"""What becomes of tasks when the link that they came over is lost, at any point."""

import json
import logging
from collections import Counter
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any

import pytest

from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Delivery, Queue
from celeriac.model.outcome import Outcome
from celeriac.model.states import REJECTED
from celeriac.transport.base import Take
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.transport.memory_lent import Lent
from celeriac.worker.worker import Worker
from tests.component.worker.kit import HandPool, Site, come_true


class Link(MemoryConnection):
    """A link that fails where a test wants it to, and that can keep what a lost one held."""

    def __init__(self, broker: MemoryBroker, faults: "Faults") -> None:
        super().__init__(broker)
        self._faults = faults

    def open(self) -> None:
        self._faults.check("open")
        super().open()

    def consume(self, queue: Queue, take: Take, *, prefetch: int) -> None:
        self._faults.check("consume")
        super().consume(queue, take, prefetch=prefetch)

    def accept(self, delivery: Delivery) -> None:
        self._faults.check("accept")
        self._faults.accepted.append(delivery)
        super().accept(delivery)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        self._faults.rejected.append(delivery)
        super().reject(delivery, requeue=requeue)

    def drain(self, timeout: float | None = None) -> int:
        self._faults.drains += 1
        self._faults.check("drain")
        return super().drain(timeout)

    def keep(self, delivery: Delivery) -> bool:
        return self._faults.keeps and isinstance(delivery.tag, Lent)

    def clone(self) -> "Link":
        self._faults.clones += 1
        link = Link(self.broker, self._faults)
        if self._faults.keeps:
            link._borrower = self._borrower
        return link

    def close(self) -> None:
        if not (self._faults.keeps and self._faults.is_lost):
            super().close()


class Faults:
    """What goes wrong with the links for tasks, and what was done over them."""

    def __init__(self) -> None:
        self.at: dict[str, Exception] = {}
        #: Whether a fault is over once it came.
        self.comes_once = True
        #: Whether the broker leaves us what a lost link held, as Redis does.
        self.keeps = False
        self.is_lost = False
        self.clones = 0
        self.drains = 0
        self.accepted: list[Delivery] = []
        self.rejected: list[Delivery] = []

    def check(self, place: str) -> None:
        error = self.at.pop(place, None) if self.comes_once else self.at.get(place)
        self.is_lost = error is not None
        if error is not None:
            raise error


class FaultySite(Site):
    """A site whose workers take tasks over links that fail."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.faults = Faults()
        self.task("shop.pay")
        self.task("shop.late", acks_late=True)

    def worker(self, pool: Any = None, **choices: Any) -> Worker:
        worker = super().worker(pool, **choices)
        worker.tasks._connect = lambda: Link(self.broker, self.faults)
        return worker


@pytest.fixture
def site() -> FaultySite:
    return FaultySite()


LOST = ConnectionLost("cut")


# -- nothing is lost, nothing is done twice


@pytest.mark.parametrize("task", ["shop.pay", "shop.late"])
@pytest.mark.parametrize("place", ["drain", "accept", "open", "consume"])
def test_wherever_the_link_is_lost_every_task_runs_once(site: FaultySite, task: str, place: str) -> None:
    with site.worker() as worker:
        for number in range(3):
            site.post(task, f"t{number}")
        first = site.pool.begin()
        if place in ("open", "consume"):
            site.faults.at["drain"] = LOST
        site.faults.at[place] = LOST
        worker.tasks.wake()
        if place == "accept":
            site.pool.end(first)
        assert come_true(lambda: not site.faults.at)
        if place != "accept":
            site.pool.end(first)
        site.pool.end(site.pool.begin())
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 3)

    began = [event["uuid"] for event in site.events("task-started")]
    assert sorted(began) == ["t0", "t1", "t2"]
    assert site.queued() == []


def test_what_has_not_begun_waits_while_there_is_no_link_and_comes_again_once(site: FaultySite) -> None:
    with site.worker() as worker:
        site.post("shop.late", "t1")
        site.post("shop.late", "t2")
        assert come_true(lambda: len(site.pool.waiting) == 2)

        site.broker.stop()

        assert come_true(lambda: not site.pool.waiting)
        site.broker.start()
        site.pool.end(site.pool.begin())
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 2)
    assert [event["uuid"] for event in site.events("task-started")] == ["t1", "t2"]


def test_what_the_broker_lets_us_keep_goes_on(site: FaultySite) -> None:
    site.faults.keeps = True
    with site.worker() as worker:
        site.post("shop.late", "t1")
        site.post("shop.late", "t2", eta=4e9)
        assert come_true(lambda: len(worker.desk) == 2 and site.pool.waiting)
        before = worker.desk.all()

        site.faults.at["drain"] = LOST
        worker.tasks.wake()

        assert come_true(lambda: site.faults.clones == 1 and site.pool.waiting)
        assert worker.desk.all() == before
        assert len(worker.tasks.intake.schedule) == 1
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 1)
    assert [delivery.tag for delivery in site.faults.accepted] == [before[0].source.tag]


def test_what_runs_goes_on_without_a_link_and_is_settled_over_the_next(site: FaultySite) -> None:
    with site.worker() as worker:
        site.post("shop.late")
        job = site.pool.begin()
        (assignment,) = worker.desk.all()
        site.broker.stop()
        site.broker.start()
        assert come_true(lambda: assignment.delivery not in (None, assignment.source))

        site.pool.end(job)

        assert come_true(lambda: worker.desk.ended and worker.tasks.is_quiet)
    assert len(site.faults.accepted) == 1
    assert site.queued() == []


def test_a_task_that_was_dropped_is_dropped_again_when_it_comes_again(site: FaultySite) -> None:
    with site.worker() as worker:
        site.post("shop.late")
        job = site.pool.begin()
        site.broker.stop()
        site.pool.end(job, Outcome(REJECTED, text="Reject()"))
        assert come_true(lambda: worker.desk.ended)

        site.broker.start()

        assert come_true(lambda: site.faults.rejected)
    assert site.faults.accepted == []
    assert site.queued() == []


def test_a_message_that_comes_twice_is_run_once_and_both_are_settled(site: FaultySite) -> None:
    with site.worker() as worker:
        site.post("shop.late")
        job = site.pool.begin()
        (assignment,) = worker.desk.all()
        site.post("shop.late", "t0")
        twin = assignment.source.message._replace(is_redelivered=True)

        worker.tasks.call(lambda: worker.tasks.intake.take(Delivery(twin, "celery", "twin")))

        assert come_true(lambda: site.faults.accepted)
        site.pool.end(job)
        assert come_true(lambda: worker.desk.ended and worker.tasks.is_quiet)
        site.pool.end(site.pool.begin())
    tags = [delivery.tag for delivery in site.faults.accepted]
    assert tags[:2] == [assignment.source.tag, "twin"]
    assert [job.request.id for job in site.pool.submitted] == ["t1", "t0"]


# -- how the loop behaves


def test_a_turn_without_a_link_waits(site: FaultySite) -> None:
    worker = site.worker()
    worker.graph.start()
    site.faults.comes_once = False
    site.faults.at["open"] = site.faults.at["drain"] = LOST

    worker.tasks.turn()
    drains, opens = site.faults.drains, site.faults.clones
    for _ in range(20):
        worker.tasks.turn()

    assert site.faults.drains == drains
    assert site.faults.clones - opens <= 20
    worker.graph.stop()


def test_to_settle_from_another_thread_wakes_the_loop(site: FaultySite) -> None:
    with site.worker() as worker:
        assert come_true(lambda: site.faults.drains > 2)
        done = Event()

        worker.tasks.call(done.set)

        assert done.wait(120)


@pytest.mark.parametrize(
    "error", [LOST, AccessRefused("no"), ValueError("odd")], ids=["lost", "refused", "odd"]
)
def test_a_command_that_raises_does_not_end_the_worker(site: FaultySite, error: Exception) -> None:
    def fail() -> None:
        raise error

    with site.worker() as worker:
        worker.tasks.call(fail)
        site.post()

        site.pool.end(site.pool.begin())

        assert come_true(lambda: worker.desk.ended)


def test_a_queue_that_is_added_while_the_link_is_lost_is_consumed_from_later(site: FaultySite) -> None:
    with site.worker() as worker:
        site.faults.at["consume"] = LOST

        worker.tasks.call(lambda: worker.tasks.add_queue("mail"))
        site.post(task_id="m1", queue="mail")

        assert site.pool.begin().request.id == "m1"
        assert list(worker.tasks.queues) == ["celery", "mail"]
        site.pool.end(site.pool.submitted[-1])


def test_a_queue_that_is_refused_is_left_out(site: FaultySite, caplog: pytest.LogCaptureFixture) -> None:
    with site.worker() as worker:
        site.faults.at["consume"] = AccessRefused("inequivalent arg 'x-queue-type'")

        worker.tasks.call(lambda: worker.tasks.add_queue("mail"))
        site.post()

        site.pool.end(site.pool.begin())
        assert list(worker.tasks.queues) == ["celery"]
    assert "inequivalent arg" in caplog.text


def test_a_queue_can_be_left(site: FaultySite) -> None:
    with site.worker(queues=("celery", "mail")) as worker:
        worker.tasks.call(lambda: worker.tasks.remove_queue("mail"))
        assert come_true(lambda: list(worker.tasks.queues) == ["celery"])

        site.post(task_id="m1", queue="mail")
        site.post()

        assert site.pool.begin().request.id == "t1"
        site.pool.end(site.pool.submitted[-1])
    assert [request.id for request in site.queued("mail")] == ["m1"]


# -- what cannot be mended


def test_a_queue_that_is_refused_at_the_start_ends_the_worker_with_the_reason(site: FaultySite) -> None:
    site.faults.at["consume"] = AccessRefused("inequivalent arg 'x-queue-type'")

    with pytest.raises(AccessRefused, match="inequivalent"):
        site.worker().run()

    assert site.pool.starts == 1


def test_a_queue_that_is_refused_later_ends_the_worker_once_what_runs_has_ended(site: FaultySite) -> None:
    worker = site.worker()
    with pytest.raises(AccessRefused, match="inequivalent"), worker:  # noqa: PT012 - raised at its end
        site.post()
        job = site.pool.begin()
        site.faults.at |= {"drain": LOST, "consume": AccessRefused("inequivalent arg 'x-queue-type'")}
        worker.tasks.wake()
        assert come_true(lambda: not site.faults.at)
        site.pool.end(job)
        assert come_true(lambda: worker.desk.ended)

    assert site.has_told("task-succeeded")


def test_a_pool_that_breaks_down_ends_the_worker_and_tasks_go_back(site: FaultySite) -> None:
    worker = site.worker()
    with pytest.raises(RuntimeError, match="no processes"), worker:  # noqa: PT012 - raised at its end
        site.post("shop.late", "t1")
        site.post("shop.pay", "t2")
        site.pool.begin()
        site.pool.begin()
        assert come_true(lambda: worker.tasks.is_quiet)
        site.pool.fault = RuntimeError("no processes")
        assert come_true(lambda: site.pool.is_killed)

    assert sorted(request.id for request in site.queued()) == ["t1", "t2"]


# -- broker away at the start


def test_a_worker_waits_for_a_broker_that_is_away_at_the_start(
    site: FaultySite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    site.broker.stop()
    worker = site.worker()
    healing = come_soon(lambda: "cannot be reached" in caplog.text, site.broker.start)

    with worker:
        site.post()
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended)

    healing.wait(120)
    assert site.pool.starts == 1


@pytest.mark.parametrize("place", ["open", "consume"])
def test_a_broker_that_goes_away_during_the_start_costs_no_pool(site: FaultySite, place: str) -> None:
    site.faults.at[place] = LOST

    with site.worker() as worker:
        site.post()
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended)

    assert site.pool.starts == 1


def test_a_worker_that_waits_for_its_broker_can_be_stopped(site: FaultySite) -> None:
    site.broker.stop()
    worker = site.worker(HandPool())
    stopping = come_soon(lambda: True, worker.stop)

    worker.run()

    assert stopping.wait(120)
    assert not worker.wait_until_ready(0)


def come_soon(condition: Callable[[], bool], act: Callable[[], object]) -> Event:
    """Do something, in a thread, once a condition holds; the event says that it is done."""
    done = Event()

    def wait() -> None:
        come_true(condition)
        act()
        done.set()

    Thread(target=wait, daemon=True).start()
    return done


# -- again and again


@pytest.mark.parametrize("acks_late", [False, True])
def test_however_often_the_links_are_lost_every_task_runs_once(acks_late: bool) -> None:
    site = Site()
    runs: Counter[int] = Counter()
    mutex = Lock()

    def note(number: int) -> None:
        with mutex:
            runs[number] += 1

    task = site.app.task(name="shop.note", acks_late=acks_late)(note)
    worker = site.app.Worker(concurrency=4, without_mingle=True)
    with worker:
        for number in range(400):
            task.delay(number)
            if number % 20 == 10:
                site.broker.cut()
        assert come_true(lambda: worker.desk.ended >= 400)

    assert runs == dict.fromkeys(range(400), 1)
    assert site.queued() == []


def test_a_worker_that_is_stopped_in_the_midst_of_it_leaves_what_it_did_not_do() -> None:
    site = Site()
    runs: Counter[int] = Counter()
    mutex = Lock()

    def note(number: int) -> None:
        with mutex:
            runs[number] += 1

    task = site.app.task(name="shop.note", acks_late=True)(note)
    for number in range(300):
        task.delay(number)
    with site.app.Worker(concurrency=4, without_mingle=True) as worker:
        site.broker.cut()
        assert come_true(lambda: worker.desk.ended > 20)

    left = [json.loads(request.body)[0][0] for request in site.queued()]
    assert sorted([*runs, *left]) == list(range(300))
    assert set(runs.values()) == {1}
