"""Monitoring and events: the dispatcher, and the events of workers and clients."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from celery.events import state as stock

from celeriac import Celeriac, ConnectionLost, Reject
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from tests.cables import Cables
from tests.conformance.redis_spy import RedisSpy
from tests.live import empty_database

TIMEOUT = 60.0
NODE, WORKER, CLIENT = "w1@example", "w2@example", "gen1@example"


@dataclass
class Dispatched:
    """The messages of one dispatcher, and its own attributes meanwhile."""

    #: Routing keys and bodies, in order.
    messages: list[tuple[str, Any]]
    notes: list[str] = field(default_factory=list)

    def bodies(self, key: str) -> list[Any]:
        return [body for routing_key, body in self.messages if routing_key == key]


@pytest.fixture(scope="module")
def dispatched(redis_server: RedisServer) -> Dispatched:
    """Everything that a dispatcher can be asked to do, on Redis."""
    url = empty_database(redis_server)
    app = Celeriac(url, environ={})
    notes: list[str] = []
    with RedisSpy(url) as spy:
        with app.events.Dispatcher(hostname=NODE, enabled=False) as dispatcher:
            dispatcher.on_enabled.add(lambda: notes.append("enabled"))
            dispatcher.on_disabled.add(lambda: notes.append("disabled"))
            dispatcher.send("worker-lost-before", number=0)
            dispatcher.enable()
            dispatcher.send("worker-online", custom_field="value")
            dispatcher.disable()
            dispatcher.send("worker-lost-after", number=0)
        with app.events.Dispatcher(hostname=NODE, groups=["worker"]) as dispatcher:
            dispatcher.send("task-started", uuid="t1")
            dispatcher.send("worker-heartbeat", freq=2.0)
            dispatcher.publish("task-progress", {"uuid": "t1"})
        with app.events.Dispatcher(hostname=NODE, buffer_group={"task"}, buffer_limit=3) as dispatcher:
            for number in range(7):
                dispatcher.send("task-started", uuid=f"b{number}")
        notes.append(f"left over: {dispatcher.buffered}")
        spy.read_until(lambda: "b6" in {event.get("uuid") for event in spy.events})
    return Dispatched(spy.messages, notes)


def test_062_send_takes_any_fields(dispatched: Dispatched) -> None:
    """`send` takes the type of an event and any fields of its own."""
    (event,) = dispatched.bodies("worker.online")

    about = {name: event[name] for name in ("type", "hostname", "custom_field")}

    assert about == {"type": "worker-online", "hostname": NODE, "custom_field": "value"}


@dataclass
class Outage:
    """The work of two dispatchers while their connections to Redis were cut."""

    waiting: int
    error: Exception | None
    numbers: list[int]


@pytest.fixture(scope="module")
def outage(redis_server: RedisServer) -> Outage:
    url = empty_database(redis_server)
    with Cables() as cables, RedisSpy(url) as spy:
        cable = cables.lay(redis_server.port)
        app = Celeriac(
            cable.url_of(url, port=redis_server.port),
            environ={},
            broker_retry_base=0.01,
            broker_retry_cap=0.05,
        )
        keeping = app.events.Dispatcher(hostname=NODE)
        raising = app.events.Dispatcher(hostname=NODE, buffer_while_offline=False)
        for dispatcher in (keeping, raising):
            dispatcher.send("worker-online")
            assert dispatcher.flush(TIMEOUT) == 0
        cable.cut()
        assert wait_until(lambda: cable.ended_links > 1, patience=TIMEOUT)
        for number in range(5):
            keeping.send("task-progress", uuid="t1", number=number)
        waiting, error = keeping.buffered, None
        try:
            raising.send("task-progress", uuid="t2")
        except ConnectionLost as lost:
            error = lost
        cable.mend()
        spy.read_until(lambda: 4 in [event.get("number") for event in spy.events])
        keeping.close()
        raising.close()
    return Outage(waiting, error, [event["number"] for event in spy.events if "number" in event])


def test_063_events_wait_while_the_connection_is_down(outage: Outage) -> None:
    """With `buffer_while_offline` events wait while the connection is down, and are sent in order later."""
    numbers = outage.numbers

    assert outage.waiting == 5
    assert numbers == [0, 1, 2, 3, 4]


def test_064_without_a_buffer_send_raises(outage: Outage) -> None:
    """With `buffer_while_offline=False` `send` raises while the connection is down."""
    error = outage.error

    assert isinstance(error, ConnectionLost)


def test_065_events_of_a_group_are_sent_together(dispatched: Dispatched) -> None:
    """Events of a `buffer_group` are sent as one message for each `buffer_limit` of them."""
    batches = dispatched.bodies("task.multi")

    uuids = [[event["uuid"] for event in batch] for batch in batches]

    assert uuids == [["b0", "b1", "b2"], ["b3", "b4", "b5"], ["b6"]]


def test_066_only_events_of_the_groups_are_sent(dispatched: Dispatched) -> None:
    """With `groups` `send` leaves out the events of all other groups."""
    keys = [key for key, _ in dispatched.messages]

    assert "worker.heartbeat" in keys
    assert "task.started" not in keys
    assert "task.progress" in keys  # by publish, which Celery filters neither


def test_067_a_dispatcher_is_enabled_and_disabled(dispatched: Dispatched) -> None:
    """A dispatcher sends only while it is enabled, and calls `on_enabled` and `on_disabled`."""
    sent = [key for key, _ in dispatched.messages if key.startswith("worker.lost")]

    assert sent == []
    assert dispatched.notes[:2] == ["enabled", "disabled"]


def test_068_every_event_has_a_clock(dispatched: Dispatched) -> None:
    """Every event carries a logical clock, which rises from one event to the next."""
    bodies = [body for _, body in dispatched.messages]

    clocks = [event["clock"] for body in bodies for event in (body if isinstance(body, list) else [body])]

    assert clocks == sorted(set(clocks))
    assert len(clocks) == 10


def test_069_leaving_the_context_sends_what_is_buffered(dispatched: Dispatched) -> None:
    """Leaving the context of a dispatcher sends what is buffered and closes it."""
    last = dispatched.bodies("task.multi")[-1]

    assert [event["uuid"] for event in last] == ["b6"]
    assert dispatched.notes[-1] == "left over: 0"


# -- workers and clients


@pytest.fixture(scope="module")
def published(redis_server: RedisServer) -> list[dict[str, Any]]:
    """The events of a worker and of its client, on Redis."""
    url = empty_database(redis_server)
    app = Celeriac(url, environ={}, hostname=CLIENT, task_send_sent_event=True, worker_heartbeat_interval=0.5)

    @app.task(name="shop.end", bind=True, max_retries=1, acks_late=True)
    def end(self: Any, outcome: str) -> str:
        if outcome == "failed":
            raise ValueError(outcome)
        if outcome == "rejected":
            raise Reject(outcome)
        if outcome == "retried" and self.request.retries == 0:
            raise self.retry(countdown=0)
        return outcome

    kinds = {f"task-{kind}" for kind in ("succeeded", "failed", "retried", "rejected", "revoked")}
    with RedisSpy(url) as spy:
        with app.Worker(WORKER, concurrency=1, task_events=True, without_mingle=True):
            for outcome in ("succeeded", "failed", "retried", "rejected"):
                app.send_task("shop.end", (outcome,), task_id=outcome)
            app.send_task("shop.end", ("late",), task_id="revoked", expires=-1)
            spy.read_until(lambda: kinds | {"worker-heartbeat"} <= {event["type"] for event in spy.events})
        spy.read_until(lambda: "worker-offline" in {event["type"] for event in spy.events})
        app.close()
    return spy.events


def test_070_workers_send_heartbeats_and_task_events(published: list[dict[str, Any]]) -> None:
    """Workers send events for their start, heartbeats and end, and for each step of a task."""
    state = stock.State()
    for event in published:
        state.event(event | {"local_received": event["timestamp"]})

    types = {event["type"] for event in published if event["hostname"] == WORKER}
    states = {uuid: task.state for uuid, task in state.tasks.items()}

    steps = {
        f"task-{kind}"
        for kind in ("received", "started", "succeeded", "failed", "retried", "rejected", "revoked")
    }
    assert types == steps | {"worker-online", "worker-heartbeat", "worker-offline"}
    assert {states[uuid] for uuid in ("succeeded", "failed", "revoked")} == {"SUCCESS", "FAILURE", "REVOKED"}
    assert {event["freq"] for event in published if event["type"] == "worker-heartbeat"} == {0.5}


def test_071_clients_send_an_event_for_each_task(published: list[dict[str, Any]]) -> None:
    """Clients send `task-sent` with the queue, the exchange and the routing key."""
    sent = {event["uuid"]: event for event in published if event["type"] == "task-sent"}

    addressed = {(event["queue"], event["exchange"], event["routing_key"]) for event in sent.values()}

    assert sent.keys() == {"succeeded", "failed", "retried", "rejected", "revoked"}
    assert addressed == {("celery", "", "celery")}
    assert sent["failed"]["hostname"] == CLIENT
