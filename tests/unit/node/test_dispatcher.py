"""What a dispatcher sends: which events, how they are spelled, stamped, gathered and ordered."""

import json
import os
from collections import defaultdict
from time import time
from typing import Any

import pytest

from celeriac.errors import CallerError
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.identity import anonymous_name, hours_west
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from tests.rig import HOST, Rig, in_threads


def loop() -> dict[str, object]:
    """Return fields without an end."""
    fields: dict[str, object] = {}
    fields["self"] = fields
    return fields


# -- one event


def test_an_event_is_spelled_as_celery_spells_it() -> None:
    rig = Rig()
    before = time()

    rig.dispatcher().send("task-sent", uuid="8acc", args="('€',)", eta=None)

    ((exchange, message),) = rig.broker.published
    event = json.loads(message.body)
    assert (exchange, message.routing_key) == ("celeryev", "task.sent")
    assert message.headers == {"hostname": HOST}
    assert before <= event.pop("timestamp") <= time()
    assert event == {
        "type": "task-sent", "hostname": HOST, "pid": os.getpid(), "utcoffset": hours_west(), "clock": 1,
        "uuid": "8acc", "args": "('€',)", "eta": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "key"), [("worker-elect-ack", "worker.elect.ack"), ("custom", "custom"), ("a-b_c.d", "a.b_c.d")]
)
def test_the_key_is_the_type_with_dots(type_: str, key: str) -> None:
    rig = Rig()

    rig.dispatcher().send(type_)

    assert rig.keys == [key]


def test_the_exchange_is_a_setting() -> None:
    rig = Rig(event_exchange="other")

    rig.dispatcher().send("worker-online")

    ((exchange, _),) = rig.broker.published
    assert exchange == "other"


def test_a_time_that_is_given_is_kept() -> None:
    rig = Rig()

    rig.dispatcher().send("task-sent", timestamp=1_794_703_817.25)

    assert rig.events[0]["timestamp"] == 1_794_703_817.25


def test_who_has_no_name_is_called_as_a_client_of_celery_is() -> None:
    dispatcher = Rig().dispatcher(hostname=None)

    assert dispatcher.hostname == anonymous_name()


def test_a_blind_event_has_no_clock_and_moves_none() -> None:
    rig = Rig()

    rig.dispatcher().send("worker-online", blind=True)

    assert rig.clocks == [None]
    assert rig.clock.value == 0


# -- what is sent, and what is not


def test_only_events_of_the_groups_that_were_chosen_are_sent() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(groups=["worker"])

    for type_ in ("task-sent", "worker-online", "workers-online", "worker"):
        dispatcher.send(type_)

    assert rig.types == ["worker-online", "worker"]


def test_groups_can_be_changed_while_it_runs() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(groups=["worker"])

    dispatcher.groups.add("task")
    dispatcher.send("task-sent")

    assert rig.types == ["task-sent"]


def test_a_dispatcher_that_is_not_enabled_sends_nothing_and_moves_no_clock() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(enabled=False, buffer_group=["task"])

    dispatcher.send("worker-online")
    dispatcher.send("task-sent")
    dispatcher.publish("task-sent", {})

    assert (rig.messages, rig.clock.value, dispatcher.flush()) == ([], 0, 0)


def test_a_broker_without_a_fanout_gets_no_events() -> None:
    class Sql(MemoryConnection):
        driver = "sql"

    rig, broker = Rig(), MemoryBroker()
    dispatcher = EventDispatcher(Sql(broker), settings=rig.settings, clock=rig.clock)

    dispatcher.send("worker-online")

    assert not dispatcher.enabled
    assert broker.published == []


@pytest.mark.parametrize("field", ["hostname", "utcoffset", "pid", "clock"])
@pytest.mark.parametrize("buffer_group", [(), ("task",)])
def test_a_field_that_the_dispatcher_fills_in_cannot_be_given(
    field: str, buffer_group: tuple[str, ...]
) -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=buffer_group)
    fields: dict[str, Any] = {field: 7}

    with pytest.raises(CallerError, match=f"the dispatcher sets {field}:"):
        dispatcher.send("task-sent", **fields)

    assert (dispatcher.flush(), rig.messages) == (0, [])


def test_the_type_cannot_be_given_twice() -> None:
    rig = Rig()

    with pytest.raises(CallerError, match="the dispatcher sets clock, type:"):
        rig.dispatcher().publish("task-sent", {"type": "task-failed", "clock": 7})

    assert rig.messages == []


@pytest.mark.parametrize("value", [object(), "\ud800", {1j: 2}, loop(), {"a": [object()]}])
@pytest.mark.parametrize(
    "options",
    [{}, {"buffer_group": ["task"]}, {"buffer_while_offline": False}],
    ids=["one", "batch", "at once"],
)
def test_what_json_cannot_hold_is_the_mistake_of_who_sends_it_and_spoils_nothing(
    value: object, options: dict[str, Any]
) -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(**options)
    dispatcher.send("task-before")

    with pytest.raises(CallerError, match="cannot encode event 'task-sent' as JSON"):
        dispatcher.send("task-sent", value=value)

    dispatcher.send("task-after")
    assert dispatcher.flush(timeout=120.0) == 0
    assert rig.types == ["task-before", "task-after"]


# -- batches


def test_events_of_a_group_are_gathered_until_there_are_enough() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"], buffer_limit=3)

    for number in range(7):
        dispatcher.send("task-sent", number=number)

    assert rig.keys == ["task.multi", "task.multi"]
    assert [event["number"] for event in rig.events] == [0, 1, 2, 3, 4, 5]
    assert all(isinstance(json.loads(message.body), list) for message in rig.messages)
    assert dispatcher.buffered >= 1


def test_what_is_gathered_leaves_with_a_flush() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task", "worker"])
    dispatcher.send("task-sent")
    dispatcher.send("worker-online")

    left = dispatcher.flush()

    assert left == 0
    assert rig.keys == ["task.multi", "worker.multi"]


def test_events_of_other_groups_do_not_wait_for_a_batch() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])

    dispatcher.send("task-sent")
    dispatcher.send("worker-online")

    assert rig.types == ["worker-online"]


def test_an_event_is_stamped_when_it_is_gathered() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.send("task-sent")

    rig.clock.adjust(1000)
    dispatcher.flush()

    assert rig.clocks == [1]


def test_an_event_that_is_published_leaves_alone_but_not_before_those_of_its_group() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"], groups=["worker", "task"])
    dispatcher.send("task-sent")

    dispatcher.publish("task-failed", {"uuid": "8acc"})

    assert rig.keys == ["task.multi", "task.failed"]
    assert rig.clocks == [1, 2]


def test_who_asked_is_told_of_each_event_that_is_gathered_and_does_not_fill_a_batch() -> None:
    rig = Rig()
    told: list[int] = []
    dispatcher = rig.dispatcher(
        buffer_group=["task"], buffer_limit=3, on_send_buffered=lambda: told.append(len(rig.messages))
    )

    for _ in range(5):
        dispatcher.send("task-sent")
    dispatcher.send("worker-online")

    assert told == [0, 0, 1, 1]


def test_a_batch_can_be_sent_by_who_is_told_of_it() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.on_send_buffered = dispatcher.flush

    dispatcher.send("task-sent")

    assert rig.keys == ["task.multi"]


# -- threads


def test_clocks_rise_in_the_order_of_the_wire_whichever_thread_sends() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()

    def send(mine: int) -> None:
        for _ in range(100):
            dispatcher.send(f"worker-{mine}")

    in_threads(8, send)

    assert dispatcher.flush(timeout=120.0) == 0
    assert rig.clocks == list(range(1, 801))


def test_clocks_of_a_group_rise_also_where_some_events_are_gathered() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"], buffer_limit=7)

    def send(mine: int) -> None:
        for number in range(100):
            dispatcher.send("task-sent" if mine % 2 else "worker-heartbeat")
            if number % 10 == 0:
                dispatcher.publish("task-failed", {})

    in_threads(8, send)

    assert dispatcher.flush(timeout=120.0) == 0
    assert sorted(rig.clocks) == list(range(1, 881))
    by_group: defaultdict[str, list[int]] = defaultdict(list)
    for event in rig.events:
        by_group[event["type"].partition("-")[0]].append(event["clock"])
    assert all(clocks == sorted(clocks) for clocks in by_group.values())


def test_a_type_that_is_too_long_for_a_routing_key_is_refused_and_blocks_nothing() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()

    with pytest.raises(CallerError, match="255 bytes"):
        dispatcher.send("x" * 256)
    dispatcher.send("task-sent")

    assert rig.types == ["task-sent"]


def test_an_event_that_receivers_would_refuse_for_its_size_is_refused_here() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()

    with pytest.raises(CallerError, match="shorten its fields"):
        dispatcher.send("task-failed", uuid="1", traceback="x" * 300_000)

    assert rig.types == []
