"""What the events of a task mean, case by case."""

from itertools import permutations, product
from typing import Any

import pytest

from celeriac.core import facts
from celeriac.core.history import CAPS, merge
from celeriac.model.events import (
    Custom,
    Extra,
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

A, B = ("a@x", 1), ("b@x", 2)


def at(kind: type[TaskEvent], moment: float, process: tuple[str, int] = A, **fields: Any) -> TaskEvent:
    """Build an event whose clock follows its moment."""
    hostname, pid = process
    fields = {"clock": round(moment * 10), **fields}
    return kind(timestamp=moment, hostname=hostname, pid=pid, uuid="t", **fields)


def read(*events: TaskEvent) -> facts.Facts:
    """Read the facts, and insist that the order of the events makes no difference."""
    known = facts.read(merge((), events))
    if len(events) < 7:
        assert all(facts.read(merge((), order)) == known for order in permutations(events))
    return known


def test_a_task_is_pending_before_any_event() -> None:
    known = read()

    assert (known.state, known.phase, known.worker, known.decided_by) == ("PENDING", "queued", None, None)


@pytest.mark.parametrize(
    ("events", "state", "phase"),
    [
        ([at(Sent, 1)], "PENDING", "queued"),
        ([at(Sent, 1), at(Received, 2)], "RECEIVED", "received"),
        ([at(Received, 2), at(Started, 3)], "STARTED", "running"),
        ([at(Received, 2), at(Started, 3), at(Custom, 4, subject="progress")], "PROGRESS", "running"),
        ([at(Received, 2), at(Started, 3), at(Succeeded, 4)], "SUCCESS", "done"),
        ([at(Received, 2), at(Started, 3), at(Failed, 4)], "FAILURE", "done"),
        ([at(Received, 2), at(Revoked, 3)], "REVOKED", "done"),
        ([at(Received, 2), at(Started, 3), at(Retried, 4)], "RETRY", "retry_wait"),
        ([at(Received, 2), at(Retried, 4), at(Received, 5, B, retries=1)], "RECEIVED", "received"),
        ([at(Failed, 4)], "FAILURE", "done"),
        ([at(Started, 3)], "STARTED", "running"),
        ([at(Started, 3), at(Retried, 4)], "RETRY", "retry_wait"),
        ([at(Rejected, 3, requeue=True)], "REJECTED", "requeued"),
        ([at(Rejected, 3, requeue=False)], "REJECTED", "done"),
        ([at(Received, 2), at(Rejected, 3, requeue=True)], "RECEIVED", "requeued"),
        ([at(Received, 2), at(Rejected, 3, requeue=True), at(Received, 4)], "RECEIVED", "received"),
        ([at(Received, 2), at(Rejected, 3, requeue=True), at(Received, 4, B)], "RECEIVED", "received"),
        ([at(Failed, 2), at(Rejected, 3, requeue=False)], "FAILURE", "done"),
    ],
)
def test_the_state_and_phase_follow_the_furthest_event(
    events: list[TaskEvent], state: str, phase: str
) -> None:
    known = read(*events)

    assert (known.state, known.phase) == (state, phase)


def test_a_custom_state_does_not_outrank_a_revocation() -> None:
    known = read(at(Received, 1), at(Custom, 2, subject="progress"), at(Revoked, 3, terminated=True))

    assert known.state == "REVOKED"


def test_a_retry_told_after_the_success_is_a_conflict_and_no_retry() -> None:
    known = read(at(Received, 1), at(Succeeded, 2), at(Retried, 3))

    assert (known.state, known.conflict) == ("SUCCESS", True)


def test_a_success_after_a_retry_is_no_conflict() -> None:
    known = read(at(Received, 1), at(Retried, 2), at(Received, 3, B, retries=1), at(Succeeded, 4, B))

    assert (known.state, known.conflict, known.worker) == ("SUCCESS", False, "b@x")


def test_an_attempt_received_before_its_predecessor_gave_up_is_the_one_that_counts() -> None:
    known = read(at(Received, 1), at(Received, 3, B, retries=1), at(Retried, 4))

    assert known.state == "RECEIVED"


def test_success_and_failure_are_success_and_a_conflict() -> None:
    known = read(at(Received, 1), at(Failed, 2), at(Received, 3, B), at(Succeeded, 4, B))

    assert (known.state, known.conflict) == ("SUCCESS", True)


def test_a_start_of_an_earlier_attempt_does_not_start_this_one() -> None:
    known = read(at(Received, 1), at(Started, 2), at(Retried, 3), at(Received, 4, retries=1))

    assert known.state == "RECEIVED"


def test_a_start_is_judged_by_the_clock_of_its_process_and_not_by_time() -> None:
    # The wall clock of the worker was set back between the two.
    known = read(at(Received, 100.0, clock=10), at(Started, 50.0, clock=11))

    assert known.state == "STARTED"


def test_a_process_restarted_under_the_same_pid_is_judged_by_time() -> None:
    # A container: the old process is far ahead by clock, the new one begins again at 1.
    known = read(
        at(Received, 1, clock=50_000),
        at(Started, 2, clock=50_001),
        at(Retried, 3, clock=50_002),
        at(Received, 9, clock=3, retries=1),
    )

    assert known.state == "RECEIVED"


def test_an_event_without_a_clock_is_judged_by_time() -> None:
    known = read(at(Received, 1, clock=7), at(Started, 2, clock=0))

    assert known.state == "STARTED"


def test_a_custom_event_of_another_host_does_not_decide() -> None:
    known = read(at(Received, 1), at(Custom, 2, B, subject="progress"))

    assert known.state == "RECEIVED"


def test_a_custom_event_named_like_a_state_is_none() -> None:
    known = read(at(Received, 1), at(Custom, 2, subject="success"))

    assert known.state == "RECEIVED"
    assert known.custom is not None


def test_the_exception_of_a_failure_outranks_those_of_retries() -> None:
    known = read(
        at(Retried, 9, exception="early"), at(Received, 1, retries=1), at(Failed, 2, exception="late")
    )

    assert known.raised is not None
    assert known.raised.exception == "late"


def test_a_retry_names_itself_as_parent_and_an_earlier_attempt_knows_better() -> None:
    known = read(at(Received, 1, parent_id="p"), at(Retried, 2), at(Received, 3, retries=1, parent_id="t"))

    assert known.description is not None
    assert (known.description.parent_id, facts.parent_link(known.history)) == ("t", "p")


def test_a_task_may_be_retried_as_often_as_the_cap_and_beyond() -> None:
    attempts = CAPS[Retried] + 50
    events: list[TaskEvent] = []
    for attempt in range(attempts):
        events += [
            at(Received, 2 * attempt + 1, retries=attempt),
            at(Retried, 2 * attempt + 2, exception="x"),
        ]

    waiting, begun = read(*events), read(*events, at(Received, 1e6, retries=attempts))

    assert (waiting.state, begun.state) == ("RETRY", "RECEIVED")


def test_a_long_history_keeps_the_payload_of_the_events_that_speak() -> None:
    events = [at(Received, n, retries=n, args=f"({n},)", extra=Extra(n=n)) for n in range(1, 200)]

    known = read(*events)

    assert known.received == events[-1]
    assert sum(e.args is not None for e in facts.all_of(Received, known.history)) < 20


def test_a_custom_event_named_like_a_state_does_not_drive_out_one_that_decides() -> None:
    customs = [at(Custom, 5, subject="progress"), at(Custom, 6, subject="success")]
    starts = [at(Started, moment) for moment in range(10, 30)]

    first = facts.read(merge((), (at(Received, 1), *customs, *starts)))
    last = facts.read(merge((), (at(Received, 1), *starts, *customs)))

    assert (first.state, last.state) == ("PROGRESS", "PROGRESS")


def test_the_phase_goes_by_the_process_that_has_the_task() -> None:
    held = [at(Received, 1, B), at(Received, 2), at(Rejected, 3, requeue=True)]

    assert read(*held, at(Rejected, 4, B, requeue=True)).phase == "requeued"
    assert read(*held, at(Started, 4), at(Started, 5, B)).phase == "running"


def test_a_retry_that_came_once_whole_and_once_without_its_time_is_one() -> None:
    known = read(
        at(Received, 1), at(Retried, 2, clock=20), at(Retried, 0.0, clock=20), at(Received, 3, retries=1)
    )

    assert known.state == "RECEIVED"


def test_a_thousand_starts_and_receipts_of_one_process_are_read_without_comparing_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[TaskEvent] = []

    def never(start: TaskEvent, _: TaskEvent) -> bool:
        compared.append(start)
        return False

    monkeypatch.setattr(facts, "_follows", never)
    starts = [at(Started, moment) for moment in range(1, 1000)]

    facts.read(merge((), (*starts, *(at(Received, 1000 + moment) for moment in range(1000)))))

    assert 0 < len(compared) <= facts.MAX_COMPARED**2


def test_the_usual_course_is_read_as_the_general_rule_has_it() -> None:
    moments, clocks = (1.0, 2.0), (0, 10, 11, 10**7)
    for process, moment, clock, other, others in product(
        (A, B), moments, clocks, (None, Sent, Rejected), clocks
    ):
        receipt, start = at(Received, 1.5, clock=clock), at(Started, moment, process, clock=others)
        more = () if other is None else (at(other, 1.2, clock=3),)
        past = merge((), (receipt, start, *more))

        known = facts.read(past)

        assert known.decided_by is facts._open_attempt(past, receipt)  # type: ignore[arg-type]
