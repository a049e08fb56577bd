"""What a worker does with each message of a queue of tasks, and what it tells of it."""

import json
import logging
from collections.abc import Callable, Iterator
from time import time
from typing import Any

import pytest

from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE, IGNORED, REJECTED, RETRY
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.worker import intake
from celeriac.worker.assignment import Verdict
from celeriac.worker.worker import Worker
from tests.component.worker.kit import HOST, HandPool, Site, come_true


@pytest.fixture
def site() -> Site:
    site = Site(result_backend="rpc://")
    site.task("shop.pay")
    site.task("shop.late", acks_late=True)
    return site


@pytest.fixture
def worker(site: Site) -> Iterator[Worker]:
    with site.worker() as worker:
        yield worker
        for job in list(site.pool.running.values()):
            site.pool.end(job)


# -- how a task goes


@pytest.mark.usefixtures("worker")
def test_a_task_is_told_of_from_its_coming_to_its_end(site: Site) -> None:
    site.post(argsrepr="(1,)", kwargsrepr="{}", parent_id="t0", root_id="r", retries=0)

    site.pool.end(site.pool.begin())

    assert come_true(lambda: site.has_told("task-succeeded"))
    received, started, succeeded = (event for event in site.events() if event.get("uuid") == "t1")
    fields = ("type", "name", "args", "kwargs", "root_id", "parent_id", "retries", "eta", "expires")
    assert [received[name] for name in fields] == [
        *("task-received", "shop.pay", "(1,)", "{}", "r", "t0", 0, None, None),
    ]
    assert (started["type"], started["hostname"]) == ("task-started", HOST)
    assert [succeeded[name] for name in ("type", "result", "runtime")] == ["task-succeeded", "42", 0.5]


@pytest.mark.usefixtures("worker")
def test_an_event_names_the_shadow_and_the_moments(site: Site) -> None:
    site.post(shadow="pay (fast)", eta=1e9, expires=4e9)

    assert come_true(lambda: site.has_told("task-received"))
    (received,) = site.events("task-received")
    assert received["name"] == "pay (fast)"
    assert received["eta"] == "2001-09-09T01:46:40+00:00"
    assert received["expires"] == "2096-10-02T07:06:40+00:00"
    site.pool.begin()


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("outcome", "kind", "fields"),
    [
        (
            Outcome(FAILURE, b"{}", "ValueError('x')", "Traceback: x"),
            "task-failed",
            {"exception": "ValueError('x')", "traceback": "Traceback: x"},
        ),
        (
            Outcome(RETRY, b"{}", "OSError('y')", "Traceback: y"),
            "task-retried",
            {"exception": "OSError('y')", "traceback": "Traceback: y"},
        ),
        (Outcome(REJECTED, text="Reject('z')"), "task-rejected", {"requeue": False}),
    ],
)
def test_every_end_has_an_event_of_its_own(
    site: Site, outcome: Outcome, kind: str, fields: dict[str, object]
) -> None:
    site.post()

    site.pool.end(site.pool.begin(), outcome)

    assert come_true(lambda: site.has_told(kind))
    (told,) = site.events(kind)
    assert {name: told[name] for name in fields} == fields
    assert site.story() == ["task-received", "task-started", kind]


def test_a_task_that_ends_without_a_result_tells_no_end(site: Site, worker: Worker) -> None:
    site.post()

    site.pool.end(site.pool.begin(), Outcome(IGNORED))

    assert come_true(lambda: worker.desk.ended)
    assert come_true(lambda: site.story() == ["task-received", "task-started"])


def test_a_task_that_wants_no_events_sends_none(site: Site) -> None:
    site.task("shop.quiet", send_events=False)
    site.post("shop.quiet")

    with site.worker() as worker:
        site.pool.end(site.pool.begin())

        assert come_true(lambda: worker.desk.ended)
    assert site.story() == []


def test_a_task_is_acknowledged_when_it_begins(site: Site, worker: Worker) -> None:
    site.post()

    site.pool.begin()

    assert come_true(lambda: worker.desk.all()[0].verdict)
    assert come_true(lambda: worker.tasks.is_quiet)


def test_a_task_that_comes_again_is_acknowledged_before_it_begins_in_this_process() -> None:
    pool = HandPool(2, shares_process=True)
    site = Site()
    site.task("shop.pay")
    for number in range(3):
        site.post(task_id=f"t{number}")
    site.queued()

    with site.worker(pool) as worker:
        assert come_true(lambda: len(worker.desk) == 3 and len(pool.submitted) == 2)
        assert [each.verdict for each in worker.desk.all()] == [Verdict.ACCEPT, Verdict.ACCEPT, None]
        pool.end(pool.begin())

        assert come_true(lambda: len(pool.submitted) == 3)
        assert [job.request.id for job in pool.submitted] == ["t0", "t1", "t2"]
        for _ in range(2):
            pool.end(pool.begin())
    assert site.queued() == []


def test_an_acknowledged_task_runs_though_the_connection_is_lost_before_it_begins() -> None:
    pool = HandPool(1, shares_process=True)
    site = Site()
    site.task("shop.pay")
    site.post()
    site.queued()

    with site.worker(pool) as worker:
        assert come_true(lambda: pool.submitted)
        site.broker.cut()
        site.post(task_id="t2")
        assert come_true(lambda: len(pool.submitted) == 2)
        for _ in pool.submitted:
            pool.end(pool.begin())

        assert come_true(lambda: worker.desk.ended == 2)
        assert [job.request.id for job in pool.submitted] == ["t1", "t2"]
    assert site.queued() == []


def test_a_task_with_late_acknowledgement_is_acknowledged_when_it_has_ended(
    site: Site, worker: Worker
) -> None:
    site.post("shop.late")
    job = site.pool.begin()
    site.broker.cut()  # what was not acknowledged comes again

    (assignment,) = worker.desk.all()
    came_again = come_true(lambda: assignment.delivery not in (None, assignment.source))
    site.pool.end(job)

    assert came_again
    assert come_true(lambda: not len(worker.desk))
    assert come_true(lambda: worker.tasks.is_quiet)
    assert site.queued() == []


@pytest.mark.usefixtures("worker")
def test_a_task_that_is_registered_late_is_known(site: Site) -> None:
    site.task("shop.new", rate_limit="1/h", time_limit=7.0)
    site.post("shop.new")

    job = site.pool.begin()

    assert (job.request.task, job.time_limit) == ("shop.new", 7.0)


# -- what never begins


def test_an_unknown_task_fails_without_having_been_received(site: Site, worker: Worker) -> None:
    site.post("shop.gone")

    assert come_true(lambda: site.has_told("task-failed"))
    (failed,) = site.events("task-failed")
    assert failed["exception"] == "NotRegistered('shop.gone')"
    assert "traceback" not in failed
    assert site.story() == ["task-failed"]
    assert come_true(lambda: not len(worker.desk))


@pytest.mark.usefixtures("worker")
def test_the_errbacks_of_an_unknown_task_are_sent(site: Site) -> None:
    errback = {"task": "shop.sorry", "args": [], "kwargs": {}, "options": {"task_id": "e1", "queue": "mail"}}
    body = b'[[],{},{"errbacks":[%b]}]' % json.dumps(errback).encode()

    site.post("shop.gone", body=body)

    assert come_true(lambda: site.posted("mail") == ["e1"])


def test_a_revoked_task_is_not_begun(site: Site, worker: Worker) -> None:
    worker.revoked.add("t1", now=0.0)

    site.post()

    assert come_true(lambda: site.has_told("task-revoked"))
    (revoked,) = site.events("task-revoked")
    assert [revoked[name] for name in ("terminated", "signum", "expired")] == [False, None, False]
    assert site.story() == ["task-revoked"]
    assert site.pool.submitted == []


@pytest.mark.usefixtures("worker")
def test_an_expired_task_is_not_begun(site: Site) -> None:
    site.post(expires=time() - 1)

    assert come_true(lambda: site.has_told("task-revoked"))
    (revoked,) = site.events("task-revoked")
    assert [revoked[name] for name in ("terminated", "signum", "expired")] == [False, None, True]
    assert site.story() == ["task-revoked"]


def test_a_message_that_is_no_task_is_dropped_and_told_once_a_minute(
    site: Site, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        site.publish(b"\x00", {"task": "shop.pay"})
    site.publish(b"{}", {})

    assert come_true(lambda: worker.tasks.intake.refused.total() == 4)
    reasons = len(worker.tasks.intake.refused)
    assert come_true(
        lambda: sum("Rejected message" in record.getMessage() for record in caplog.records) == reasons
    )
    assert come_true(lambda: site.queued() == [])


@pytest.mark.parametrize("part", ["decode", "admit"])
def test_an_error_while_a_message_is_taken_rejects_that_message_alone(
    site: Site, worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    monkeypatch.setattr(f"celeriac.worker.intake.{part}", failing_once(getattr(intake, part)))

    site.post(task_id="planted")
    site.post(task_id="next")

    assert site.pool.begin().request.id == "next"
    assert worker.tasks.intake.refused == {"error: ZeroDivisionError": 1}
    assert "Rejected message 'planted' of queue 'celery'" in caplog.text
    assert "ZeroDivisionError: planted" in caplog.text
    assert [each.request.id for each in worker.desk.all()] == ["next"]
    assert come_true(lambda: site.queued() == [])


@pytest.mark.parametrize("eta", [None, 0.2])
def test_an_error_while_a_task_is_begun_rejects_that_message_alone(
    site: Site, worker: Worker, monkeypatch: pytest.MonkeyPatch, eta: float | None
) -> None:
    monkeypatch.setattr(worker.parts.pool, "submit", failing_once(worker.parts.pool.submit))

    site.post("shop.late", "planted", eta=None if eta is None else time() + eta)
    assert come_true(lambda: worker.tasks.intake.refused)
    site.post("shop.late", "next")

    assert site.pool.begin().request.id == "next"
    assert worker.tasks.intake.refused == {"error: ZeroDivisionError": 1}
    assert [each.request.id for each in worker.desk.all()] == ["next"]
    assert come_true(lambda: worker.tasks.is_quiet)


def test_an_error_of_the_machine_is_not_taken_for_one_of_the_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.pool, "submit", failing_once(site.pool.submit, MemoryError))
    worker = site.worker()
    worker.graph.start()
    site.post()

    with pytest.raises(MemoryError):
        turn_until_submitted(worker, site)

    assert not worker.tasks.intake.refused
    worker.graph.stop()


def turn_until_submitted(worker: Worker, site: Site) -> None:
    """Turn a worker that was not started until its pool was given a job."""
    while not site.pool.submitted:
        worker.tasks.turn()


def failing_once(
    function: Callable[..., Any], error: type[Exception] = ZeroDivisionError
) -> Callable[..., Any]:
    """Return a function that raises when it is called first, and then does as the other."""
    errors = [error("planted")]

    def fail_or_call(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return function(*args, **kwargs)

    return fail_or_call


# -- what comes again


@pytest.mark.usefixtures("worker")
def test_a_try_that_runs_is_not_run_again_when_its_message_comes_again(site: Site) -> None:
    site.post()
    job = site.pool.begin()
    site.post("shop.late", "t2")
    site.pool.begin()

    site.broker.cut()
    site.post(task_id="t3")

    assert come_true(lambda: [each.request.id for each in site.pool.submitted] == ["t1", "t2", "t3"])
    site.pool.end(job)
    assert come_true(lambda: site.has_told("task-succeeded"))
    assert [job.request.id for job in site.pool.submitted] == ["t1", "t2", "t3"]


def test_a_try_that_has_ended_here_is_not_run_again_but_settled() -> None:
    site = Site()
    site.task("shop.late", acks_late=True)
    with site.worker() as worker:
        site.post("shop.late")
        job = site.pool.begin()
        site.broker.stop()
        site.pool.end(job)
        assert come_true(lambda: worker.desk.ended)

        site.broker.start()
        site.post("shop.late", "t2")

        assert site.pool.begin().request.id == "t2"
        site.pool.end(site.pool.submitted[-1])
    assert [job.request.id for job in site.pool.submitted] == ["t1", "t2"]
    assert site.queued() == []


def test_a_task_that_is_sent_once_more_under_its_id_is_run_once_more(site: Site, worker: Worker) -> None:
    site.post("shop.late")
    site.pool.end(site.pool.begin())
    assert come_true(lambda: worker.desk.ended)

    site.post("shop.late")

    assert site.pool.begin().request.id == "t1"


@pytest.mark.usefixtures("worker")
def test_a_message_that_was_put_back_by_a_task_is_run_again(site: Site) -> None:
    site.post("shop.late")

    site.pool.end(site.pool.begin(), Outcome(REJECTED, text="Reject()", requeue=True))
    again = site.pool.begin()

    assert (again.request.id, again.is_redelivered) == ("t1", True)
    (rejected,) = site.events("task-rejected")
    assert rejected["requeue"] is True


def test_the_next_try_of_a_task_is_another(site: Site, worker: Worker) -> None:
    site.post(retries=0)
    first = site.pool.begin()
    site.post(retries=1)
    second = site.pool.begin()

    site.pool.end(first, Outcome(RETRY, b"{}", "OSError('y')"))
    site.pool.end(second)

    assert come_true(lambda: worker.desk.ended == 2)
    assert site.story() == [
        *("task-received", "task-started", "task-received", "task-started"),
        *("task-retried", "task-succeeded"),
    ]


def test_a_task_in_the_place_of_another_is_another(site: Site, worker: Worker) -> None:
    site.post("shop.late")
    site.pool.end(site.pool.begin())
    assert come_true(lambda: worker.desk.ended)

    request = TaskRequest("t1", "shop.late", replaced_task_nesting=1)

    assert worker.desk.verdict_on(TaskRequest("t1", "shop.late")) is not None
    assert worker.desk.verdict_on(request) is None


# -- what waits


def test_a_task_waits_for_its_moment(site: Site, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    site.post(eta=time() + 3600)

    assert come_true(lambda: worker.tasks.intake.schedule)
    assert site.pool.submitted == []
    monkeypatch.setattr("celeriac.worker.intake.time", lambda: time() + 7200)
    site.pool.begin()
    assert site.story()[:1] == ["task-received"]


def test_to_revoke_a_task_that_waits_for_its_moment_ends_it_at_once(site: Site, worker: Worker) -> None:
    site.post(eta=time() + 3600)
    assert come_true(lambda: worker.tasks.intake.schedule)

    site.app.control.revoke("t1")

    assert come_true(lambda: site.has_told("task-revoked"))
    assert come_true(lambda: not len(worker.desk))
    assert site.story() == ["task-received", "task-revoked"]


@pytest.mark.usefixtures("worker")
def test_a_task_may_expire_while_it_waits_for_its_moment(site: Site) -> None:
    moment = time() + 0.3

    site.post(eta=moment, expires=moment - 0.1)

    assert come_true(lambda: site.has_told("task-revoked"))
    assert site.events("task-revoked")[0]["expired"] is True
    assert site.pool.submitted == []


def test_a_task_may_expire_while_it_waits_for_its_turn(site: Site) -> None:
    site.task("shop.slow", rate_limit="20/m")

    with site.worker():
        site.post("shop.slow", "t1")
        site.post("shop.slow", "t2", expires=time() + 0.2)

        assert come_true(lambda: site.has_told("task-revoked", "t2"))
        site.pool.end(site.pool.begin())

    assert [job.request.id for job in site.pool.submitted] == ["t1"]
    assert site.events("task-revoked")[0]["expired"] is True


def test_tasks_of_a_name_begin_no_oftener_than_their_rate(site: Site) -> None:
    site.task("shop.slow", rate_limit="1/h")

    with site.worker() as worker:
        for number in range(3):
            site.post("shop.slow", f"t{number}")
        site.post(task_id="other")

        assert come_true(lambda: len(site.pool.submitted) == 2)
        assert [job.request.id for job in site.pool.submitted] == ["t0", "other"]
        assert [each.request.id for each in worker.desk.all()] == ["t0", "t1", "t2", "other"]


def test_the_prefetch_grows_with_tasks_that_wait_for_their_moment(site: Site) -> None:
    with site.worker() as worker:
        least = worker.tasks.prefetch
        for number in range(40):
            site.post(task_id=f"t{number}", eta=time() + 3600)

        assert come_true(lambda: worker.tasks.prefetch == least + 40)
    assert len(site.queued()) == 40


def test_in_place_one_task_runs_at_a_turn() -> None:
    site = Site()
    site.task("shop.pay")
    pool = HandPool(1, runs_in_place=True)
    for number in range(3):
        site.post(task_id=f"t{number}")
    worker = site.worker(pool)
    worker.graph.start()

    while not pool.submitted:
        worker.tasks.turn()
    pool.end(pool.begin())  # a pool in place does that before its submit returns

    assert len(worker.desk) > 1
    assert [job.request.id for job in pool.submitted] == ["t0"]
    assert worker.tasks.intake.next_due(1.0) == 0.0
    worker.graph.stop()


# -- what a task sends of its own


@pytest.mark.usefixtures("worker")
def test_a_task_sends_events_of_its_own(site: Site) -> None:
    site.post()

    site.pool.tell(site.pool.begin(), "task-halfway", {"done": 50, "uuid": "x", "clock": -1, "blind": True})

    assert come_true(lambda: site.has_told("task-halfway"))
    (told,) = site.events("task-halfway")
    assert (told["uuid"], told["done"], told["clock"] > 0) == ("t1", 50, True)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "fields", [{"all": {1, 2}}, {"all": "x" * 300_000}, {"all": 2**80}, {"all": "\ud800"}]
)
def test_an_event_that_cannot_be_sent_as_it_is_is_cut(site: Site, fields: dict[str, object]) -> None:
    site.post()

    site.pool.tell(site.pool.begin(), "task-halfway", fields)

    assert come_true(lambda: site.has_told("task-halfway"))
    assert len(str(site.events("task-halfway")[0]["all"])) <= 1000


@pytest.mark.usefixtures("worker")
def test_a_long_traceback_is_told_by_its_end(site: Site) -> None:
    site.post()

    site.pool.end(site.pool.begin(), Outcome(FAILURE, b"{}", "E()", "€" * 300_000 + "ValueError: x"))

    assert come_true(lambda: site.has_told("task-failed"))
    (failed,) = site.events("task-failed")
    assert failed["traceback"].endswith("€ValueError: x")
    assert len(failed["traceback"]) < 20_000


@pytest.mark.usefixtures("worker")
def test_a_type_that_is_none_harms_nobody(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.post()
    job = site.pool.begin()

    site.pool.tell(job, "x" * 300, {})
    site.pool.tell(job, "\ud800", {})
    site.pool.end(job)

    assert come_true(lambda: site.has_told("task-succeeded"))
    assert "cannot send" in caplog.text


# -- how a process ended


def test_a_task_whose_process_died_is_run_again_if_it_wants_so(site: Site) -> None:
    site.task("shop.sturdy", acks_late=True, reject_on_worker_lost=True)
    errback = Posting(TaskRequest("e1", "shop.sorry"), "mail")

    with site.worker():
        site.post("shop.sturdy")
        lost = Outcome(FAILURE, b"{}", "WorkerLost('9')", postings=(errback,), cause="lost")
        site.pool.end(site.pool.begin(), lost)
        again = site.pool.begin()
        site.pool.end(again)

        assert come_true(lambda: site.has_told("task-succeeded"))
    assert again.request.id == "t1"
    assert site.posted("mail") == []
    assert site.story() == [
        *("task-received", "task-started", "task-rejected"),
        *("task-received", "task-started", "task-succeeded"),
    ]


def test_a_task_whose_process_died_has_failed_otherwise(site: Site, worker: Worker) -> None:
    site.post("shop.late")

    site.pool.end(site.pool.begin(), Outcome(FAILURE, b"{}", "WorkerLost('9')", cause="lost"))

    assert come_true(lambda: site.has_told("task-failed"))
    assert come_true(lambda: not len(worker.desk))
    assert site.queued() == []


@pytest.mark.usefixtures("worker")
def test_the_log_tells_how_a_task_went(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.post()

    site.pool.end(site.pool.begin(), Outcome(FAILURE, b"{}", "ValueError('x')", "Traceback: x"))

    assert come_true(lambda: site.has_told("task-failed"))
    assert "Task shop.pay[t1] received" in caplog.text
    assert "Task shop.pay[t1] failed: Traceback: x" in caplog.text


def test_nothing_is_begun_while_what_has_ended_cannot_be_stored() -> None:
    site = Site()
    site.task("shop.pay")
    worker = site.worker()
    worker.graph.start()
    finisher = worker.parts.finisher
    assert finisher.stop(10.0)
    site.post("shop.pay", "t0")
    while not site.pool.waiting:
        worker.tasks.turn()
    job = site.pool.begin()
    for _ in range(1001):
        site.pool.listener.progressed(job.key, "HALFWAY", b"1")

    site.post()
    for _ in range(3):
        worker.tasks.turn()
    held_back = [each.request.id for each in site.pool.submitted]
    finisher.start()
    assert come_true(lambda: not finisher.is_behind)
    worker.tasks.turn()

    assert held_back == ["t0"]
    assert [each.request.id for each in site.pool.submitted] == ["t0", "t1"]
    worker.graph.stop()


def test_what_waits_for_the_group_of_a_revoked_task_gets_to_know(
    site: Site, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    chord = {"task": "shop.sum", "args": [], "kwargs": {}, "options": {}}
    worker.revoked.add("t1", now=0.0)

    site.post(body=json.dumps([[], {}, {"chord": chord}]).encode(), group_id="g1")

    # With results as messages no chord can be; that it is asked for is what counts here.
    assert come_true(lambda: "The chord body of group g1 may never run" in caplog.text)
    assert come_true(lambda: site.has_told("task-revoked"))
