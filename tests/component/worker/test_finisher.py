"""What is done when tasks have ended: in which order, and what nothing can keep from being done."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.core.clock import LamportClock
from celeriac.errors import AccessRefused, CallerError, ConnectionLost
from celeriac.model.message import Delivery, Message
from celeriac.model.outcome import Outcome
from celeriac.model.result import Json, ResultMeta, StoredResult
from celeriac.model.states import FAILURE, REJECTED, RETRY, REVOKED, STARTED, SUCCESS
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.node.clock import SharedClock
from celeriac.node.dispatcher import EventDispatcher
from celeriac.transport.memory import MemoryBroker
from celeriac.worker.assignment import Assignment, Desk, Verdict
from celeriac.worker.finisher import Ended, Finisher
from celeriac.worker.report import TaskReport
from celeriac.worker.traits import Traits
from tests.component.worker.kit import come_true

DONE = Outcome(SUCCESS, b"42", "42")


class Hall:
    """A finisher with a sender, a store and chords that write down what they are asked, and fail at will."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(broker_retry_base=0.01, broker_retry_cap=0.02, **settings)
        #: All that happened, in order.
        self.log: list[tuple[str, Any]] = []
        #: What each of them raises next, and how often.
        self.faults: dict[str, list[Exception]] = {"post": [], "store": [], "chord": []}
        #: Called with what is to be posted or stored, to raise what they choose to.
        self.check: Callable[[Any], object] = lambda _: None
        self.broker = MemoryBroker()
        self.desk = Desk()
        dispatcher = EventDispatcher(
            self.broker.connect(), settings=self.settings, clock=_Noting(self), hostname="w1@lab"
        )
        self.finisher = Finisher(
            settings=self.settings,
            desk=self.desk,
            sender=self,  # type: ignore[arg-type]
            backend=self,  # type: ignore[arg-type]
            chords=self,  # type: ignore[arg-type]
            report=TaskReport(dispatcher),
            settle=lambda settlements: self.note("settle", [(each.key, told) for each, told in settlements]),
        )

    def note(self, what: str, more: Any) -> None:
        if self.faults.get(what):
            raise self.faults[what].pop(0)
        self.log.append((what, more))

    def post(self, postings: Sequence[Posting], *, timeout: float) -> None:  # noqa: ARG002
        for posting in postings:
            self.check(posting)
        self.note("post", [posting.request.id for posting in postings])

    def store_many(self, results: Sequence[StoredResult], *, timeout: float) -> None:  # noqa: ARG002
        for result in results:
            self.check(result.meta)
        self.note("store", [result.meta for result in results])

    def end_part(self, request: TaskRequest, outcome: Outcome) -> None:  # noqa: ARG002
        self.note("chord", request.id)

    def task(self, task_id: str = "t1", **traits: Any) -> Assignment:
        """Return a task in hand."""
        request = TaskRequest(task_id, "shop.pay", group_id="g")
        treated = Traits.of(None, self.settings)._replace(**traits)
        return self.desk.add(request, treated, Delivery(Message(b""), "celery", task_id))

    def put(self, assignment: Assignment, outcome: Outcome = DONE, **more: Any) -> None:
        """Let a task end."""
        if not more.get("goes_on"):
            self.desk.end(assignment.key)
        self.finisher.put(Ended(assignment, outcome, **more))

    def what(self) -> list[str]:
        return [what for what, _ in self.log]

    def stored(self) -> list[tuple[str, str]]:
        """Return what was stored: ids and states."""
        return [(meta.task_id, meta.status) for what, metas in self.log if what == "store" for meta in metas]

    def settled(self) -> list[tuple[int, Verdict]]:
        return [each for what, settlements in self.log if what == "settle" for each in settlements]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the finisher running; at the end all that was put is done."""
        self.finisher.start()
        yield
        assert self.finisher.stop(30.0)


class _Noting(SharedClock):
    """Writes down when an event is stamped."""

    def __init__(self, hall: Hall) -> None:
        super().__init__()
        self._hall = hall

    def forward(self) -> int:
        self._hall.log.append(("event", None))
        return LamportClock.forward(self)


@pytest.fixture
def hall() -> Hall:
    return Hall()


def following(task_id: str = "c1") -> Posting:
    return Posting(TaskRequest(task_id, "shop.ship"), "celery")


# -- order


def test_what_follows_comes_first_and_the_message_goes_last(hall: Hall) -> None:
    outcome = DONE._replace(postings=(following(),), chord=b"{}")

    with hall.running():
        hall.put(hall.task(), outcome)

    assert hall.what() == ["post", "store", "chord", "event", "settle"]
    assert len(hall.desk) == 0


def test_that_a_task_is_to_be_tried_again_is_stored_before_its_next_try_is_sent(hall: Hall) -> None:
    with hall.running():
        hall.put(hall.task(), Outcome(RETRY, b"{}", postings=(following("t1"),)))

    assert hall.what() == ["store", "post", "event", "settle"]


def test_what_waits_is_done_in_one_go(hall: Hall) -> None:
    for number in range(50):
        hall.put(hall.task(f"t{number}"), DONE._replace(postings=(following(f"c{number}"),)))

    with hall.running():
        pass

    assert hall.what().count("post") == hall.what().count("store") == hall.what().count("settle") == 1
    assert [task_id for task_id, _ in hall.stored()] == [f"t{number}" for number in range(50)]


def test_a_state_in_between_is_stored_and_nothing_else(hall: Hall) -> None:
    with hall.running():
        hall.put(hall.task(), Outcome(STARTED, b'{"pid":1}'), goes_on=True)

    assert hall.stored() == [("t1", "STARTED")]
    assert hall.settled() == []
    assert len(hall.desk) == 1


# -- what is stored, and what becomes of the message


@pytest.mark.parametrize(
    ("traits", "outcome", "verdict"),
    [
        ({}, DONE, Verdict.ACCEPT),
        ({}, Outcome(FAILURE, b"{}"), Verdict.ACCEPT),
        ({"acks_late": True}, Outcome(FAILURE, b"{}"), Verdict.ACCEPT),
        ({"acks_late": True, "acks_failures": False}, Outcome(FAILURE, b"{}"), Verdict.DROP),
        ({"acks_late": True, "acks_failures": False}, DONE, Verdict.ACCEPT),
        ({}, Outcome(REVOKED, b"{}"), Verdict.ACCEPT),
        ({}, Outcome(REJECTED), Verdict.DROP),
        ({}, Outcome(REJECTED, requeue=True), Verdict.REQUEUE),
        ({}, Outcome(FAILURE, b"{}", cause="unknown"), Verdict.DROP),
        ({}, Outcome(RETRY, b"{}"), Verdict.ACCEPT),
    ],
)
def test_how_a_task_ended_says_what_becomes_of_its_message(
    hall: Hall, traits: dict[str, Any], outcome: Outcome, verdict: Verdict
) -> None:
    task = hall.task(**traits)

    with hall.running():
        hall.put(task, outcome)

    assert hall.settled() == [(task.key, verdict)]
    assert (hall.desk.verdict_on(task.request) is None) == (verdict is Verdict.REQUEUE)


@pytest.mark.parametrize(
    ("traits", "outcome", "is_stored"),
    [
        ({"stores_results": False, "stores_errors": False}, DONE, False),
        ({"stores_results": False, "stores_errors": True}, DONE, False),
        ({"stores_results": False, "stores_errors": True}, Outcome(FAILURE, b"{}"), True),
        ({"stores_results": False, "stores_errors": False}, Outcome(FAILURE, b"{}"), False),
        ({}, Outcome(REJECTED), False),
        ({}, Outcome(REVOKED, b"{}"), True),
    ],
)
def test_only_what_is_to_be_kept_is_stored(
    hall: Hall, traits: dict[str, Any], outcome: Outcome, is_stored: bool
) -> None:
    with hall.running():
        hall.put(hall.task(**traits), outcome)

    assert bool(hall.stored()) == is_stored


def test_the_rest_of_a_chain_fails_with_a_task(hall: Hall) -> None:
    with hall.running():
        hall.put(hall.task(), Outcome(FAILURE, b"{}", also_failed=("t2", "t3")))

    assert hall.stored() == [("t1", "FAILURE"), ("t2", "FAILURE"), ("t3", "FAILURE")]


# -- away


@pytest.mark.parametrize("part", ["post", "store", "chord"])
def test_what_is_away_is_insisted_on_and_nothing_is_lost(
    hall: Hall, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    hall.faults[part] = [ConnectionLost("away") for _ in range(5)]

    with hall.running():
        hall.put(hall.task(), DONE._replace(postings=(following(),), chord=b"{}"))

    assert hall.what() == ["post", "store", "chord", "event", "settle"]
    assert caplog.text.count("retrying") == 1


def test_a_store_that_refuses_us_is_insisted_on(hall: Hall) -> None:
    hall.faults["store"] = [AccessRefused("NOAUTH") for _ in range(3)]

    with hall.running():
        hall.put(hall.task())

    assert hall.stored() == [("t1", "SUCCESS")]


def test_when_time_is_over_it_gives_up_and_says_so(hall: Hall, caplog: pytest.LogCaptureFixture) -> None:
    hall.faults["store"] = [ConnectionLost("away")] * 10_000
    hall.finisher.start()
    hall.put(hall.task("t1"))
    hall.put(hall.task("t2"))
    assert come_true(lambda: "retrying" in caplog.text)

    is_done = hall.finisher.stop(0.05)

    assert not is_done
    assert "lost=2" in caplog.text
    assert hall.settled() == []


def test_a_store_that_hangs_does_not_keep_the_worker(hall: Hall, caplog: pytest.LogCaptureFixture) -> None:
    released = Event()
    hall.check = lambda _: released.wait(60)
    hall.finisher.start()
    hall.put(hall.task())

    is_done = hall.finisher.stop(0.05)

    assert not is_done
    assert "before all outcomes were stored" in caplog.text
    released.set()


def test_it_is_behind_when_too_much_waits(hall: Hall) -> None:
    task = hall.task()
    for _ in range(1000):
        hall.finisher.put(Ended(task, DONE, goes_on=True))
    assert not hall.finisher.is_behind

    hall.finisher.put(Ended(task, DONE, goes_on=True))

    assert hall.finisher.is_behind


# -- what cannot be done


def test_a_result_that_cannot_be_stored_costs_no_other_task_its_end(hall: Hall) -> None:
    def check(thing: object) -> None:
        if isinstance(thing, ResultMeta) and thing.task_id == "bad" and thing.status == SUCCESS:
            raise CallerError("it holds a set")

    hall.check = check
    tasks = [hall.task(task_id) for task_id in ("t1", "bad", "t2")]
    for task in tasks:
        hall.put(task)

    with hall.running():
        pass

    assert dict(hall.stored()) == {
        "t1": "SUCCESS",
        "bad": "FAILURE",
        "t2": "SUCCESS",
    }
    assert [key for key, _ in hall.settled()] == [task.key for task in tasks]
    kinds = [json.loads(message.body)["type"] for _, message in hall.broker.published]
    assert kinds == ["task-succeeded", "task-failed", "task-succeeded"]


def test_a_result_that_cannot_be_stored_at_all_is_told_and_settled(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    def check(thing: object) -> None:
        raise CallerError(f"no {thing!r:.10}")

    hall.check = check
    task = hall.task()

    with hall.running():
        hall.put(task)

    assert hall.settled() == [(task.key, Verdict.ACCEPT)]
    assert "Cannot store the result of task" in caplog.text


@pytest.mark.parametrize("error", [AccessRefused("no such exchange"), CallerError("odd"), KeyError("odd")])
def test_what_cannot_be_sent_is_the_failure_of_its_task_alone(hall: Hall, error: Exception) -> None:
    def check(thing: object) -> None:
        if isinstance(thing, Posting) and thing.request.id == "bad":
            raise error

    hall.check = check
    tasks = [hall.task("t1"), hall.task("t2"), hall.task("t3")]
    hall.put(tasks[0], DONE._replace(postings=(following("c1"),)))
    hall.put(tasks[1], Outcome(RETRY, b"{}", postings=(following("bad"),)))
    hall.put(tasks[2], DONE._replace(postings=(following("c3"),)))

    with hall.running():
        pass

    posted = [each for what, ids in hall.log if what == "post" for each in ids]
    assert posted == ["c1", "c3"]
    first, *ends = hall.stored()
    assert first == ("t2", "RETRY")  # before it was tried to send it
    assert ends == [("t1", "SUCCESS"), ("t2", "FAILURE"), ("t3", "SUCCESS")]
    assert len(hall.settled()) == 3


def test_a_task_that_failed_stays_failed_of_its_own_error_if_its_errback_cannot_be_sent(hall: Hall) -> None:
    def check(thing: object) -> None:
        if isinstance(thing, Posting):
            raise AccessRefused("no")

    hall.check = check
    with hall.running():
        hall.put(hall.task(), Outcome(FAILURE, b'{"exc_type":"ValueError"}', postings=(following(),)))

    metas = [meta for what, found in hall.log if what == "store" for meta in found]
    assert [meta.result for meta in metas] == [Json(b'{"exc_type":"ValueError"}')]


@pytest.mark.parametrize("error", [AccessRefused("no"), CallerError("no group"), TypeError("odd")])
def test_a_group_that_cannot_be_counted_is_told_and_the_task_ends(
    hall: Hall, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    hall.faults["chord"] = [error]

    with hall.running():
        hall.put(hall.task(), DONE._replace(chord=b"{}"))

    assert "The chord body of group g may never run" in caplog.text
    assert len(hall.settled()) == 1


def test_a_dispatcher_that_raises_ends_nothing(hall: Hall, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    huge = Outcome(FAILURE, b"{}", "x" * 400_000, "y" * 400_000)

    with hall.running():
        hall.put(hall.task(), huge)

    told = [json.loads(message.body) for _, message in hall.broker.published]
    assert [event["type"] for event in told] == ["task-failed"]
    assert len(hall.settled()) == 1


def test_it_can_be_stopped_twice_and_begun_again(hall: Hall) -> None:
    with hall.running():
        hall.put(hall.task("t1"))
    assert hall.finisher.stop(1.0)

    with hall.running():
        hall.put(hall.task("t2"))

    assert hall.stored() == [("t1", "SUCCESS"), ("t2", "SUCCESS")]
