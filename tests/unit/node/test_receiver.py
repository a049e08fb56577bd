"""The receiver of events, on the broker in this process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from celeriac import CallerError, Celeriac, ConnectionLost, EventReceiver, MemoryBroker
from celeriac.model.events import Event, Sent
from celeriac.wire.names import control_exchange, event_exchange
from tests.builders import AT, CLIENT, WORKER, body, task, without, worker

PATIENCE = 120.0


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def app(broker: MemoryBroker) -> Celeriac:
    return Celeriac(
        broker, environ={}, hostname="monitor@here", broker_retry_base=0.001, broker_retry_cap=0.01
    )


def publish(broker: MemoryBroker, event: Any, **headers: Any) -> None:
    with broker.connect() as link:
        content = event if isinstance(event, bytes) else body(event)
        link.publish(event_exchange("celeryev", "memory"), content, routing_key="task.any", headers=headers)


@contextmanager
def listening(app: Celeriac, handlers: Any = None, **options: Any) -> Iterator[EventReceiver]:
    """A receiver that is subscribed: what is published from now on arrives."""
    with app.events.Receiver(handlers=handlers, **options) as receiver:
        with pytest.raises(TimeoutError):
            receiver.capture(timeout=0)
        yield receiver


def test_an_event_goes_to_the_handler_of_its_type_and_all_others_to_the_star(
    app: Celeriac, broker: MemoryBroker
) -> None:
    failed: list[Event] = []
    others: list[Event] = []

    with listening(app, {"task-failed": failed.append, "*": others.append}) as receiver:
        publish(broker, [task("started"), task("failed"), worker("heartbeat"), {"type": "shop-sale", **SALE}])
        receiver.capture(limit=4, timeout=PATIENCE)

    assert [event.type for event in failed] == ["task-failed"]
    assert [event.type for event in others] == ["task-started", "worker-heartbeat", "shop-sale"]


SALE = {"hostname": "till@shop", "timestamp": AT, "clock": 3, "sum": 12}


def test_an_event_can_be_read_like_the_dict_that_celery_hands_out(
    app: Celeriac, broker: MemoryBroker
) -> None:
    with listening(app) as receiver:
        publish(broker, task("failed", "t7", exception="ValueError('x')", colour="red"))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    assert event["type"] == "task-failed"
    assert (event["uuid"], event["exception"], event["colour"]) == ("t7", "ValueError('x')", "red")
    assert event.get("traceback") is None
    assert "traceback" not in event
    assert dict(event)["colour"] == "red"


def test_what_an_event_does_not_say_is_a_key_error(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        publish(broker, task("started"))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    with pytest.raises(KeyError):
        event["group"]
    with pytest.raises(KeyError):
        event["keys"]


def test_a_limit_inside_a_batch_leaves_the_rest_for_the_next_capture(
    app: Celeriac, broker: MemoryBroker
) -> None:
    seen: list[Event] = []

    with listening(app, {"*": seen.append}) as receiver:
        publish(broker, [task("started", str(number)) for number in range(5)])
        receiver.capture(limit=2, timeout=PATIENCE)
        first = [event["uuid"] for event in seen]
        receiver.capture(limit=3, timeout=PATIENCE)

    assert first == ["0", "1"]
    assert [event["uuid"] for event in seen] == ["0", "1", "2", "3", "4"]


def test_events_after_one_whose_handler_raises_are_not_lost(app: Celeriac, broker: MemoryBroker) -> None:
    seen: list[Event] = []

    def handle(event: Event) -> None:
        if event["uuid"] == "0":
            raise RuntimeError("no")
        seen.append(event)

    with listening(app, {"*": handle}) as receiver:
        publish(broker, [task("started", str(number)) for number in range(3)])
        with pytest.raises(RuntimeError, match="no"):
            receiver.capture(timeout=PATIENCE)
        receiver.capture(limit=2, timeout=PATIENCE)

    assert [event["uuid"] for event in seen] == ["1", "2"]


def test_silence_longer_than_the_timeout_is_a_timeout_error(app: Celeriac) -> None:
    with app.events.Receiver() as receiver, pytest.raises(TimeoutError, match="no event received"):
        receiver.capture(timeout=0.01)


def test_a_state_is_up_to_date_before_a_handler_sees_the_event(app: Celeriac, broker: MemoryBroker) -> None:
    state = app.events.State()
    states: list[str] = []

    def look(event: Event) -> None:
        states.append(state.tasks[str(event["uuid"])].state)

    with listening(app, {"*": look}, state=state) as receiver:
        publish(broker, [task("received"), task("started", timestamp=AT + 1, clock=26)])
        receiver.capture(limit=2, timeout=PATIENCE)

    # Both came in one message, so the state knows both.
    assert states == ["STARTED", "STARTED"]


def test_without_handlers_a_state_alone_is_fed(app: Celeriac, broker: MemoryBroker) -> None:
    state = app.events.State()

    with listening(app, state=state) as receiver:
        publish(broker, [task("received"), worker("heartbeat")])
        receiver.capture(limit=2, timeout=PATIENCE)

    assert list(state.tasks) == ["t1"]
    assert state.workers[WORKER].alive


def test_without_handlers_all_events_that_came_can_be_taken_at_once(
    app: Celeriac, broker: MemoryBroker
) -> None:
    batches: list[list[str]] = []

    with listening(app) as receiver:
        receiver.on_events = lambda events: batches.append([event.type for event in events])
        publish(broker, [task("received"), worker("heartbeat"), task("started")])
        receiver.capture(limit=2, timeout=PATIENCE)
        receiver.capture(limit=1, timeout=PATIENCE)

    assert batches == [["task-received", "worker-heartbeat"], ["task-started"]]


def test_the_clock_moves_past_each_message(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        publish(broker, [task("started", clock=500), task("succeeded", clock=400)])
        receiver.capture(limit=2, timeout=PATIENCE)

    assert app.clock.value == 501


def test_a_clock_far_ahead_is_not_adopted(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        before = app.clock.value
        publish(broker, worker("heartbeat", clock=2**50))
        receiver.capture(limit=1, timeout=PATIENCE, wakeup=False)

    assert app.clock.value == before + 1
    assert dict(app.clock.rejected) == {WORKER: 1}


def test_the_clock_of_a_client_is_kept_aside_and_ours_put_in_its_place(
    app: Celeriac, broker: MemoryBroker
) -> None:
    app.clock.adjust(99)

    with listening(app) as receiver:
        before = app.clock.value
        publish(broker, task("sent", hostname=CLIENT, clock=7777, name="shop.pay"))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE, wakeup=False)

    assert isinstance(event, Sent)
    assert (event.clock, event.client_clock) == (before - 1, 7777)
    assert app.clock.value == before + 1


def test_each_event_without_a_clock_is_stamped_with_the_next_clock(
    app: Celeriac, broker: MemoryBroker
) -> None:
    blind = [without(task("started", str(number)), "clock") for number in range(2)]

    with listening(app) as receiver:
        publish(broker, [blind[0], task("started", "2", clock=500), blind[1]])
        events = list(receiver.itercapture(3, PATIENCE, False))

    assert [event["clock"] for event in events] == [502, 500, 503]
    assert [event.clock for event in events] == [0, 500, 0]
    assert [event.local_clock for event in events] == [502, None, 503]
    assert app.clock.value == 503


def test_events_without_a_clock_are_listed_where_they_arrived(app: Celeriac, broker: MemoryBroker) -> None:
    state = app.events.State()

    with listening(app, state=state) as receiver:
        publish(broker, task("received", "first", clock=500))
        publish(broker, without(task("received", "second", timestamp=AT - 60), "clock"))
        publish(broker, task("received", "third", clock=600))
        receiver.capture(3, PATIENCE, False)

    assert [uuid for uuid, _ in state.tasks_by_time(reverse=False)] == ["first", "second", "third"]
    assert [state.tasks[uuid].clock for uuid in ("first", "second", "third")] == [500, 0, 600]


def test_a_stamp_of_the_receiver_makes_no_second_event_of_one(app: Celeriac, broker: MemoryBroker) -> None:
    state = app.events.State()
    blind = without(task("received"), "clock")

    with listening(app, {"*": state.event}) as receiver:
        publish(broker, blind)
        publish(broker, blind)
        receiver.capture(2, PATIENCE, False)

    assert state.tasks["t1"].deliveries == 1


def test_a_clock_that_the_sender_calls_the_receivers_is_dropped(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        publish(broker, task("started", local_clock=7))
        publish(broker, without(task("started", local_clock=7), "clock"))
        clocked, blind = receiver.itercapture(2, PATIENCE, False)

    assert clocked.local_clock is None
    assert blind.local_clock == app.clock.value


def test_a_body_that_is_no_event_is_an_error_and_counted(app: Celeriac) -> None:
    receiver = app.events.Receiver()

    bodies: list[Any] = [{"type": "task-started", "hostname": WORKER}, [], "task-started"]

    for refused in bodies:
        with pytest.raises(CallerError, match=r"gate\.refused"):
            receiver.event_from_message(refused)

    assert dict(receiver.gate.refused) == {"uuid": 1, "not-an-event": 2}


def test_the_time_of_receipt_is_ours_and_the_timestamp_stays_the_senders(
    app: Celeriac, broker: MemoryBroker
) -> None:
    with listening(app) as receiver:
        publish(broker, task("started", utcoffset=-6, local_received=1.0))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    assert (event.timestamp, event.utcoffset) == (AT, -6)
    assert event.local_received is not None
    assert event.local_received > AT


def test_timestamps_are_shifted_as_celery_does_only_if_asked(broker: MemoryBroker) -> None:
    app = Celeriac(broker, environ={}, event_localize=True)

    with listening(app) as receiver:
        publish(broker, [task("started", utcoffset=2), task("started", "t2", utcoffset=0)])
        shifted, kept = receiver.itercapture(limit=2, timeout=PATIENCE)

    assert kept.timestamp - shifted.timestamp == 2 * 3600


def test_a_receiver_wakes_the_workers_up_unless_told_not_to(app: Celeriac, broker: MemoryBroker) -> None:
    exchange = control_exchange(app.conf).name

    def requests() -> int:
        return [name for name, _ in broker.published].count(exchange)

    with app.events.Receiver() as receiver:
        with pytest.raises(TimeoutError):
            receiver.capture(timeout=0, wakeup=False)
        silent = requests()
        with pytest.raises(TimeoutError):
            receiver.capture(timeout=0)

    assert (silent, requests()) == (0, 1)
    assert b'"method":"heartbeat"' in broker.published[-1][1].body


def test_what_cannot_be_read_is_counted_and_harms_nothing(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        publish(broker, b"\x80\x04pickle")
        publish(broker, {"type": "task-started"})
        publish(broker, b"x" * 100, compression="application/x-gzip")
        publish(broker, task("started"))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    assert event.type == "task-started"
    assert dict(receiver.gate.refused) == {"json": 1, "hostname": 1, "compression": 1}


def test_a_cut_is_mended_and_told_as_a_gap(app: Celeriac, broker: MemoryBroker) -> None:
    state = app.events.State()

    with listening(app, state=state) as receiver:
        broker.cut()
        (gap,) = receiver.itercapture(limit=1, timeout=PATIENCE)
        publish(broker, task("started"))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    assert (gap.type, gap.hostname) == ("cluster-gap", "monitor@here")
    assert gap["since"] <= gap["until"] == gap.timestamp  # type: ignore[operator]
    assert "cut" in str(gap["reason"])
    assert event.type == "task-started"
    assert receiver.losses == 1
    assert list(state.gaps) == [gap]


def test_a_broker_that_stays_away_is_one_gap_however_often_it_is_tried(
    app: Celeriac, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []
    caplog.set_level(logging.INFO, "celeriac")

    with listening(app, {"*": seen.append}) as receiver:
        broker.stop()
        with pytest.raises(TimeoutError):
            receiver.capture(timeout=1.0)
        broker.start()
        receiver.capture(limit=1, timeout=PATIENCE)

    assert [event.type for event in seen] == ["cluster-gap"]
    assert int(str(seen[0]["attempts"])) > 1
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_broker_that_is_not_there_at_the_start_is_an_error(app: Celeriac, broker: MemoryBroker) -> None:
    broker.stop()

    with app.events.Receiver() as receiver, pytest.raises(ConnectionLost):
        receiver.capture(limit=1)


def test_a_stop_ends_the_capture_even_while_the_broker_is_away(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        broker.stop()
        capturing = Thread(target=receiver.capture)
        capturing.start()
        receiver.stop()
        capturing.join(PATIENCE)

    assert not capturing.is_alive()


def test_a_stop_from_a_handler_ends_the_capture_and_leaves_the_rest_for_the_next(
    app: Celeriac, broker: MemoryBroker
) -> None:
    seen: list[Event] = []

    def handle(event: Event) -> None:
        seen.append(event)
        receiver.stop()

    with listening(app, {"*": handle}) as receiver:
        publish(broker, [task("started"), task("succeeded")])
        receiver.capture(timeout=PATIENCE)
        first = [event.type for event in seen]
        receiver.capture(timeout=PATIENCE)

    assert first == ["task-started"]
    assert [event.type for event in seen] == ["task-started", "task-succeeded"]


@pytest.mark.parametrize("limit", [None, 1])
def test_should_stop_ends_each_capture_until_the_program_sets_it_back(
    limit: int | None, app: Celeriac, broker: MemoryBroker
) -> None:
    seen: list[str] = []

    def handle(event: Event) -> None:
        seen.append(event.type)
        receiver.should_stop = True

    with listening(app, {"*": handle}) as receiver:
        publish(broker, [task("started"), task("succeeded")])
        while not receiver.should_stop:  # the loop of kombu's ConsumerMixin
            receiver.capture(limit, PATIENCE, False)
        receiver.capture(limit, PATIENCE, False)
        stopped = list(seen)
        receiver.should_stop = False
        receiver.capture(limit, PATIENCE, False)

    assert stopped == ["task-started"]
    assert seen == ["task-started", "task-succeeded"]


def test_stop_in_the_handler_of_the_last_event_ends_no_later_capture(
    app: Celeriac, broker: MemoryBroker
) -> None:
    def handle(_: Event) -> None:
        receiver.stop()

    with listening(app, {"*": handle}) as receiver:
        publish(broker, task("started"))
        receiver.capture(1, PATIENCE, False)
        should_stop = receiver.should_stop

        with pytest.raises(TimeoutError):
            receiver.capture(timeout=0)

    assert not should_stop


def test_a_stop_before_the_capture_ends_it_at_once(app: Celeriac) -> None:
    with app.events.Receiver() as receiver:
        receiver.stop()
        receiver.capture(timeout=PATIENCE)

        with pytest.raises(TimeoutError):  # and only that one
            receiver.capture(timeout=0)


def test_a_receiver_stays_subscribed_between_two_captures(app: Celeriac, broker: MemoryBroker) -> None:
    with listening(app) as receiver:
        publish(broker, task("started", "between"))
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    assert event["uuid"] == "between"


def test_a_receiver_of_worker_events_gets_no_others(app: Celeriac, broker: MemoryBroker) -> None:
    exchange = event_exchange("celeryev", "memory")

    with listening(app, routing_key="worker.#") as receiver, broker.connect() as link:
        link.publish(exchange, body(task("started")), routing_key="task.started")
        link.publish(exchange, body(worker("online")), routing_key="worker.online")
        (event,) = receiver.itercapture(limit=1, timeout=PATIENCE)

    assert event.type == "worker-online"
