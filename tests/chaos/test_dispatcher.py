"""A dispatcher loses nothing, whatever is done to its broker while it sends.

The law, by identity (host, process, clock): every event within the limit reaches the broker at
least once, and what reaches it twice is the same to the byte. The sender never notices.
``HYPOTHESIS_PROFILE=long`` tries each fault many times.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event as Flag
from threading import Thread
from threading import enumerate as enumerate_threads
from types import TracebackType
from typing import Any, Self

import pytest

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Queue
from celeriac.node import courier
from celeriac.node.clock import SharedClock
from celeriac.node.dispatcher import EventDispatcher
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.transport import amqp, redis, redis_link
from celeriac.transport.amqp import AmqpConnection
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect
from celeriac.transport.redis import RedisConnection
from tests.live import revived
from tests.observers import Observer, RabbitObserver, RedisObserver, Sightings
from tests.rig import couriers

Server = RedisServer | RabbitServer

#: Far more than needed, for a busy machine.
PATIENCE = 120.0
#: How often a fault happens in one run.
ROUNDS = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 2
#: Events that are sent before, during and after each fault.
SOME = 100


class Gate:
    """Stands between a dispatcher and its broker, and notes what the broker confirmed.

    It can be shut, until there is somebody who sees what a broker gets that is back.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.confirmed = Sightings()
        #: How often a link was to be made again.
        self.attempts = 0

    def around(self, kind: type[RedisConnection | AmqpConnection]) -> Callable[[Settings], Connection]:
        """Return links of a kind that pass this gate."""
        gate = self

        class Gated(kind):  # type: ignore[valid-type, misc]
            def __init__(self, settings: Settings) -> None:
                super().__init__(settings)
                self.on_the_way: list[bytes] = []

            def open(self) -> None:
                gate.attempts += 1
                if not gate.is_open:
                    raise ConnectionLost("not before somebody watches")
                super().open()

            def publish(self, exchange: Exchange, body: bytes, **options: Any) -> None:
                self.on_the_way.append(body)
                super().publish(exchange, body, **options)

            def unconfirmed(self, timeout: float = 0.0) -> int:
                left: int = super().unconfirmed(timeout)
                while len(self.on_the_way) > left:
                    gate.confirmed.add(self.on_the_way.pop(0))
                return left

        return Gated


class Run:
    """Two threads that send without a pause, one event at a time and in batches, and who sees them."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self.server = server
        self.gate = Gate()
        self.observer: Observer
        if isinstance(server, RedisServer):
            self.observer, link = RedisObserver(server), self.gate.around(RedisConnection)
        else:
            self.observer, link = RabbitObserver(server), self.gate.around(AmqpConnection)
        chosen = Settings(broker_url=server.url, **{"event_offline_limit": 100_000, **settings})
        self.clock = SharedClock()
        self.dispatcher = EventDispatcher(
            link(chosen), settings=chosen, clock=self.clock, hostname="celery@web1", buffer_group=["task"]
        )
        self.failures: list[BaseException] = []
        self._stopping = Flag()
        self._threads = [
            Thread(target=self._send, args=(type_,)) for type_ in ("worker-heartbeat", "task-sent")
        ]

    def __enter__(self) -> Self:
        self.observer.watch()
        for thread in self._threads:
            thread.start()
        self.send_some()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self.gate.is_open = True
        for thread in self._threads:
            thread.join()
        self.dispatcher.close()
        self.observer.stop()

    def send_some(self) -> None:
        """Wait until some more events were sent."""
        goal = self.clock.value + SOME
        assert wait_until(lambda: self.clock.value >= goal or bool(self.failures), patience=PATIENCE)

    def finish(self) -> set[int]:
        """Send no more, let everything arrive, and return the clocks that nobody saw."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert self.dispatcher.flush(PATIENCE) == 0
        self.observer.catch_up()
        return self.missing()

    @property
    def sent(self) -> set[int]:
        return set(range(1, self.clock.value + 1))

    def missing(self) -> set[int]:
        return self.sent - self.observer.sightings.clocks

    def _send(self, type_: str) -> None:
        try:
            while not self._stopping.wait(0.004):
                self.dispatcher.send(type_, uuid="8acc", text="x" * 100)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
            self.failures.append(error)


# -- the brokers


@pytest.fixture(scope="module")
def rabbit(rabbit_to_hurt: RabbitServer) -> RabbitServer:
    """One for all tests here: each leaves it running."""
    return revived(rabbit_to_hurt)


@pytest.fixture
def redis_server_of_our_own() -> Iterator[RedisServer]:
    options = {"enable-debug-command": "local", "crash-log-enabled": "no", "crash-memcheck-enabled": "no"}
    with RedisServer(options) as server:
        yield server


@pytest.fixture(params=["redis_server_of_our_own", "rabbit"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


# -- what is done to them


def cut(run: Run) -> None:
    """Close the links of the dispatcher, as an operator can, once it has any."""
    server = run.server
    close = (
        server.close_connections
        if isinstance(server, RabbitServer)
        else partial(server.client_kill, "normal")
    )
    assert wait_until(lambda: close() > 0, patience=PATIENCE)


def interrupt(run: Run, end: Callable[[], object]) -> None:
    """End the broker, let events wait, and start it again."""
    run.gate.is_open = False
    end()
    run.send_some()
    run.server.start()
    run.observer.watch()
    run.gate.is_open = True


def restart(run: Run) -> None:
    interrupt(run, run.server.stop)


def kill(run: Run) -> None:
    interrupt(run, run.server.kill)


def crash(run: Run) -> None:
    """Let the broker die in a way that takes nothing along which it has confirmed.

    RabbitMQ has it on the disk. Redis confirms a message and hands it on one after the other, and
    can be killed between the two; so it is told to die, which it does between two commands.
    """
    interrupt(run, run.server.kill if isinstance(run.server, RabbitServer) else partial(die, run.server))


def die(server: RedisServer) -> None:
    with socket.create_connection((LOOPBACK, server.port)) as link:
        link.sendall(b"DEBUG SEGFAULT\r\n")
        assert link.recv(100) == b""


FAULTS: dict[str, Callable[[Run], None]] = {"links cut": cut, "clean restart": restart, "crash": crash}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_event_reaches_the_broker_and_one_that_comes_twice_is_the_same(
    server: Server, fault: str
) -> None:
    with Run(server) as run:
        for _ in range(ROUNDS if fault == "links cut" else max(1, ROUNDS // 2)):
            FAULTS[fault](run)
            run.send_some()

        missing = run.finish()

        assert missing == set()
        assert run.gate.confirmed.clocks == run.sent
        assert run.observer.sightings.changed == []
        assert (run.failures, run.dispatcher.dropped) == ([], {})
    assert couriers() == []


def test_redis_killed_at_any_moment_takes_along_only_what_it_had_confirmed(own_redis: RedisServer) -> None:
    with Run(own_redis) as run:
        for _ in range(ROUNDS):
            kill(run)
            run.send_some()

        missing = run.finish()

        assert missing <= run.gate.confirmed.clocks == run.sent
        assert run.observer.sightings.changed == []
        assert (run.failures, run.dispatcher.dropped) == ([], {})


@pytest.mark.parametrize("limit", [50])
def test_no_more_is_missing_than_was_counted_as_dropped(own_redis: RedisServer, limit: int) -> None:
    with Run(own_redis, event_offline_limit=limit) as run:
        for _ in range(ROUNDS):
            restart(run)
            run.send_some()

        missing = run.finish()

        dropped = sum(run.dispatcher.dropped.values())
        assert missing & run.gate.confirmed.clocks == set()
        assert 0 < len(missing) <= dropped
        # What was on its way when the link was lost may have arrived, and then had to go as well.
        assert dropped - len(missing) <= limit * ROUNDS
        assert (run.failures, run.observer.sightings.changed) == ([], [])


def test_redis_observer_has_one_subscriber_after_a_restart(own_redis: RedisServer) -> None:
    others = set(enumerate_threads())
    observer = RedisObserver(own_redis)
    observer.watch()
    try:
        own_redis.restart()
        observer.watch()

        assert len(set(enumerate_threads()) - others) == 1
    finally:
        observer.stop()


# -- a broker that hangs


@pytest.fixture
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a broker up after half a second."""
    for module in (amqp, courier, redis, redis_link):
        monkeypatch.setattr(module, "_PATIENCE", 0.5)


@pytest.mark.usefixtures("is_impatient")
def test_a_broker_that_hangs_for_a_while_gets_every_event_in_the_end(server: Server) -> None:
    with Run(server, broker_connection_timeout=0.5) as run:
        server.signal(signal.SIGSTOP)
        try:
            attempts = run.gate.attempts
            assert wait_until(lambda: run.gate.attempts > attempts, patience=PATIENCE)
            run.send_some()
        finally:
            server.signal(signal.SIGCONT)
        run.send_some()

        missing = run.finish()

        assert missing == set()
        assert run.observer.sightings.changed == []
        assert (run.failures, run.dispatcher.dropped) == ([], {})


def test_a_link_to_a_rabbitmq_that_hangs_is_lost_and_can_be_closed(rabbit: RabbitServer) -> None:
    link = connect(Settings(broker_url=rabbit.url, broker_heartbeat=1))
    link.subscribe(Queue("reader", Exchange("news", "fanout")), print)

    rabbit.signal(signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionLost, match="heartbeats"):
            link.drain(PATIENCE)
        link.close()
    finally:
        rabbit.signal(signal.SIGCONT)
