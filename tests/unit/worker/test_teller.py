"""Events of a worker are sent if they can be, cut if they must be, and raise nothing."""

import json
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import AccessRefused
from celeriac.node.clock import SharedClock
from celeriac.node.dispatcher import EventDispatcher
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.worker.teller import Teller


def told(broker: MemoryBroker) -> list[dict[str, Any]]:
    return [json.loads(message.body) for _, message in broker.published]


def teller(broker: MemoryBroker, link: MemoryConnection | None = None) -> Teller:
    return Teller(EventDispatcher(link or broker.connect(), settings=Settings(), clock=SharedClock()))


def test_an_event_is_sent_as_it_is() -> None:
    broker = MemoryBroker()

    teller(broker).tell("task-halfway", uuid="t1", done=[1, 2])

    (event,) = told(broker)
    assert (event["type"], event["uuid"], event["done"]) == ("task-halfway", "t1", [1, 2])


def test_many_fields_are_cut_to_the_first() -> None:
    broker = MemoryBroker()

    teller(broker).tell("task-halfway", uuid="t1", **{f"f{number}": "\x00" * 2000 for number in range(500)})

    (event,) = told(broker)
    assert event["uuid"] == "t1"
    assert sum(name.startswith("f") for name in event) < 20


def test_what_is_plain_is_not_cut_with_the_rest() -> None:
    broker = MemoryBroker()

    teller(broker).tell("task-halfway", uuid="t1", odd=object(), done=50, share=0.5, more=None, is_it=True)

    (event,) = told(broker)
    assert [event[name] for name in ("done", "share", "more", "is_it")] == [50, 0.5, None, True]
    assert event["odd"].startswith("<object")


def test_a_value_that_cannot_even_be_shown_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    broker = MemoryBroker()

    teller(broker).tell("task-halfway", uuid="t1", odd=Odd())

    assert told(broker) == []
    assert "cannot send 'task-halfway'" in caplog.text


def test_a_broker_that_refuses_events_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(MemoryConnection):
        def publish(self, *_: Any, **__: Any) -> None:
            raise AccessRefused("no permission")

    broker = MemoryBroker()
    refused = teller(broker, Refusing(broker))

    for _ in range(3):
        refused.tell("task-halfway", uuid="t1")
    refused.flush()

    assert caplog.text.count("no permission") == 1
