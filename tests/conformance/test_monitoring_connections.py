"""Dispatchers and receivers that a program makes by itself, from a connection alone, on real brokers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import kombu
import pytest

from celeriac import Celeriac
from celeriac.events.dispatcher import EventDispatcher
from celeriac.events.receiver import EventReceiver
from celeriac.model.events import Event

TIMEOUT = 120.0

#: Makes a connection to a URL.
Connect = Callable[[str], AbstractContextManager[Any]]


def connect_by_app(url: str) -> AbstractContextManager[Any]:
    return Celeriac(url, environ={}).connection()


@pytest.fixture(params=["redis_url", "amqp_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.mark.parametrize("connect", [connect_by_app, kombu.Connection])
def test_receiver_needs_a_connection_and_handlers_alone(connect: Connect, url: str) -> None:
    """`EventReceiver(connection, handlers)` captures the events of `EventDispatcher(connection)`."""
    seen: list[Event] = []

    with connect(url) as connection, EventReceiver(connection, handlers={"*": seen.append}) as receiver:
        with pytest.raises(TimeoutError):
            receiver.capture(limit=None, timeout=0, wakeup=False)
        with EventDispatcher(connection, "shop@web", enabled=True) as dispatcher:
            dispatcher.send("worker-online", custom_field="value")
            dispatcher.send("shop-sale", sum=12)
        receiver.capture(limit=2, timeout=TIMEOUT, wakeup=False)

    assert [(event.type, event["hostname"]) for event in seen] == [
        ("worker-online", "shop@web"),
        ("shop-sale", "shop@web"),
    ]
    assert (seen[0]["custom_field"], seen[1]["sum"]) == ("value", 12)
    assert [event["clock"] for event in seen] == [1, 2]
    assert receiver.clock.value > 2


@pytest.mark.parametrize("connect", [connect_by_app, kombu.Connection])
def test_receiver_wakes_workers_over_a_connection_alone(connect: Connect, url: str) -> None:
    """`EventReceiver(connection).capture(wakeup=True)` asks the workers of the broker for a heartbeat."""
    seen: list[Event] = []
    app = Celeriac(url, environ={}, worker_heartbeat_interval=3600.0)

    with (
        app.Worker("w1@web", concurrency=1, without_mingle=True, without_gossip=True),
        connect(url) as connection,
        EventReceiver(connection, {"worker-heartbeat": seen.append}) as receiver,
    ):
        receiver.capture(limit=1, timeout=TIMEOUT, wakeup=True)
    app.close()

    assert seen[0]["hostname"] == "w1@web"
