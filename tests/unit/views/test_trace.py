from uuid import UUID

from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.model.events import Event, Retried
from celeriac.views.trace import TaskSpan, task_spans
from tests.event_logs import HOUR_AT, failed, received, started, succeeded

ROOT = "11111111-2222-4333-8444-555555555555"


def task_of(*events: Event, uuid: str = "a") -> Task:
    state = ClusterState(now=lambda: 0.0)
    for event in events:
        state.apply(event)
    return state.tasks[uuid]


def spans_of(*events: Event) -> list[TaskSpan]:
    return list(task_spans(task_of(*events)))


def test_a_task_is_a_span_and_each_attempt_one_below_it() -> None:
    retried = Retried(uuid="a", timestamp=HOUR_AT + 2, clock=1, hostname="celery@web1", exception="E()")
    task, first, second = spans_of(
        received("a"), started("a", 1.0), retried,
        received("a", 3.0, retries=1), started("a", 4.0), succeeded("a", 5.0, runtime=1.0),
    )  # fmt: skip

    assert (task.name, task.begin_at, task.end_at, task.is_ok) == ("shop.pay", HOUR_AT, HOUR_AT + 5, True)
    assert [each.parent_id for each in (task, first, second)] == [None, task.span_id, task.span_id]
    assert len({each.span_id for each in (task, first, second)}) == 3
    assert (first.begin_at, first.end_at, first.is_ok) == (HOUR_AT + 1, HOUR_AT + 2, False)
    assert second.attributes["celery.queue_wait"] == 1.0
    assert task.attributes["celery.attempts"] == 2


def test_the_tasks_of_a_workflow_are_one_trace_whose_id_is_that_of_its_first_task() -> None:
    parent, *_ = spans_of(received("a", root_id=ROOT), succeeded("a", 1.0))
    child, *_ = task_spans(task_of(received("b", root_id=ROOT, parent_id="a"), succeeded("b", 1.0), uuid="b"))

    assert parent.trace_id == child.trace_id == UUID(ROOT).int
    assert child.parent_id == parent.span_id


def test_a_failure_says_what_was_raised() -> None:
    task, *_ = spans_of(received("a"), started("a", 1.0), failed("a", 2.0, exception="ValueError('no')"))

    assert (task.is_ok, task.note) == (False, "ValueError('no')")


def test_a_task_that_has_not_ended_has_no_spans_and_one_without_a_root_is_its_own_trace() -> None:
    assert spans_of(received("a"), started("a", 1.0)) == []

    alone, *_ = spans_of(succeeded("a", 1.0))
    assert 0 < alone.trace_id < 2**128
    assert alone.name == "(unknown)"


def test_to_read_it_again_gives_the_same_spans() -> None:
    events = (received("a"), started("a", 1.0), succeeded("a", 2.0))

    assert spans_of(*events) == spans_of(*reversed(events))
