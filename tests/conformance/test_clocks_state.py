"""States of tasks, and the order in which monitors show events, compared with Celery's `State`."""

import operator
import re
from collections.abc import Iterable, Mapping
from itertools import permutations, product
from typing import Any

import celery.states
import pytest
from celery.events.state import State as CeleryState
from rich.console import Console

from celeriac import State, Task, states
from celeriac.tui.detail import detail_text
from celeriac.views.task import task_detail
from tests.builders import AT, CLIENT, task, without, worker

TYPES = ("sent", "received", "started", "succeeded", "failed", "retried", "rejected", "revoked")
DESCRIPTION = {
    "name": "shop.pay", "args": "(1,)", "kwargs": "{}", "root_id": "t0", "parent_id": "t0", "retries": 0,
}  # fmt: skip
#: Further fields of an event, by its type.
FIELDS: dict[str, dict[str, Any]] = {
    "sent": {**DESCRIPTION, "hostname": CLIENT},
    "received": DESCRIPTION,
    "failed": {"exception": "OSError('x')"},
    "retried": {"exception": "OSError('x')"},
    "rejected": {"requeue": False},
}


def happened(*subjects: str) -> list[dict[str, Any]]:
    """Return events of one task, each later than the one before it."""
    return [
        task(subject)
        | {"clock": 10 + number, "timestamp": AT + number, "local_received": AT}
        | FIELDS.get(subject, {})
        for number, subject in enumerate(subjects)
    ]


def both_after(events: Iterable[Mapping[str, Any]]) -> tuple[Task, Any]:
    """Return the task as our state and as Celery's have it after some events."""
    ours, theirs = State(), CeleryState()
    for event in events:
        ours.event(dict(event))
        theirs.event(dict(event))
    return ours.tasks["t1"], theirs.tasks["t1"]


def states_after(*subjects: str) -> tuple[str, str]:
    """Return the state by our `State` and by Celery's."""
    ours, theirs = both_after(happened(*subjects))
    return ours.state, theirs.state


def described(task: Any) -> tuple[Any, ...]:
    return (task.state, task.name, task.args, task.kwargs, task.root_id, task.parent_id)


def late(subject: str, *before: str) -> list[dict[str, Any]]:
    """Return events of which the last to arrive happened first."""
    first, *rest = happened(subject, *before)
    return [*rest, first]


# -- states


def test_015_precedence_list_is_celerys() -> None:
    """`PRECEDENCE` has nine entries, `SUCCESS` first and None for custom states."""
    precedence = list(states.PRECEDENCE)

    assert precedence == celery.states.PRECEDENCE
    assert precedence == [
        "SUCCESS", "FAILURE", None, "REVOKED", "STARTED", "RECEIVED", "REJECTED", "RETRY", "PENDING",
    ]  # fmt: skip


def test_016_states_compare_by_precedence() -> None:
    """`precedence()` and `state` order all states, also custom ones."""
    names = [*(name for name in states.PRECEDENCE if name), "PROGRESS", "CANCELLED", "IGNORED"]

    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        for one, other in product(names, repeat=2):
            expected = compare(celery.states.state(one), celery.states.state(other))
            assert compare(states.state(one), states.state(other)) == expected
    for name in (*names, "", None):
        assert states.precedence(name) == celery.states.precedence(name)


def test_017_sets_of_states_are_celerys() -> None:
    """The sets of states, such as `READY_STATES`, have Celery's members."""
    names = ("READY_STATES", "UNREADY_STATES", "EXCEPTION_STATES", "PROPAGATE_STATES", "ALL_STATES")

    ours = {name: set(getattr(states, name)) for name in names}

    assert ours == {name: set(getattr(celery.states, name)) for name in names}


@pytest.mark.parametrize("subject", TYPES)
def test_018_type_of_event_gives_the_state(subject: str) -> None:
    """The type of a task event gives the state of the task."""
    ours, theirs = states_after(subject)

    assert ours == theirs


# -- merging


def test_019_late_receipt_of_a_success_is_merged() -> None:
    """A receipt that arrives after the success keeps the state, and adds name, arguments, root and parent."""
    ours, theirs = both_after(late("received", "succeeded"))

    assert described(ours) == described(theirs) == ("SUCCESS", "shop.pay", "(1,)", "{}", "t0", "t0")


def test_020_late_receipt_of_a_failure_is_merged() -> None:
    """A failure that arrives first keeps the state, and has name and arguments once the receipt arrives."""
    ours, theirs = both_after(late("received", "failed"))

    assert described(ours) == described(theirs) == ("FAILURE", "shop.pay", "(1,)", "{}", "t0", "t0")


@pytest.mark.parametrize(
    ("before", "state"), [("revoked", "REVOKED"), ("started", "STARTED"), ("rejected", "RECEIVED")]
)
def test_021_late_receipt_is_merged_into_a_state_of_higher_precedence(before: str, state: str) -> None:
    """A late receipt keeps a state of higher precedence, and replaces one of lower precedence."""
    ours, theirs = both_after(late("received", before))

    assert described(ours) == described(theirs) == (state, "shop.pay", "(1,)", "{}", "t0", "t0")


@pytest.mark.differs("Timestamp and clock of a task")
def test_022_late_start_keeps_state_and_timestamp() -> None:
    """A start that arrives after the success keeps the state and the timestamp of the success."""
    ours, theirs = both_after(late("started", "received", "succeeded"))

    assert (ours.state, ours.started) == (theirs.state, theirs.started) == ("SUCCESS", AT)
    assert (ours.timestamp, ours.clock) == (AT + 2, 12)
    assert (theirs.timestamp, theirs.clock) == (AT, 10)


def test_023_retry_gives_way_to_the_next_attempt() -> None:
    """A task in state `RETRY` moves on to `RECEIVED` and `STARTED` of the next attempt."""
    events = happened("received", "started", "retried", "received", "started", "retried", "received")
    for attempt, number in enumerate((0, 3, 6)):
        events[number]["retries"] = attempt
    ours, theirs = State(), CeleryState()

    course = []
    for event in events:
        ours.event(dict(event))
        theirs.event(dict(event))
        course.append((ours.tasks["t1"].state, theirs.tasks["t1"].state))

    expected = ["RECEIVED", "STARTED", "RETRY", "RECEIVED", "STARTED", "RETRY", "RECEIVED"]
    assert course == [(state, state) for state in expected]


@pytest.mark.differs("State of a task from events out of order")
@pytest.mark.parametrize(
    ("before", "state", "conflict"),
    [
        (("received", "succeeded"), "SUCCESS", True),
        (("received", "failed"), "FAILURE", True),
        (("received", "revoked"), "REVOKED", False),
        (("succeeded",), "SUCCESS", False),
        (("failed",), "FAILURE", False),
        (("revoked",), "REVOKED", False),
    ],
)
def test_024_retry_after_an_end_changes_no_state(before: tuple[str, ...], state: str, conflict: bool) -> None:
    """A retry that arrives after the end of a task moves it to `RETRY`."""
    ours, theirs = both_after(happened(*before, "retried"))

    assert (ours.state, theirs.state) == (state, "RETRY")
    assert ours.conflict is conflict


def test_retry_of_an_earlier_attempt_is_no_conflict() -> None:
    receipt, success, retry = happened("received", "succeeded", "retried")

    ours, theirs = both_after([{**receipt, "retries": 1}, success, retry])

    assert (ours.state, theirs.state) == ("SUCCESS", "RETRY")
    assert not ours.conflict


@pytest.mark.differs("State of a task from events out of order")
def test_025_pairs_of_events_give_celerys_state_but_for_seven() -> None:
    """Two events in any order give the state that the rules of precedence and merging give."""
    pairs = {pair: states_after(*pair) for pair in permutations(TYPES, 2)}

    different = {pair: each for pair, each in pairs.items() if each[0] != each[1]}

    assert len(pairs) == 56
    assert different == {
        ("started", "received"): ("RECEIVED", "STARTED"),
        ("succeeded", "retried"): ("SUCCESS", "RETRY"),
        ("failed", "retried"): ("FAILURE", "RETRY"),
        ("revoked", "retried"): ("REVOKED", "RETRY"),
        ("retried", "sent"): ("RETRY", "PENDING"),
        ("retried", "received"): ("RETRY", "RECEIVED"),
        ("retried", "rejected"): ("RETRY", "REJECTED"),
    }


@pytest.mark.differs("State of a task from events out of order")
def test_revocation_ends_a_custom_state() -> None:
    pair = states_after("progress", "revoked")

    assert pair == ("REVOKED", "PROGRESS")


@pytest.mark.differs("State of a task from events out of order")
def test_late_retry_does_not_hide_the_next_attempt() -> None:
    first, start, second, retry = happened("received", "started", "received", "retried")

    ours, theirs = both_after([first, start, {**second, "retries": 1}, retry])

    assert (ours.state, theirs.state) == ("RECEIVED", "RETRY")


@pytest.mark.differs("Tasks by type")
def test_task_is_listed_by_its_type_whichever_event_came_first() -> None:
    ours, theirs = State(), CeleryState()

    for event in late("received", "started"):
        ours.event(dict(event))
        theirs.event(dict(event))

    assert [each.uuid for each in ours.tasks_by_type["shop.pay"]] == ["t1"]
    assert list(theirs.tasks_by_type["shop.pay"]) == []


@pytest.mark.differs("Events that end a monitor of Celery")
@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ([worker("heartbeat", event="x"), worker("heartbeat")], ({}, {})),
        ([worker("elect", id="e1", topic="tidy", action=None, cver=1)], ({}, {})),
        ([without(task("started"), "type")], ({"type": 1}, {})),
        ([without(task("started"), "uuid")], ({"uuid": 1}, {})),
        ([task("started", timestamp="x")], ({}, {"timestamp": 1})),
        ([worker("heartbeat", timestamp="x")], ({}, {"timestamp": 1})),
    ],
)
def test_event_on_which_celery_raises_is_refused_or_corrected(
    events: list[dict[str, Any]], counts: tuple[dict[str, int], dict[str, int]]
) -> None:
    ours, theirs = State(), CeleryState()

    for event in events:
        ours.event({**event, "local_received": AT})

    assert (ours.gate.refused, ours.gate.mended) == counts
    with pytest.raises((TypeError, AttributeError, KeyError, ValueError)):  # noqa: PT012 - the first may pass
        for event in events:
            theirs.event({**event, "local_received": AT})


@pytest.mark.differs("Methods of Celery's State and Task")
def test_026_task_has_no_methods_that_change_it() -> None:
    """`Task.event` merges one event by `Task.merge_rules`."""
    state = State()

    state.event(task("started"))

    assert not hasattr(Task, "event")
    assert not hasattr(Task, "merge_rules")
    assert not hasattr(State, "get_or_create_task")
    assert state.tasks["t1"].state == "STARTED"


# -- order


def test_030_order_of_tasks_does_not_depend_on_arrival() -> None:
    """Tasks are ordered by clock, timestamp and origin, whatever the order of arrival."""
    ties = [(7, 1.0, "a"), (7, 1.0, "b"), (7, 2.0, "a"), (8, 1.0, "a"), (8, 0.5, "b"), (9, 0.0, "a")]
    events = [
        task("received", f"t{number}", clock=clock, timestamp=AT + later, hostname=f"{host}@web")
        for number, (clock, later, host) in enumerate(ties)
    ]

    orders = set()
    for arrival in permutations(events):
        state = State()
        for event in arrival:
            state.event(dict(event))
        orders.add(tuple(uuid for uuid, _ in state.tasks_by_time(reverse=False)))

    assert orders == {("t0", "t1", "t2", "t4", "t3", "t5")}


def test_031_monitors_show_a_cause_before_its_effect() -> None:
    """`celeriac top` and the dashboard list the events of a task in logical order, whatever their arrival."""
    course = [("sent", 4, 90.0), ("received", 5, 60.0), ("started", 6, 70.0), ("succeeded", 9, 30.0)]
    events = [
        task(subject) | {"clock": clock, "timestamp": AT + seconds} | FIELDS.get(subject, {})
        for subject, clock, seconds in course
    ]

    in_top, in_dashboard = set(), set()
    for arrival in permutations(events):
        state = State()
        for event in arrival:
            state.event({**event, "local_received": AT})
        detail = task_detail(state, "t1")
        assert detail is not None
        console = Console(width=120)
        with console.capture() as output:
            console.print(detail_text(detail))
        in_top.add(output.get())
        in_dashboard.add(tuple(row.type for row in detail.events))

    (text,) = in_top
    assert re.findall(r"task-\w+", text) == ["task-sent", "task-received", "task-started", "task-succeeded"]
    assert in_dashboard == {("task-sent", "task-received", "task-started", "task-succeeded")}
