"""What a snapshot holds, and what cannot have been one."""

from typing import Any

import pytest
from msgspec.structs import replace

from celeriac import State
from celeriac.core import snapshot
from celeriac.core.history import FULL_EVENTS
from celeriac.core.redaction import Redactor
from celeriac.core.snapshot import Snapshot, TaskRecord
from celeriac.errors import CallerError
from celeriac.model.events import Custom, Gap, Received, Sent, Started, Succeeded, TaskEvent
from tests.builders import AT, WIRE_EVENTS, WORKER, task, worker

Told = list[tuple[str, str]]


def busy_state() -> State:
    """Return a state that has seen an event of each type."""
    state = State()
    for event in WIRE_EVENTS.values():
        state.event(event | {"local_received": AT + 1})
    state.event(task("progress", "t2", done=7))
    state.event(Gap(timestamp=AT, clock=1, hostname="us@x", since=1.0, until=2.0, reason="cut", attempts=3))
    return state


def taken(state: State) -> Snapshot:
    return snapshot.take(state, now=AT)


def restored(picture: Snapshot, **options: Any) -> State:
    state = State(**options)
    snapshot.restore(state, picture, now=lambda: AT)
    return state


def started(uuid: str = "t1", **fields: Any) -> TaskEvent:
    told: dict[str, Any] = {"timestamp": AT, "clock": 1, "hostname": WORKER, "uuid": uuid} | fields
    return Started(**told)


def own(text: str) -> str:
    """Return an equal text that is another object."""
    return text[:1] + text[1:]


def test_a_snapshot_does_not_change_when_the_state_goes_on() -> None:
    state = busy_state()
    picture = taken(state)
    before = restored(picture)

    state.event(task("succeeded", "t2", clock=99, timestamp=AT + 50))
    state.event(worker("heartbeat", clock=99, timestamp=AT + 50, processed=1000, local_received=AT + 51))

    assert taken(restored(picture)) == taken(before)
    assert taken(before) != taken(state)


def test_a_restored_state_is_what_was_taken() -> None:
    picture = taken(busy_state())

    state = restored(picture)

    assert taken(state) == picture
    assert [task.as_dict() | {"worker": None} for task in state.tasks.values()] == [
        task.as_dict() | {"worker": None} for task in busy_state().tasks.values()
    ]
    assert state.tasks["t1"].worker is state.workers[WORKER]


def test_what_a_state_knew_before_is_forgotten() -> None:
    state = busy_state()

    snapshot.restore(state, taken(State()), now=lambda: AT)

    assert taken(state) == taken(State())
    assert state._children == {}


def test_nobody_is_told_of_workers_that_are_restored() -> None:
    told: Told = []
    state = State(
        on_node_join=lambda worker: told.append(("join", worker.hostname)),
        on_node_leave=lambda worker: told.append(("leave", worker.hostname)),
    )
    known = State()
    known.event(worker("online"))

    snapshot.restore(state, taken(known), now=lambda: AT)
    state.event(worker("offline", clock=30, timestamp=AT + 1))

    assert told == [("leave", WORKER)]


def test_of_more_than_there_is_room_for_the_last_are_kept() -> None:
    state = State()
    for number in range(5):
        state.event(task("received", f"t{number}", parent_id="p", hostname=f"w{number}@x"))
    state.event(task("started", "t0", hostname="w0@x"))

    small = restored(taken(state), max_tasks_in_memory=2, max_workers_in_memory=3)

    assert list(small.tasks) == ["t4", "t0"]
    assert list(small.workers) == ["w2@x", "w3@x", "w4@x"]
    assert {child.uuid for child in small.children_of("p")} == {"t4", "t0"}
    assert (small.count_children("p"), small.count_children("nobody")) == (2, 0)


def test_a_latest_event_that_the_history_has_dropped_is_kept() -> None:
    state = State()
    for number in range(FULL_EVENTS + 4):
        state.event(task("progress", clock=1000 - number, timestamp=AT + number, done=number))
    latest = state.tasks["t1"].latest
    assert latest not in state.tasks["t1"].history

    again = restored(taken(state)).tasks["t1"]

    assert (again.latest, again.history) == (latest, state.tasks["t1"].history)


def test_names_and_hosts_of_several_are_read_from_the_facts() -> None:
    state = State()
    state.event(task("sent", name="old", hostname="gen1@x"))
    state.event(task("received", name="new", clock=30))
    state.event(task("started", hostname="other@x", clock=31))

    again = restored(taken(state)).tasks["t1"]

    assert (again.name, again.host) == (state.tasks["t1"].name, state.tasks["t1"].host) == ("new", WORKER)


def test_equal_texts_are_one_copy() -> None:
    def apart(event: TaskEvent) -> TaskEvent:
        """Return an equal event with texts of its own, as one that was read from a file."""
        return replace(event, uuid=own(event.uuid), hostname=own(event.hostname))

    state = busy_state()
    copies = [
        TaskRecord(record.uuid, tuple(apart(event) for event in record.history), None)
        for record in taken(state).tasks
    ]
    assert copies[0].history[0].uuid is not copies[0].uuid

    again = restored(taken(state)._replace(tasks=copies))

    events = [(kept, event) for kept in again.tasks.values() for event in kept.history]
    assert len(events) > len(again.tasks) > 1
    for kept, event in events:
        assert event.uuid is kept.uuid
        if not isinstance(event, Sent):
            assert event.hostname is again.workers[event.hostname].hostname
    assert len({id(event.hostname) for _, event in events}) == len({event.hostname for _, event in events})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tasks": [TaskRecord("t1", (), None)]}, "no events"),
        ({"tasks": [TaskRecord("t1", (started(), started(timestamp=1.0)), None)]}, "out of order"),
        ({"tasks": [TaskRecord("t1", (started(), started()), None)]}, "out of order"),
        ({"tasks": [TaskRecord("t1", (started("t2"),), None)]}, "has an event of another task"),
        ({"tasks": [TaskRecord("t1", (started(),), started("t2"))]}, "has an event of another task"),
        ({"tasks": [TaskRecord("t1", (started(),), None)] * 2}, "duplicate task"),
        ({"event_count": -1}, "a negative number of events"),
        ({"gaps": [None] * 101}, "101 gaps"),
    ],
)
def test_what_no_state_can_have_been_is_refused_and_changes_nothing(
    change: dict[str, Any], reason: str
) -> None:
    state = busy_state()
    before = taken(state)

    with pytest.raises(CallerError, match=reason):
        snapshot.restore(state, taken(State())._replace(**change), now=lambda: AT)

    assert taken(state) == before


def test_more_events_than_any_task_keeps_are_refused() -> None:
    past = tuple(started(timestamp=AT + number) for number in range(snapshot.MAX_HISTORY + 1))

    with pytest.raises(CallerError, match="more than the limit of"):
        restored(taken(State())._replace(tasks=[TaskRecord("t1", past, None)]))


def test_secrets_are_redacted_by_the_rules_of_each_task() -> None:
    state = State()
    state.event(task("received", "t1", name="shop.pay", kwargs="{'password': 'hunter2'}"))
    state.event(task("succeeded", "t2", result="'iban DE1'"))
    state.event(task("received", "t2", name="bank.send", args="('DE1',)"))

    picture = snapshot.redacted(taken(state), Redactor({"bank.*": "drop"}))

    (paid, sent) = picture.tasks
    assert "hunter2" not in repr(picture)
    assert "password" in repr(paid)
    assert "DE1" not in repr(sent)
    assert [event.type for event in sent.history] == ["task-received", "task-succeeded"]
    assert any(sent.latest is event for event in sent.history)


def test_a_latest_event_beside_its_history_and_the_reason_of_a_gap_are_redacted_too() -> None:
    past = (Received(timestamp=AT, clock=1, hostname=WORKER, uuid="t1"),)
    latest = Custom(timestamp=AT, clock=9, hostname=WORKER, uuid="t1", subject="x", extra=None)
    latest = replace(latest, extra={"token": "hunter2"})
    gap = Gap(
        timestamp=AT,
        clock=1,
        hostname="us@x",
        since=1.0,
        until=2.0,
        reason="amqp://bob:hunter2@x",
        attempts=1,
    )
    picture = Snapshot(AT, 2, 1, [], [TaskRecord("t1", past, latest)], [gap])

    made = snapshot.redacted(picture, Redactor())

    assert "hunter2" not in repr(made)
    assert made.tasks[0].latest is not None
    assert made.tasks[0].latest.type == "task-x"


def test_without_secrets_redaction_changes_nothing() -> None:
    state = State()
    state.event(task("received", "t1", name="shop.add", args="(1, 2)"))
    state.event(Succeeded(timestamp=AT, clock=26, hostname=WORKER, uuid="t1", result="3", runtime=0.1))

    assert snapshot.redacted(taken(state), Redactor()) == taken(state)
