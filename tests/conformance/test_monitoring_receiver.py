"""Monitoring and events: the receiver, its queue, and the settings of events."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any

import kombu
import pytest
from celery.app import defaults

from celeriac import Celeriac, EventReceiver, ImproperlyConfigured, MemoryBroker, Settings
from celeriac.model.events import Event
from celeriac.testing.rabbit import RabbitNode
from celeriac.wire.names import control_exchange, event_exchange
from tests.builders import body, task, worker
from tests.conformance.redis_spy import RedisSpy

TIMEOUT = 60.0


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def app(broker: MemoryBroker) -> Celeriac:
    return Celeriac(broker, environ={})


def publish(broker: MemoryBroker, event: Any) -> None:
    with broker.connect() as link:
        link.publish(event_exchange("celeryev", "memory"), body(event), routing_key="task.any")


def commands(app: Celeriac, broker: MemoryBroker) -> list[str]:
    """Return the control commands that were sent."""
    name = control_exchange(app.conf).name
    return [json.loads(message.body)["method"] for exchange, message in broker.published if exchange == name]


@contextmanager
def listening(app: Celeriac, handlers: Any = None) -> Iterator[EventReceiver]:
    """A receiver that is subscribed: an event published from now on arrives."""
    with app.events.Receiver(handlers=handlers) as receiver:
        with pytest.raises(TimeoutError):
            receiver.capture(timeout=0)
        yield receiver


# -- the queue, on RabbitMQ


@dataclass
class Queues:
    """The queues of receivers as RabbitMQ lists them, and the events that came."""

    #: The queues by name, with the arguments they were declared with.
    declared: dict[str, dict[str, Any]]
    received: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def queues(rabbit_server: RabbitNode) -> Queues:
    """Three receivers on RabbitMQ: by default, with settings of their own, and with a durable queue."""
    rabbit_server.add_vhost("conformance")
    url = rabbit_server.url_of("conformance")
    plain = Celeriac(url, environ={})
    other = Celeriac(url, environ={}, event_queue_ttl=7.0, event_queue_prefix="shop", event_exchange="shopev")
    durable = Celeriac(
        url, environ={}, event_queue_exclusive=False, event_queue_durable=True, event_queue_ttl=60.0
    )
    with durable.events.Receiver(node_id="kept") as receiver, pytest.raises(TimeoutError):
        receiver.capture(timeout=0)
    with durable.events.Dispatcher() as dispatcher:
        dispatcher.send("worker-online")
    received: list[str] = []
    with durable.events.Receiver(
        handlers={"*": lambda event: received.append(event.type)}, node_id="kept"
    ) as receiver:
        receiver.capture(limit=1, timeout=TIMEOUT)
    with listening(plain), listening(other):
        columns = ("name", "auto_delete", "exclusive", "arguments")
        listed = rabbit_server.list_queues("conformance", *columns)
        bound = rabbit_server.ctl("list_bindings", "--vhost", "conformance", "--formatter", "json")
        sources = {
            each["destination_name"]: each["source_name"] for each in json.loads(bound) if each["source_name"]
        }
    rabbit_server.delete_vhost("conformance")
    declared = {}
    for queue in listed:
        name, arguments = queue.pop("name"), queue.pop("arguments")
        declared[name] = queue | arguments | {"exchange": sources.get(name)}
    return Queues(declared, received)


def test_072_receiver_has_a_temporary_exclusive_queue(queues: Queues) -> None:
    """A receiver consumes from a temporary exclusive queue that is bound to the event exchange."""
    (queue,) = (
        queue
        for name, queue in queues.declared.items()
        if name.startswith("celeryev.") and name != "celeryev.kept"
    )

    about = {name: queue[name] for name in ("exclusive", "auto_delete", "exchange", "x-expires")}

    assert about == {"exclusive": True, "auto_delete": True, "exchange": "celeryev", "x-expires": 60_000}


def test_074_handler_of_the_type_comes_before_the_star(app: Celeriac, broker: MemoryBroker) -> None:
    """A handler of an event's type is called instead of the handler `*`."""
    failed: list[str] = []
    others: list[str] = []
    handlers = {
        "task-failed": lambda event: failed.append(event.type),
        "*": lambda event: others.append(event.type),
    }

    with listening(app, handlers) as receiver:
        publish(broker, [task("started"), task("failed"), worker("heartbeat")])
        receiver.capture(limit=3, timeout=TIMEOUT)

    assert (failed, others) == (["task-failed"], ["task-started", "worker-heartbeat"])


def test_075_capture_ends_at_the_limit(app: Celeriac, broker: MemoryBroker) -> None:
    """`capture(limit=2)` returns after two events."""
    seen: list[Event] = []

    with listening(app, {"*": seen.append}) as receiver:
        for number in range(3):
            publish(broker, task("started", f"t{number}"))
        receiver.capture(limit=2, timeout=TIMEOUT)

    assert [event["uuid"] for event in seen] == ["t0", "t1"]


def test_076_capture_raises_when_no_event_comes(app: Celeriac) -> None:
    """`capture(timeout=…)` raises TimeoutError, which is `socket.timeout`, if no event came for so long."""
    with app.events.Receiver() as receiver, pytest.raises(socket.timeout):
        receiver.capture(timeout=0.01)


@pytest.mark.parametrize("wakeup", [True, False])
def test_077_wakeup_asks_workers_for_a_heartbeat(wakeup: bool, app: Celeriac, broker: MemoryBroker) -> None:
    """`capture(wakeup=True)` asks all workers for a heartbeat."""
    with app.events.Receiver() as receiver, pytest.raises(TimeoutError):
        receiver.capture(timeout=0, wakeup=wakeup)

    assert commands(app, broker) == (["heartbeat"] if wakeup else [])


@pytest.mark.parametrize("wakeup", [True, False])
def test_078_capture_takes_positions_and_obeys_should_stop(
    wakeup: bool, app: Celeriac, broker: MemoryBroker
) -> None:
    """`capture(None, None, True)` captures until `should_stop` is set."""
    seen: list[str] = []

    def stop(event: Event) -> None:
        assert not seen, "capture() goes on after should_stop"
        seen.append(event.type)
        recv.should_stop = True
        publish(broker, task("succeeded"))

    with listening(app, {"*": stop}) as recv:
        publish(broker, task("started"))
        before = commands(app, broker)
        recv.capture(None, None, wakeup)

    assert seen == ["task-started"]
    assert commands(app, broker) == before + ["heartbeat"] * wakeup


def test_079_batches_are_taken_apart(app: Celeriac, broker: MemoryBroker) -> None:
    """A message with a list of events is handled as these events, in order."""
    seen: list[Event] = []

    with listening(app, {"*": seen.append}) as receiver:
        publish(broker, [task("started", f"t{number}") for number in range(4)])
        receiver.capture(limit=4, timeout=TIMEOUT)

    assert [event["uuid"] for event in seen] == ["t0", "t1", "t2", "t3"]


@pytest.mark.differs("Connections of dispatchers and receivers")
def test_080_a_kombu_connection_is_taken(redis_url: str) -> None:
    """A receiver takes a `kombu.Connection` and receives the events of its broker."""
    app = Celeriac(redis_url, environ={})
    seen: list[str] = []

    with (
        kombu.Connection(redis_url) as connection,
        app.events.Receiver(connection, {"*": lambda event: seen.append(event.type)}) as recv,
    ):
        with pytest.raises(TimeoutError):
            recv.capture(timeout=0)
        with app.events.Dispatcher() as dispatcher:
            dispatcher.send("worker-online")
        recv.capture(limit=1, timeout=TIMEOUT)

    assert seen == ["worker-online"]


# -- settings


def is_default(name: str) -> bool:
    """Whether our default of a setting is Celery's."""
    return bool(getattr(Settings(), name) == defaults.DEFAULTS[name])


@pytest.mark.parametrize("is_on", [None, True])
def test_099_workers_send_task_events_if_the_setting_says_so(
    is_on: bool | None, broker: MemoryBroker
) -> None:
    """The setting `worker_send_task_events` is off by default, and makes workers send task events."""
    app = Celeriac(broker, environ={}, worker_send_task_events=is_on)
    has_run = Flag()
    app.task(name="shop.pay")(has_run.set)

    with app.Worker("w1@lab", concurrency=1, without_mingle=True):
        app.send_task("shop.pay")
        assert has_run.wait(TIMEOUT)
    app.close()

    sent = {message.routing_key for exchange, message in broker.published if exchange == "celeryev"}
    assert is_default("worker_send_task_events")
    assert any(key.startswith("task") for key in sent) is bool(is_on)


@pytest.mark.parametrize("is_on", [None, True])
def test_100_clients_send_task_sent_if_the_setting_says_so(is_on: bool | None, broker: MemoryBroker) -> None:
    """The setting `task_send_sent_event` is off by default, and makes clients send `task-sent`."""
    app = Celeriac(broker, environ={}, task_send_sent_event=is_on)

    app.send_task("shop.pay")
    app.close()

    sent = [message.routing_key for exchange, message in broker.published if exchange == "celeryev"]
    assert is_default("task_send_sent_event")
    assert sent == (["task.sent"] if is_on else [])


def test_101_events_go_through_the_exchange_of_the_setting(redis_url: str, queues: Queues) -> None:
    """The setting `event_exchange` names the exchange of events, and is `celeryev` by default."""
    app = Celeriac(redis_url, environ={}, event_exchange="shopev")

    with RedisSpy(redis_url, "shopev") as spy, app.events.Dispatcher() as dispatcher:
        dispatcher.send("worker-online")
        spy.read_until(lambda: bool(spy.messages))

    assert is_default("event_exchange")
    assert {queue["exchange"] for name, queue in queues.declared.items() if name.startswith("shop.")} == {
        "shopev"
    }


def test_102_messages_live_as_long_as_the_setting_says(queues: Queues) -> None:
    """The setting `event_queue_ttl`, by default 5 seconds, is how long messages stay in a queue."""
    by_prefix = {
        name.partition(".")[0]: queue["x-message-ttl"]
        for name, queue in queues.declared.items()
        if name != "celeryev.kept"
    }

    assert is_default("event_queue_ttl")
    assert by_prefix == {"celeryev": 5000, "shop": 7000}


def test_103_names_of_queues_begin_with_the_setting(queues: Queues) -> None:
    """The setting `event_queue_prefix`, by default `celeryev`, begins the names of receivers' queues."""
    prefixes = {name.partition(".")[0] for name in queues.declared}

    assert is_default("event_queue_prefix")
    assert prefixes == {"celeryev", "shop"}


@pytest.mark.differs("Serializer of events")
@pytest.mark.parametrize("serializer", ["pickle", "yaml", "msgpack"])
def test_104_events_are_json(serializer: str) -> None:
    """The setting `event_serializer`, by default `json`, names the serializer of events."""
    with pytest.raises(ImproperlyConfigured, match="event_serializer"):
        Celeriac(MemoryBroker(), environ={}, event_serializer=serializer)

    assert is_default("event_serializer")


def test_105_a_queue_is_not_both_exclusive_and_durable() -> None:
    """A receiver's queue that is both exclusive and durable raises ImproperlyConfigured."""
    with pytest.raises(ImproperlyConfigured, match="event_queue_exclusive"):
        Celeriac(MemoryBroker(), environ={}, event_queue_exclusive=True, event_queue_durable=True)


def test_106_a_durable_queue_keeps_events_while_its_receiver_is_away(queues: Queues) -> None:
    """A durable queue that is not exclusive keeps events while its receiver is away."""
    received = queues.received

    assert received == ["worker-online"]
