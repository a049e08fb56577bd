"""A receiver outlives its broker: it comes back, says what it may have missed, and misses no more."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from time import monotonic, time

import pytest

from celeriac.app import Celeriac
from celeriac.model.events import Event
from celeriac.testing.brokers import RabbitServer, RedisServer
from tests.builders import task
from tests.cables import Cables
from tests.live import revived
from tests.watcher import PATIENCE, Watcher
from tests.wires import AmqpWire, Raw, RedisWire

Server = RedisServer | RabbitServer


#: The fixtures with a broker of each kind; each test leaves it running.
BROKERS = ("redis", "rabbit")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def rabbit(rabbit_to_hurt: RabbitServer) -> RabbitServer:
    return revived(rabbit_to_hurt)


def cut(server: Server) -> None:
    """Close the connections that receivers have, as an operator can."""
    if isinstance(server, RedisServer):
        assert server.client_kill("pubsub") > 0
    else:
        assert server.close_connections() > 0


def kill_and_start(server: Server) -> None:
    server.kill()
    server.start()


#: What happens to the broker; on return it is there again.
INTERRUPTIONS: dict[str, Callable[[Server], object]] = {
    "kill -9": kill_and_start,
    "clean restart": lambda server: server.restart(),
    "connections closed": cut,
}


@pytest.fixture(params=BROKERS)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def publish(server: Server, ids: list[str]) -> None:
    """Send events from elsewhere."""
    with RedisWire(server.url) if isinstance(server, RedisServer) else AmqpWire(server.url) as wire:
        for uuid in ids:
            wire.send_event(Raw(json.dumps(task("started", uuid, timestamp=time())).encode()))


@dataclass
class Aftermath:
    """A receiver whose broker was interrupted and is there again."""

    watcher: Watcher
    server: Server
    interrupted_at: float
    #: From when the broker takes connections until the receiver hears again.
    seconds_until_back: float

    @property
    def gaps(self) -> list[Event]:
        return self.watcher.of_type("cluster-gap")


@pytest.fixture(scope="module", params=list(product(BROKERS, INTERRUPTIONS)), ids=": ".join)
def aftermath(request: pytest.FixtureRequest) -> Iterator[Aftermath]:
    broker, interruption = request.param
    server: Server = request.getfixturevalue(broker)
    with Watcher(Celeriac(server.url, environ={})) as watcher:
        interrupted_at = time()
        INTERRUPTIONS[interruption](server)
        there_at = monotonic()
        watcher.wait_for(lambda: watcher.types["cluster-gap"] > 0)
        yield Aftermath(watcher, server, interrupted_at, monotonic() - there_at)


def test_a_receiver_comes_back_by_itself(
    aftermath: Aftermath, record_property: Callable[[str, object], None]
) -> None:
    seconds = aftermath.seconds_until_back

    # Measured, and held against no clock: see the report of the run.
    record_property("seconds_until_back", seconds)
    print(f"heard again {seconds:.3f} s after the broker was there")
    assert aftermath.watcher.is_capturing
    assert aftermath.watcher.receiver.losses == 1


def test_every_event_published_afterwards_is_received(aftermath: Aftermath) -> None:
    ids = [f"after-{number}" for number in range(500)]

    publish(aftermath.server, ids)

    aftermath.watcher.wait_for(lambda: ids[-1] in aftermath.watcher.state.tasks)
    assert [event["uuid"] for event in aftermath.watcher.of_type("task-started")] == ids


def test_an_interruption_is_told_of_once(aftermath: Aftermath) -> None:
    aftermath.watcher.wait_until_it_hears()

    gaps = aftermath.gaps

    assert len(gaps) == 1


def test_a_gap_holds_the_interruption_and_its_reason(aftermath: Aftermath) -> None:
    (gap,) = aftermath.gaps

    since, until, reason = gap["since"], gap["until"], gap["reason"]

    assert isinstance(since, float)
    assert isinstance(until, float)
    assert since <= aftermath.interrupted_at <= until
    assert isinstance(reason, str)
    assert reason
    assert "guest:guest" not in reason


def test_each_interruption_is_told_of(server: Server) -> None:
    with Watcher(Celeriac(server.url, environ={})) as watcher:
        for number in range(1, 4):
            cut(server)
            watcher.wait_for(lambda: watcher.types["cluster-gap"] >= number)  # noqa: B023
            watcher.wait_until_it_hears()

        gaps = watcher.of_type("cluster-gap")

        assert len(gaps) == 3
        assert [gap["since"] for gap in gaps[1:]] >= [gap["until"] for gap in gaps[:-1]]


def test_a_capture_that_begins_after_the_link_was_lost_makes_it_again(server: Server) -> None:
    with Watcher(Celeriac(server.url, environ={})) as watcher:
        # The receiver stays subscribed, and nobody looks after its link.
        watcher.stop()
        cut(server)

        events = watcher.receiver.itercapture(timeout=PATIENCE)

        assert next(events).type == "cluster-gap"


def test_stop_ends_a_capture_while_the_broker_is_away(
    server: Server, record_property: Callable[[str, object], None]
) -> None:
    with Cables() as cables:
        cable = cables.lay(server.port)
        with Watcher(Celeriac(cable.url_of(server.url, port=server.port), environ={})) as watcher:
            cable.cut()
            watcher.wait_for(lambda: watcher.receiver.losses == 1)
            asked_at = monotonic()

            watcher.receiver.stop()

            watcher.join(PATIENCE)
            seconds = monotonic() - asked_at
            record_property("seconds_until_stopped", seconds)
            print(f"stopped {seconds:.3f} s after it was asked to")
            assert not watcher.is_capturing
            assert watcher.failure is None
