"""Which attempts a task had, case by case."""

from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given

from celeriac.core import facts
from celeriac.core.attempt import Attempt, attempts_of, ended_by
from celeriac.core.history import History, merge
from celeriac.model.events import (
    Custom,
    Failed,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from tests.property.strategies import event_lists, fold

A, B = ("a@x", 1), ("b@x", 2)


def at(kind: type[TaskEvent], moment: float, process: tuple[str, int] = A, **fields: Any) -> TaskEvent:
    """Build an event whose clock follows its moment."""
    hostname, pid = process
    fields = {"clock": round(moment * 10), **fields}
    return kind(timestamp=moment, hostname=hostname, pid=pid, uuid="t", **fields)


def read_eta(text: str) -> float | None:
    return float(text) if text.replace(".", "").isdigit() else None


def attempts(*events: TaskEvent) -> list[Attempt]:
    """Return the attempts, and insist that the order of the events makes no difference."""
    known = attempts_of(merge((), events), read_eta)
    if len(events) < 6:
        assert all(attempts_of(merge((), order), read_eta) == known for order in permutations(events))
    return known


def only(*events: TaskEvent) -> Attempt:
    (attempt,) = attempts(*events)
    return attempt


def test_a_plain_task_has_one_attempt_with_all_its_moments() -> None:
    attempt = only(at(Sent, 1, B), at(Received, 2), at(Started, 4), at(Succeeded, 7, runtime=2.5))

    assert attempt == Attempt(
        retries=0,
        worker="a@x",
        pid=1,
        received_at=2,
        started_at=4,
        ended_at=7,
        outcome="SUCCESS",
        wait=3,
        run=2.5,
    )
    assert attempt.counted_at == 7


@pytest.mark.parametrize(
    ("events", "outcome", "counted_at"),
    [
        ([at(Received, 2)], None, 2),
        ([at(Received, 2), at(Started, 3)], None, 3),
        ([at(Received, 2), at(Started, 3), at(Custom, 4, subject="progress")], None, 3),
        ([at(Received, 2), at(Started, 3), at(Failed, 5)], "FAILURE", 5),
        ([at(Received, 2), at(Revoked, 5)], "REVOKED", 5),
        ([at(Received, 2), at(Started, 3), at(Retried, 5)], "RETRY", 5),
        ([at(Received, 2), at(Started, 3), at(Rejected, 5, requeue=True)], "REJECTED", 5),
        ([at(Started, 3)], None, 3),
        ([at(Failed, 5)], "FAILURE", 5),
        ([at(Retried, 5)], "RETRY", 5),
        ([at(Rejected, 5)], "REJECTED", 5),
    ],
)
def test_an_attempt_ends_as_its_events_say(
    events: list[TaskEvent], outcome: str | None, counted_at: float
) -> None:
    attempt = only(*events)

    assert (attempt.outcome, attempt.counted_at) == (outcome, counted_at)


@pytest.mark.parametrize("events", [[], [at(Sent, 1)], [at(Custom, 1, subject="progress")]])
def test_what_no_worker_took_was_not_tried(events: list[TaskEvent]) -> None:
    assert attempts(*events) == []


def test_each_receipt_of_a_higher_number_is_an_attempt_and_ends_the_one_before() -> None:
    first, second = attempts(
        at(Received, 2), at(Started, 3), at(Retried, 4), at(Received, 5, B, retries=1), at(Started, 6, B)
    )

    assert (first.worker, first.ended_at, first.outcome, first.run) == ("a@x", 4, "RETRY", 1)
    assert (second.worker, second.retries, second.started_at, second.outcome) == ("b@x", 1, 6, None)


def test_an_attempt_was_given_up_even_where_its_last_event_was_lost() -> None:
    first, _ = attempts(at(Received, 2), at(Started, 3), at(Received, 5, B, retries=1))

    assert (first.outcome, first.ended_at, first.run, first.counted_at) == ("RETRY", None, None, 3)


def test_a_start_is_of_the_attempt_that_its_process_had_received() -> None:
    first, second = attempts(
        at(Received, 2), at(Retried, 4), at(Received, 5, retries=1), at(Started, 6), at(Succeeded, 7)
    )

    assert (first.started_at, second.started_at) == (None, 6)


def test_the_clock_of_a_process_tells_the_order_where_its_time_was_set_back() -> None:
    attempt = only(at(Received, 9, clock=1), at(Started, 5, clock=2), at(Succeeded, 6, clock=3))

    assert (attempt.received_at, attempt.started_at, attempt.ended_at) == (9, 5, 6)
    assert (attempt.wait, attempt.run) == (0, 1)


@pytest.mark.parametrize("clock", [0, 5000])
def test_time_tells_the_order_where_the_clock_is_missing_or_was_begun_again(clock: int) -> None:
    attempt = only(at(Received, 2, clock=clock), at(Started, 3, clock=1), at(Succeeded, 4, clock=2))

    assert (attempt.received_at, attempt.started_at, attempt.ended_at) == (2, 3, 4)


def test_of_two_workers_that_ran_it_the_one_that_ended_it_counts() -> None:
    attempt = only(at(Received, 1), at(Started, 2), at(Received, 3, B), at(Started, 4, B), at(Succeeded, 9))

    assert (attempt.worker, attempt.started_at, attempt.run) == ("a@x", 2, 7)


def test_of_two_workers_that_run_it_the_one_that_started_last_counts() -> None:
    attempt = only(at(Received, 1), at(Started, 2), at(Received, 3, B), at(Started, 4, B), at(Received, 5))

    assert (attempt.worker, attempt.received_at, attempt.started_at) == ("b@x", 3, 4)


def test_what_was_given_back_is_open_again_once_somebody_received_it() -> None:
    attempt = only(at(Received, 1), at(Started, 2), at(Rejected, 3, requeue=True), at(Received, 4, B))

    assert (attempt.outcome, attempt.ended_at) == (None, None)


def test_the_end_is_of_the_worker_that_told_it_even_where_its_receipt_was_lost() -> None:
    _, last = attempts(at(Received, 1), at(Received, 3, retries=1), at(Started, 4, B), at(Succeeded, 6, B))

    assert (last.worker, last.received_at, last.started_at, last.ended_at) == ("b@x", None, 4, 6)


@pytest.mark.parametrize(
    ("events", "wait"),
    [
        ([at(Sent, 1, B), at(Received, 2), at(Started, 5)], 4),
        ([at(Received, 2), at(Started, 5)], 3),
        ([at(Sent, 1, B), at(Received, 2, eta="4"), at(Started, 5)], 1),
        ([at(Sent, 1, B), at(Received, 2, eta="7"), at(Started, 5)], 0),
        ([at(Sent, 1, B), at(Received, 2, eta="?"), at(Started, 5)], 4),
        ([at(Sent, 1, B, eta="3"), at(Started, 5)], 2),
        # A client sent the first attempt, and nobody told of the second being sent.
        ([at(Sent, 1, B), at(Received, 2, retries=1), at(Started, 5)], 3),
        ([at(Sent, 3, B, retries=1), at(Received, 4, retries=1), at(Started, 5)], 2),
        ([at(Started, 5)], None),
        ([at(Received, 2)], None),
        ([at(Received, 2), at(Started, 0, clock=30)], None),
    ],
)
def test_an_attempt_waits_from_when_it_could_have_run(events: list[TaskEvent], wait: float | None) -> None:
    assert only(*events).wait == wait


def test_a_moment_that_could_not_be_read_is_not_known() -> None:
    attempt = only(at(Received, 0, clock=1), at(Started, 0, clock=2), at(Failed, 0, clock=3))

    assert attempt.outcome == "FAILURE"
    assert (attempt.received_at, attempt.started_at, attempt.ended_at, attempt.counted_at) == (None,) * 4
    assert (attempt.wait, attempt.run) == (None, None)


@given(event_lists)
def test_attempts_agree_with_the_task(events: list[TaskEvent]) -> None:
    past = fold(events)
    known = facts.read(past)

    made = attempts_of(past, read_eta)

    numbers = {event.retries for event in facts.all_of(Received, past)}
    assert [attempt.retries for attempt in made] == sorted(numbers or {0} if made else ())
    assert all(attempt.outcome == "RETRY" for attempt in made[:-1])
    if known.state in {"SUCCESS", "FAILURE", "REVOKED", "RETRY"}:
        assert made[-1].outcome == known.state
    else:
        assert all(attempt.outcome in {None, "REJECTED"} for attempt in made[-1:])
    assert all(attempt.wait is None or attempt.wait >= 0 for attempt in made)
    assert all(attempt.run is None or attempt.run >= 0 for attempt in made)
    assert attempts_of(fold(events[::-1]), read_eta) == made


def ended(event: TaskEvent, past: History) -> Attempt | None:
    """Find the attempt that an event ended among all of them."""
    if type(event) not in {Succeeded, Failed, Retried}:
        return None
    found = (each for each in attempts_of(past, read_eta) if each.ended_at == event.timestamp)
    return next((each for each in found if each.worker == event.hostname), None)


@given(event_lists)
def test_an_event_ends_the_attempt_that_all_attempts_tell(events: list[TaskEvent]) -> None:
    past = fold(events)

    assert [ended_by(event, past, read_eta) for event in past] == [ended(event, past) for event in past]


def test_the_usual_course_ends_as_the_general_rule_has_it() -> None:
    ends: tuple[type[TaskEvent], ...] = (Succeeded, Failed, Retried)
    course = product((A, B), (0.0, 3.0), (2, 30, 10**7), (0.0, 4.0), (0, 25, 60))
    for (process, moment, clock, until, last), kind in product(course, ends):
        sendings = ((), (at(Sent, 1, B),), (at(Sent, 1, B, retries=1),))
        for sent, eta in product(sendings, (None, "2.25")):
            start, end = at(Started, moment, process, clock=clock), at(kind, until, clock=last)
            past = merge((), (*sent, at(Received, 2, clock=25, eta=eta), start, end))

            assert ended_by(end, past, read_eta) == ended(end, past)
