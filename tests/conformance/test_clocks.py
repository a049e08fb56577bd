"""Logical clocks that dispatchers stamp and receivers adopt, on real brokers and by Celery's receiver too."""

import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from threading import Event as Flag
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import kombu
import pytest
from celery import Celery
from celery.events.receiver import CLIENT_CLOCK_SKEW as CELERYS_CLIENT_CLOCK_SKEW
from celery.events.receiver import EventReceiver as CeleryReceiver
from celery.utils.time import utcoffset as celerys_utcoffset
from kombu.clocks import LamportClock as KombuClock

from celeriac import Celeriac, LamportClock, MemoryBroker, SharedClock
from celeriac.events.dispatcher import EventDispatcher
from celeriac.events.receiver import CLIENT_CLOCK_SKEW, EventReceiver
from celeriac.model.events import Event, Sent
from celeriac.model.message import Exchange
from celeriac.node.sender import SEND_PATIENCE
from celeriac.programs.process import wait_until
from celeriac.wire.names import task_queue
from tests.builders import AT, CLIENT, task, worker
from tests.cables import Cables
from tests.watcher import PATIENCE, Watcher

#: Sends a task over a URL, in the background, and returns a function that waits for the end of the call.
SendTask = Callable[[str], Callable[[], object]]
FAR = 2**40
#: A program that sends one task and ends.
ONE_SHOT = """
import sys
from celeriac import Celeriac
app = Celeriac(sys.argv[1], environ={}, task_send_sent_event=True)
print(app.send_task("shop.pay").id)
"""
#: A stream of events as a receiver gets them: some without a clock, and one of a client.
STREAM = [
    worker("heartbeat", clock=100),
    task("received", clock=50),
    {key: value for key, value in task("started").items() if key != "clock"},
    task("sent", "t2", hostname=CLIENT, clock=99_999),
    {key: value for key, value in worker("heartbeat").items() if key != "clock"},
    task("succeeded", clock=300),
]


class CelerysReceiver(CeleryReceiver):  # type: ignore[misc]  # Celery has no types
    """Celery's receiver on a broker; it keeps each body as it was on the wire."""

    def __init__(self, channel: Any = None) -> None:
        app = Celery("witness", broker="memory://", set_as_current=False)
        super().__init__(channel, handlers={}, app=app)
        self.bodies: list[dict[str, Any]] = []

    def event_from_message(self, body: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        if body["type"] != "watcher-probe":
            self.bodies.append(dict(body))
        return super().event_from_message(body, *arguments, **options)

    def has(self, type_: str) -> bool:
        return any(body["type"] == type_ for body in self.bodies)


@dataclass(frozen=True)
class Recording:
    """The events of our dispatchers, worker and client on a broker, as both receivers got them."""

    #: The bodies on the wire.
    bodies: list[dict[str, Any]]
    #: The events of our receiver.
    events: list[Event]
    #: The clocks of our receiver and of Celery's at the end.
    clock: int
    celerys_clock: int

    def of_host(self, hostname: str) -> list[dict[str, Any]]:
        return [body for body in self.bodies if body["hostname"] == hostname]

    def event(self, type_: str) -> Event:
        return next(event for event in self.events if event.type == type_)


def new_url(request: pytest.FixtureRequest, stack: ExitStack) -> str:
    """Return the URL of an empty Redis database or RabbitMQ virtual host."""
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        with server.client(63) as client:
            client.flushdb()
        return str(server.url_of(63))
    server, vhost = request.getfixturevalue("rabbit_server"), f"clocks-{secrets.token_hex(4)}"
    server.add_vhost(vhost)
    stack.callback(server.delete_vhost, vhost)
    return str(server.url_of(vhost))


@pytest.fixture(scope="module", params=["redis", "amqp"])
def recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Send events over a real broker, to our receiver and to Celery's."""
    with ExitStack() as stack:
        url = new_url(request, stack)
        ours = stack.enter_context(Watcher(Celeriac(url, environ={})))
        theirs = CelerysReceiver(stack.enter_context(kombu.Connection(url)))
        link, *_ = stack.enter_context(theirs.consumer_context(wakeup=False))
        send_events(url, link)
        send_tasks(url, ours)
        while not theirs.has("shop-closed"):
            link.drain_events(timeout=PATIENCE)
        ours.wait_for(lambda: ours.types["shop-closed"] == 1)
        yield Recording(theirs.bodies, list(ours.events), ours.app.clock.value, theirs.clock.value)


@pytest.fixture(params=["redis", "amqp"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        yield new_url(request, stack)


def send_events(url: str, link: Any) -> None:
    """Have dispatchers send events, once Celery's receiver gets them over its connection."""
    connection = kombu.Connection(url)  # as a program for Celery has it
    with EventDispatcher(connection, "probe@web") as probing:

        def is_received() -> bool:
            # The queue is bound on RabbitMQ at once, on Redis when the receiver first waits.
            probing.send("watcher-probe", number=0, of=0)
            try:
                link.drain_events(timeout=0.1)
            except TimeoutError:
                return False
            return True

        assert wait_until(is_received, patience=PATIENCE)
    with EventDispatcher(connection, "shop@web") as dispatcher:
        dispatcher.send("shop-opened", door="front")
        dispatcher.send("shop-sale", sum=12)
        dispatcher.publish("shop-sale", {"sum": 7})
        dispatcher.send("shop-music", blind=True)
        dispatcher.send("shop-sale", sum=3)
    with EventDispatcher(connection, "batching@web", buffer_group={"shop"}, buffer_limit=3) as dispatcher:
        for number in range(7):
            dispatcher.send("shop-sale", sum=number)
    for hostname, clock, type_ in (("ahead@web", 300, "shop-ahead"), ("far@web", FAR, "shop-far")):
        with EventDispatcher(connection, hostname, clock=SharedClock(clock - 1)) as dispatcher:
            dispatcher.send(type_)
    with EventDispatcher(connection, "client@web", clock=SharedClock(99_998)) as dispatcher:
        dispatcher.send("task-sent", uuid="of-a-client", name="shop.pay")


def send_tasks(url: str, ours: Watcher) -> None:
    """Have a client of ours send tasks and a worker of ours run them."""
    app = Celeriac(url, environ={}, task_send_sent_event=True)
    app.task(name="shop.pay")(lambda: None)
    for _ in range(4):
        app.send_task("shop.pay")
    with app.Worker("w1@web", concurrency=1, task_events=True, without_mingle=True, without_gossip=True):
        ours.wait_for(lambda: ours.types["task-succeeded"] == 4)
    with app.events.Dispatcher() as dispatcher:
        dispatcher.send("shop-closed")
    app.close()


def call_from_a_thread(url: str, **options: Any) -> Callable[[], object]:
    """Make the first call of a client that stays; return a function that waits for its end."""
    app = Celeriac(url, environ={}, task_send_sent_event=True)
    thread = Thread(target=app.send_task, args=("shop.pay",), kwargs=options)
    thread.start()

    def wait() -> None:
        thread.join()
        app.close()

    return wait


def call_by_an_exchange(url: str) -> Callable[[], object]:
    """Make the first call of a client to an exchange that is bound to the queue of the worker."""
    app = Celeriac(url, environ={})
    queue = task_queue(app.conf, "celery")
    with app.connection() as connection:
        connection.declare(
            queue._replace(exchange=Exchange("shop", "direct", is_durable=True), routing_key="pay")
        )
    return call_from_a_thread(url, exchange="shop", routing_key="pay")


def call_from_a_script(url: str) -> Callable[[], object]:
    """Make the call of a program that sends one task and ends; return a function that waits for its end."""
    program = subprocess.Popen([sys.executable, "-c", ONE_SHOT, url])  # noqa: S603 - our own program
    return program.wait


def stamped(receiver: Any, bodies: Sequence[Mapping[str, Any]]) -> list[tuple[object, int]]:
    """Return, for each body, the clock of the event that a receiver makes of it, and its own clock then."""
    stamps = []
    for body in bodies:
        _, event = receiver.event_from_message(dict(body))
        stamps.append((event["clock"], receiver.clock.value))
    return stamps


def receiver_at(clock: int) -> EventReceiver:
    return EventReceiver(MemoryBroker().connect(), clock=LamportClock(clock))


# -- dispatchers


def test_001_dispatcher_sends_events_to_the_broker(recording: Recording) -> None:
    """`EventDispatcher` sends events to the broker."""
    types = [body["type"] for body in recording.of_host("shop@web")]

    assert types == ["shop-opened", "shop-sale", "shop-sale", "shop-music", "shop-sale"]


def test_002_dispatchers_and_receivers_have_a_clock() -> None:
    """Each dispatcher and each receiver has a logical clock; those of one app share it."""
    broker = MemoryBroker()
    app = Celeriac(broker, environ={})

    alone = [EventDispatcher(broker.connect()).clock, EventReceiver(broker.connect()).clock]
    of_app = {app.events.Dispatcher().clock, app.events.Receiver().clock}

    assert all(isinstance(clock, LamportClock) for clock in alone)
    assert alone[0] is not alone[1]
    assert of_app == {app.clock}


def test_003_publish_increments_the_clock(recording: Recording) -> None:
    """`publish` and `send` increment the clock and attach the new value to the event."""
    clocks = [body.get("clock") for body in recording.of_host("shop@web")]

    assert clocks == [1, 2, 3, None, 4]


def test_004_clocks_of_one_dispatcher_rise_strictly(recording: Recording) -> None:
    """The clocks of one dispatcher's events rise strictly, also within batches."""
    clocks = [body["clock"] for body in recording.of_host("batching@web")]

    assert len(clocks) == 7
    assert all(one < other for one, other in pairwise(clocks))


def test_005_blind_event_has_no_clock(recording: Recording) -> None:
    """`blind=True` sends an event without a clock, and the dispatcher's clock does not move."""
    events = recording.of_host("shop@web")

    blind = events[3]

    assert "clock" not in blind
    assert events[4]["clock"] == events[2]["clock"] + 1


def test_006_event_has_the_fields_of_its_sender(recording: Recording) -> None:
    """An event has `hostname`, `utcoffset`, `pid` and `clock`, and its own fields."""
    event = recording.of_host("shop@web")[0]

    timestamp = event.pop("timestamp")

    assert event == {
        "type": "shop-opened", "hostname": "shop@web", "utcoffset": celerys_utcoffset(), "pid": os.getpid(),
        "clock": 1, "door": "front",
    }  # fmt: skip
    assert isinstance(timestamp, float)


@pytest.mark.differs("Producers of other connections")
def test_007_publish_takes_no_producer() -> None:
    """`publish(type, fields, producer, blind, Event)` takes a producer and the class of the event."""
    broker = MemoryBroker()
    dispatcher = EventDispatcher(broker.connect())

    dispatcher.publish("shop-sale", {"sum": 12}, blind=True)

    with pytest.raises(TypeError):
        dispatcher.publish("shop-sale", {"sum": 12}, object())  # type: ignore[call-arg,arg-type]
    assert [message.routing_key for _, message in broker.published] == ["shop.sale"]


# -- receivers


def test_008_receiver_adjusts_its_clock(recording: Recording) -> None:
    """A receiver adjusts its clock to the clock of each event."""
    bodies = [body for body in STREAM if "clock" in body]

    clocks = [clock for _, clock in stamped(receiver_at(0), bodies)]

    assert clocks == [clock for _, clock in stamped(CelerysReceiver(), bodies)]
    assert clocks[-1] == 301
    assert recording.clock > 300


def test_009_receiver_stamps_events_without_a_clock() -> None:
    """An event without a clock gets the receiver's clock, which moves forward."""
    ours, theirs = receiver_at(0), CelerysReceiver()

    stamps = stamped(ours, STREAM)

    assert stamps == stamped(theirs, STREAM)
    assert stamps[2] == (103, 103)


def test_010_adjust_takes_the_higher_clock_and_adds_one() -> None:
    """`adjust` sets the clock to `max(local, incoming) + 1`."""
    ours: list[LamportClock] = [LamportClock(), SharedClock()]
    theirs = KombuClock()
    steps = random.Random(7)

    for _ in range(1000):
        incoming = theirs.value + steps.randint(-5, 5)
        moved = [clock.adjust(incoming) if incoming > 0 else clock.forward() for clock in ours]
        expected = theirs.adjust(incoming) if incoming > 0 else theirs.forward()
        assert moved == [expected, expected]


@pytest.mark.differs("Clocks that are far ahead")
def test_011_receiver_does_not_adopt_a_clock_far_ahead(recording: Recording) -> None:
    """A receiver adopts the clock of any peer."""
    clocks = recording.clock, recording.celerys_clock

    assert recording.event("shop-far").clock == FAR
    assert clocks[0] < FAR < clocks[1]


def test_012_cause_has_a_lower_clock_than_its_effect(recording: Recording) -> None:
    """If one event happens before another, its clock is lower."""
    courses: dict[str, list[dict[str, Any]]] = {}

    for event in recording.of_host("w1@web"):
        if "uuid" in event:
            courses.setdefault(event["uuid"], []).append(event)

    assert len(courses) == 4
    for course in courses.values():
        assert [event["type"] for event in course] == ["task-received", "task-started", "task-succeeded"]
        assert all(one["clock"] < other["clock"] for one, other in pairwise(course))


def test_013_receiver_has_celerys_methods() -> None:
    """A receiver has `event_from_message(body, localize=True)`, `adjust_clock` and `forward_clock`."""
    receiver = receiver_at(5)

    type_, event = receiver.event_from_message(task("started", clock=41), localize=True)

    assert (type_, event["type"], event["uuid"]) == ("task-started", "task-started", "t1")
    assert event.local_received is not None
    assert receiver.clock.value == 42
    assert receiver.adjust_clock(50) == receiver.clock.value == 51
    assert receiver.forward_clock() == receiver.clock.value == 52


@pytest.mark.differs("Time zones of timestamps")
@pytest.mark.parametrize(("zone", "hours"), [("UTC0", 0), ("IST-5:30", -5.5)])
def test_014_timestamps_are_localized_when_asked(
    zone: str, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `localize` the timestamp of an event moves to the receiver's time zone."""
    body = worker("heartbeat", utcoffset=-2)

    with ExitStack() as stack:
        stack.callback(time.tzset)  # once the variable is back
        stack.enter_context(monkeypatch.context()).setenv("TZ", zone)
        time.tzset()
        theirs = CelerysReceiver().event_from_message(dict(body))[1]["timestamp"]
        moved = receiver_at(0).event_from_message(body, localize=True)[1].timestamp
        kept = receiver_at(0).event_from_message(body)[1].timestamp

    assert moved == theirs == AT + (hours + 2) * 3600
    assert kept == AT


# -- clients


def test_027_client_clock_skew_is_minus_one() -> None:
    """`CLIENT_CLOCK_SKEW` is -1."""
    skews = CLIENT_CLOCK_SKEW, CELERYS_CLIENT_CLOCK_SKEW

    assert skews == (-1, -1)


def test_028_task_sent_gets_the_receivers_clock_minus_one(recording: Recording) -> None:
    """A `task-sent` event gets the receiver's clock - 1; the clock of the client is ignored."""
    bodies = [task("sent", hostname=CLIENT, clock=99_999), task("received", clock=200)]

    stamps = stamped(receiver_at(103), bodies)

    theirs = CelerysReceiver()
    theirs.clock.value = 103
    assert stamps == stamped(theirs, bodies)
    assert stamps[0] == (102, 104)
    event = recording.event("task-sent")
    assert isinstance(event, Sent)
    assert event.client_clock == 99_999
    assert 300 <= event.clock < 99_999


@pytest.mark.parametrize("send", [call_from_a_thread, call_by_an_exchange, call_from_a_script])
def test_029_task_sent_comes_before_the_events_of_workers(url: str, send: SendTask) -> None:
    """A `task-sent` event is on its way before the broker confirms the task, so that it appears first."""
    app = Celeriac(url, environ={})
    app.task(name="shop.pay")(lambda: None)
    with Watcher(Celeriac(url, environ={})) as ours, Cables() as cables, ExitStack() as stack:
        port = urlsplit(url).port or 0
        cable = cables.lay(port)
        # From the task on: a confirmation does not arrive, and no connection can be made.
        cable.hold_answers_after(b"shop.pay")
        wait = send(cable.url_of(url, port=port))
        stack.callback(wait)
        stack.callback(cable.mend)

        assert wait_until(lambda: ours.types["task-sent"] == 1, patience=3 * SEND_PATIENCE)
        cable.mend()
        wait()
        with app.Worker("w1@web", concurrency=1, task_events=True, without_mingle=True, without_gossip=True):
            ours.wait_for(lambda: ours.types["task-succeeded"] == 1)
    app.close()

    types = [event.type for event in ours.events if event.type.startswith("task-")]
    assert types == ["task-sent", "task-received", "task-started", "task-succeeded"]


def test_task_sent_of_a_program_that_ends_at_once_arrives(url: str) -> None:
    """The worker runs already, and its task ends only after the event of the program was received."""
    app, is_sent = Celeriac(url, environ={}), Flag()
    app.task(name="shop.pay")(lambda: is_sent.wait(PATIENCE))
    with (
        Watcher(Celeriac(url, environ={})) as ours,
        app.Worker("w1@web", concurrency=1, task_events=True, without_mingle=True, without_gossip=True),
        ExitStack() as stack,
    ):
        stack.callback(is_sent.set)

        program = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", ONE_SHOT, url],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        ours.wait_for(lambda: ours.types["task-sent"] == 1)
        is_sent.set()
        ours.wait_for(lambda: ours.types["task-succeeded"] == 1)
    app.close()

    types = [event.type for event in ours.events if event.get("uuid") == program.stdout.strip()]
    assert (program.returncode, program.stderr) == (0, "")
    assert types.index("task-sent") < types.index("task-succeeded")
    assert sorted(types) == ["task-received", "task-sent", "task-started", "task-succeeded"]
