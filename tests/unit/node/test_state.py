"""The state that programs hold: dicts, records and bodies in, from any thread."""

import json
import logging
from itertools import permutations
from typing import Any

import pytest

from celeriac import State, Worker
from celeriac.model.events import Event as AnyEvent
from celeriac.model.events import Started, WorkerHeartbeat
from tests.builders import AT, WORKER, Fields, body, task, without, worker

# -- what event returns


def test_the_first_event_of_a_task_returns_the_task_as_new() -> None:
    state = State()

    returned = state.event(task("received", name="shop.pay"))

    assert returned == ((state.tasks["t1"], True), "received")


def test_a_later_event_of_a_task_returns_it_as_known() -> None:
    state = State()
    state.event(task("received"))

    returned = state.event(task("started", clock=26))

    assert returned == ((state.tasks["t1"], False), "started")


def test_a_custom_event_returns_its_task_and_its_own_subject() -> None:
    state = State()

    returned = state.event(task("progress"))

    assert returned == ((state.tasks["t1"], True), "progress")


def test_an_event_of_a_worker_returns_the_worker() -> None:
    state = State()

    returned = [state.event(worker("online")), state.event(worker("heartbeat", clock=26))]

    known = state.workers[WORKER]
    assert returned == [((known, True), "online"), ((known, False), "heartbeat")]


@pytest.mark.parametrize("type_", ["worker-elect", "cluster-suspect", "deploy"])
def test_an_event_about_neither_task_nor_worker_returns_none(type_: str) -> None:
    state = State()

    returned = state.event({**worker("online"), "type": type_})

    assert returned is None
    assert state.event_count == 1


@pytest.mark.parametrize("junk", [{}, {"type": "task-started"}, [], None, "task-started", 7])
def test_an_event_that_cannot_be_taken_returns_none_and_does_not_count(junk: Any) -> None:
    state = State()

    returned = state.event(junk)

    assert returned is None
    assert state.event_count == 0
    assert state.gate.refused.total() == 1


# -- what it takes


def test_a_record_counts_as_its_dict_does() -> None:
    by_dict, by_record = State(), State()
    by_dict.event(task("started"))

    by_record.event(Started(timestamp=AT, clock=25, hostname=WORKER, pid=19036, uuid="t1"))

    assert by_record.tasks["t1"].history == by_dict.tasks["t1"].history
    assert by_record.tasks["t1"].state == "STARTED"


def test_a_dict_that_was_given_is_not_changed() -> None:
    state = State()
    given = task("received", name="shop.pay", local_received=AT, surprise=[1])
    before = json.dumps(given)

    state.event(given)

    assert json.dumps(given) == before


def test_a_body_counts_as_its_events_do() -> None:
    by_dict, by_body = State(), State()
    wire = [task("received", name="shop.pay"), task("started", clock=26, timestamp=AT + 1), worker("online")]
    for event in wire:
        by_dict.event(event)

    events = by_body.receive(body(wire))

    assert [event.type for event in events] == ["task-received", "task-started", "worker-online"]
    assert by_body.tasks["t1"].history == by_dict.tasks["t1"].history
    assert by_body.event_count == by_dict.event_count == 3


def test_a_worker_in_a_dict_is_alive_by_the_time_of_receipt() -> None:
    state = State(now=lambda: AT + 3)

    state.event(worker("heartbeat", freq=2.0, local_received=AT))

    assert list(state.alive_workers()) == [state.workers[WORKER]]


def test_a_worker_in_a_record_is_alive_by_the_time_of_receipt() -> None:
    state = State(now=lambda: AT + 3)

    state.event(WorkerHeartbeat(timestamp=AT, clock=1, hostname=WORKER, freq=2.0, local_received=AT))

    assert list(state.alive_workers()) == [state.workers[WORKER]]


def test_a_worker_in_a_body_is_alive_by_the_time_of_receipt() -> None:
    state = State(now=lambda: AT + 3)

    state.receive(body(worker("heartbeat", freq=2.0)), received_at=AT)

    assert list(state.alive_workers()) == [state.workers[WORKER]]


def test_a_peer_cannot_keep_itself_alive_by_sending_a_time_of_receipt() -> None:
    state = State(now=lambda: AT + 3)

    state.receive(body(worker("heartbeat", local_received=AT + 1000)))

    assert list(state.alive_workers()) == []


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_the_worker_of_a_task_is_the_same_in_every_order_of_arrival(order: tuple[int, ...]) -> None:
    state = State()
    # Both attempts were given up; the clock of b is ahead, so by time it spoke last.
    told = [
        task("retried", hostname="b@h", timestamp=AT + 50, clock=5),
        task("received", hostname="a@h", timestamp=AT, clock=7, retries=1),
        task("retried", hostname="a@h", timestamp=AT + 10, clock=9),
    ]

    for place in order:
        state.event(told[place])

    assert state.tasks["t1"].host == "b@h"


# -- the callback


def test_the_callback_gets_the_state_and_the_event_as_it_was_given() -> None:
    seen: list[tuple[State, object]] = []
    state = State(lambda *given: seen.append(given))
    as_dict, as_record = task("started"), Started(timestamp=AT, clock=1, hostname=WORKER, uuid="t2")

    state.event(as_dict)
    state.event(as_record)

    assert seen[0][0] is seen[1][0] is state
    assert seen[0][1] is as_dict
    assert seen[1][1] is as_record


def test_the_callback_sees_the_event_before_it_counts() -> None:
    seen: list[tuple[int, list[str]]] = []
    state = State(lambda state, _: seen.append((state.event_count, list(state.tasks))))

    state.event(task("started", "t1"))
    state.event(task("started", "t2"))

    assert seen == [(0, []), (1, ["t1"])]


def test_the_callback_gets_each_record_of_a_body() -> None:
    seen: list[AnyEvent] = []
    state = State(lambda _, event: seen.append(event))

    events = state.receive(body([task("started", "t1"), {}, task("started", "t2")]))

    assert seen == events
    assert len(seen) == 2


def test_the_callback_gets_no_event_that_was_refused() -> None:
    seen: list[object] = []
    state = State(lambda _, event: seen.append(event))

    state.event({"type": "task-started"})

    assert seen == []


def test_a_callback_that_is_set_later_is_called() -> None:
    seen: list[object] = []
    state = State()

    state.event_callback = lambda _, event: seen.append(event)
    state.event(task("started"))

    assert len(seen) == 1


def test_a_callback_may_ask_the_state_it_is_called_from() -> None:
    asked: list[list[str]] = []
    state = State(lambda state, _: asked.append(state.freeze_while(state.task_types)))

    state.event(task("received", "t1", name="shop.pay"))
    state.event(task("received", "t2", name="shop.ship"))

    assert asked == [[], ["shop.pay"]]


# -- drift


def drifting(**fields: Any) -> Fields:
    return worker("heartbeat", **fields, local_received=AT + 60)


def test_a_drift_is_logged_once_for_each_host(caplog: pytest.LogCaptureFixture) -> None:
    state = State()

    with caplog.at_level(logging.WARNING, logger="celeriac"):
        for turn in range(3):
            state.event(drifting(hostname="a@h", clock=turn + 1))
            state.event(drifting(hostname="b@h", clock=turn + 1))

    assert len(caplog.messages) == 2
    assert "a@h" in caplog.messages[0]
    assert "60 seconds" in caplog.messages[0]
    assert "b@h" in caplog.messages[1]


def test_a_clock_that_is_ahead_of_ours_is_a_drift_too(caplog: pytest.LogCaptureFixture) -> None:
    state = State()

    with caplog.at_level(logging.WARNING, logger="celeriac"):
        state.event(worker("heartbeat", local_received=AT - 60))

    assert len(caplog.messages) == 1


def test_a_drift_that_delivery_explains_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    state = State()

    with caplog.at_level(logging.WARNING, logger="celeriac"):
        state.event(worker("heartbeat", local_received=AT + 16))

    assert caplog.messages == []


def test_no_drift_is_logged_without_a_time_of_receipt(caplog: pytest.LogCaptureFixture) -> None:
    state = State()

    with caplog.at_level(logging.WARNING, logger="celeriac"):
        state.event(without(drifting(), "local_received"))
        state.receive(body(drifting()))

    assert caplog.messages == []
    assert state.workers[WORKER].drift is None


def test_a_timestamp_that_could_not_be_read_is_no_drift(caplog: pytest.LogCaptureFixture) -> None:
    state = State()

    with caplog.at_level(logging.WARNING, logger="celeriac"):
        state.event(drifting(timestamp="x"))

    assert caplog.messages == []


# -- who joins and leaves


def test_a_worker_joins_once_and_leaves_once() -> None:
    told: list[tuple[str, str]] = []
    state = State(
        on_node_join=lambda node: told.append(("join", node.hostname)),
        on_node_leave=lambda node: told.append(("leave", node.hostname)),
    )

    for clock, subject in enumerate(["online", "heartbeat", "heartbeat", "offline"], start=1):
        state.event(worker(subject, clock=clock, timestamp=AT + clock, local_received=AT + clock))

    assert told == [("join", WORKER), ("leave", WORKER)]


def test_a_listener_that_is_set_later_is_called() -> None:
    told: list[Worker] = []
    state = State()

    state.on_node_join = told.append
    state.event(worker("online"))

    assert told == [state.workers[WORKER]]
