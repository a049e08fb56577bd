"""What is particular to tasks at RabbitMQ: queues and headers as Celery has them, limits, and lost links."""

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import amqp
import celery
import kombu
import pytest

from celeriac.config import Settings
from celeriac.errors import AccessRefused, CallerError, ConnectionLost
from celeriac.model.message import Queue
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import find_program, wait_until
from celeriac.testing.rabbit import RabbitNode
from celeriac.transport.amqp import AmqpConnection
from celeriac.transport.base import Connection
from celeriac.wire.names import task_queue
from tests.contract import DEFAULT, PATIENCE, Connect, body, publish
from tests.contract_tasks import (
    HEADERS,
    Taker,
    left_in,
    number_of,
    send,
    some_task_queue,
    wake_until,
)
from tests.interop.test_amqp_transport import ODD, Odd, flags
from tests.live import new_vhost

ROOT = Path(__file__).parents[2]


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def connect(rabbit_server: RabbitNode, links: ExitStack) -> Connect:
    return lambda: links.enter_context(AmqpConnection(Settings(broker_url=rabbit_server.url)))


@pytest.fixture
def channel(rabbit_server: RabbitNode) -> Iterator[amqp.Channel]:
    """A channel of a peer that writes what it likes."""
    with amqp.Connection(f"{LOOPBACK}:{rabbit_server.port}", virtual_host=rabbit_server.vhost) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


# -- queues


def celery_app(url: str, **options: Any) -> celery.Celery:
    app = celery.Celery(broker=url, set_as_current=False)
    app.conf.update(options)
    return app


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with priorities": {"task_queue_max_priority": 10},
    "quorum": {"task_default_queue_type": "quorum"},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_our_queues_of_tasks_are_declared_as_those_of_celery(
    rabbit_server: RabbitNode, amqp_url: str, links: ExitStack, options: dict[str, Any]
) -> None:
    settings = Settings(broker_url=amqp_url, **options)
    link = links.enter_context(AmqpConnection(settings))
    link.declare(task_queue(settings, "ours"))
    app = celery_app(amqp_url, task_default_queue="theirs", **options)
    theirs = links.enter_context(app.connection())
    app.amqp.queues["theirs"](theirs.channel()).declare()

    kinds = flags(rabbit_server, amqp_url.rpartition("/")[2])
    # Neither takes the other's amiss.
    link.declare(task_queue(settings, "theirs"))
    app = celery_app(amqp_url, task_default_queue="ours", **options)
    app.amqp.queues["ours"](theirs.channel()).declare()

    assert kinds["ours"] == kinds["theirs"]
    assert kinds["ours"]["durable"] is True


@pytest.mark.parametrize("way", ["declare", "consume"])
def test_a_queue_that_was_declared_otherwise_is_told_with_the_fix_and_the_link_goes_on(
    connect: Connect, way: str
) -> None:
    queue = some_task_queue()
    connect().declare(queue)
    link = connect()
    other = queue._replace(max_priority=5)

    with pytest.raises(
        AccessRefused, match=f"queue '{queue.name}' with other arguments.*task_queue_max_priority"
    ):
        link.declare(other) if way == "declare" else link.consume(other, print, prefetch=1)

    taker = Taker(link, queue)
    send(connect(), queue, 1)
    assert taker.drain(1) == [1]


@pytest.fixture
def quorum(connect: Connect) -> Iterator[Queue]:
    queue = some_task_queue(type="quorum")
    yield queue
    connect().delete_queue(queue.name)


def test_a_quorum_queue_keeps_to_the_limit_it_began_with(connect: Connect, quorum: Queue) -> None:
    taker = Taker(connect(), quorum, prefetch=2)
    send(connect(), quorum, *range(6))
    taker.drain(2)

    taker.link.set_prefetch(5)

    assert taker.link.drain(0.1) == 0
    taker.accept()
    assert taker.drain(4) == [0, 1, 2, 3]
    assert taker.link.drain(0.1) == 0


def test_what_a_link_held_of_a_quorum_queue_comes_again(connect: Connect, quorum: Queue) -> None:
    taker = Taker(connect(), quorum)
    send(connect(), quorum, *range(6))
    taker.drain(6)
    taker.accept(0, 1, 4)
    taker.link.reject(taker.of(5), requeue=False)
    taker.link.stop_consuming(quorum.name)

    taker.link.close()

    assert left_in(connect, quorum, 2) == [2, 3]


def test_where_all_queues_are_quorum_queues_that_is_told_with_the_fix(
    rabbit_server: RabbitNode, links: ExitStack
) -> None:
    rabbit_server.ctl("add_vhost", "all-quorum", "--default-queue-type", "quorum")
    links.callback(rabbit_server.delete_vhost, "all-quorum")
    rabbit_server.set_permissions("all-quorum")
    settings = Settings(broker_url=rabbit_server.url_of("all-quorum"))
    link = links.enter_context(AmqpConnection(settings))
    queue = some_task_queue()

    with pytest.raises(AccessRefused, match="set task_default_queue_type to quorum"):
        link.consume(queue, print, prefetch=1)

    taker = Taker(links.enter_context(link.clone()), queue._replace(type="quorum"))
    send(taker.link, queue, 1)
    assert taker.drain(1) == [1]


def aside_of(queue: Queue, seconds: int) -> str:
    return f"celeriac.aside.{queue.name}.{seconds}"


def test_a_task_is_not_lost_if_its_queue_aside_was_deleted(connect: Connect) -> None:
    queue = some_task_queue()
    taker = Taker(connect(), queue)
    send(connect(), queue, 1, 2)
    taker.drain(2)
    taker.link.set_aside(taker.of(1), 600)
    wait_until(lambda: taker.link.drain(0.05) > 0 or taker.link.unconfirmed() == 0, patience=PATIENCE)
    connect().delete_queue(aside_of(queue, 600))

    taker.link.set_aside(taker.of(2), 600)
    with pytest.raises(ConnectionLost):
        drain_on(taker.link)
    taker.link.close()

    assert left_in(connect, queue, 1) == [2]


def test_where_the_queue_aside_is_refused_the_delivery_stays_ours(
    connect: Connect, channel: amqp.Channel
) -> None:
    queue = some_task_queue()
    channel.queue_declare(aside_of(queue, 600), durable=True, auto_delete=False)
    taker = Taker(connect(), queue)
    send(connect(), queue, 1)
    taker.drain(1)

    assert [taker.link.set_aside(taker.of(1), 600) for _ in range(2)] == [False, False]
    taker.accept()
    taker.link.close()
    assert left_in(connect, queue, 0) == []


def test_who_may_not_publish_to_queues_can_take_tasks_all_the_same(
    rabbit_server: RabbitNode, links: ExitStack
) -> None:
    with new_vhost(rabbit_server) as url:
        vhost = url.rpartition("/")[2]
        # As for one who consumes and sends events: no write access to the default exchange.
        rabbit_server.set_permissions(vhost, write="^(tasks-|celeriac).*")
        link = links.enter_context(AmqpConnection(Settings(broker_url=url)))
        queue = some_task_queue()
        taker = Taker(link, queue)
        publish(link, queue.exchange, 1, 2, routing_key=queue.routing_key)
        taker.drain(2)

        assert [link.set_aside(taker.of(number), 600) for number in (1, 2)] == [False, False]

        publish(link, queue.exchange, 3, routing_key=queue.routing_key)
        assert taker.drain(3) == [1, 2, 3]


def test_what_was_set_aside_of_a_quorum_queue_returns(connect: Connect, quorum: Queue) -> None:
    taker = Taker(connect(), quorum)
    send(connect(), quorum, 1)
    taker.drain(1)

    assert taker.link.set_aside(taker.of(1), 0.05)

    assert taker.drain(2) == [1, 1]
    connect().delete_queue(aside_of(quorum, 0))


@pytest.mark.parametrize(("prefetch", "expected"), [(0, 1), (-3, 1), (1_000_000, 20)])
def test_any_limit_is_made_one_that_rabbitmq_can_count(
    connect: Connect, prefetch: int, expected: int
) -> None:
    queue = some_task_queue()
    taker = Taker(connect(), queue, prefetch=prefetch)
    send(connect(), queue, *range(20))

    taker.drain(expected)

    assert taker.link.drain(0.05) == 0
    assert len(taker.deliveries) == expected


# -- what is told of a task


def test_what_has_a_higher_priority_comes_first(connect: Connect) -> None:
    queue = some_task_queue(max_priority=9)
    sender = connect()
    sender.declare(queue)
    for number, priority in enumerate((1, 9, 0, 5)):
        sender.publish(DEFAULT, body(number), routing_key=queue.name, priority=priority)
    assert sender.unconfirmed(PATIENCE) == 0

    taker = Taker(connect(), queue)
    taker.drain(4)

    assert [number_of(each) for each in taker.deliveries] == [1, 3, 0, 2]
    assert [each.message.priority for each in taker.deliveries] == [9, 5, 1, 0]


def test_what_nobody_takes_in_time_is_dropped(connect: Connect) -> None:
    queue = some_task_queue()
    sender = connect()
    sender.declare(queue)
    for number, expiration in enumerate((0.0, -5.0, 600.0, None)):
        sender.publish(DEFAULT, body(number), routing_key=queue.name, expiration=expiration)
    assert sender.unconfirmed(PATIENCE) == 0

    taker = Taker(connect(), queue)

    assert taker.drain(2) == [2, 3]


def test_kombu_reads_what_we_publish(rabbit_server: RabbitNode, connect: Connect) -> None:
    queue = some_task_queue()
    link = connect()
    link.declare(queue)

    link.publish(
        queue.exchange,
        body(1),
        routing_key=queue.name,
        headers=HEADERS,
        is_persistent=True,
        correlation_id="task-1",
        priority=4,
        expiration=60.0,
    )
    assert link.unconfirmed(PATIENCE) == 0

    with kombu.Connection(rabbit_server.url) as theirs:
        message = kombu.Queue(queue.name)(theirs.channel()).get(no_ack=True)
    assert message.payload == {"number": 1}
    assert message.headers == HEADERS
    assert (message.properties["priority"], message.properties["expiration"]) == (4, "60000")
    assert (message.properties["delivery_mode"], message.properties["correlation_id"]) == (2, "task-1")


def test_we_read_what_kombu_publishes(rabbit_server: RabbitNode, connect: Connect) -> None:
    taker = Taker(connect(), some_task_queue())

    with kombu.Connection(rabbit_server.url) as theirs:
        producer = theirs.Producer()
        producer.publish(
            {"number": 1}, exchange="", routing_key=taker.queue.name, headers=HEADERS, priority=4
        )

    taker.drain(1)
    (delivery,) = taker.deliveries
    assert delivery.message.headers == HEADERS
    assert delivery.message.priority == 4


@pytest.mark.parametrize("is_read_by_py_amqp", [True, False])
def test_we_read_the_tasks_of_a_celery_client(
    rabbit_server: RabbitNode, connect: Connect, is_read_by_py_amqp: bool
) -> None:
    taker = Taker(connect(), some_task_queue())

    with celery_app(rabbit_server.url) as app:
        sent = app.send_task(
            "tests.add",
            (1, 2),
            queue=kombu.Queue(taker.queue.name, taker.queue.name),
            countdown=600,
            priority=2,
        )
        if is_read_by_py_amqp:  # which does so while it waits for the answer of the broker
            sock = taker.link._kombu.connection.transport.sock  # type: ignore[attr-defined]
            assert sock.recv(1, socket.MSG_PEEK)
            taker.link.declare(some_task_queue())
    while not taker.deliveries:
        taker.link.drain(PATIENCE)

    message = taker.deliveries[0].message
    assert json.loads(message.body)[0] == [1, 2]
    assert message.headers["id"] == message.correlation_id == sent.id
    assert message.headers["timelimit"] == [None, None]
    assert message.headers["stamps"] == {}
    assert (message.routing_key, message.priority, message.is_redelivered) == (taker.queue.name, 2, False)
    taker.link.accept(taker.deliveries[0])
    taker.link.close()
    assert left_in(connect, taker.queue, 0) == []


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_task_with_odd_properties_is_handed_on_to_be_settled_and_the_next_one_too(
    connect: Connect, channel: amqp.Channel, odd: bytes
) -> None:
    taker = Taker(connect(), some_task_queue(), prefetch=1)

    channel.basic_publish_confirm(Odd(odd, b'{"number": 1}'), "", taker.queue.name)
    send(connect(), taker.queue, 2)
    taker.drain(1)
    taker.accept()

    assert taker.drain(2) == [1, 2]
    assert taker.deliveries[0].message.content_type != "application/json"


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"x": 2**70}},
        {"headers": {"x": "y" * 200_000}},
        {"priority": 300},
        {"correlation_id": "x" * 300},
    ],
)
def test_what_cannot_be_published_is_the_caller_s_to_fix_and_the_link_goes_on(
    connect: Connect, options: dict[str, Any]
) -> None:
    link, queue = connect(), some_task_queue()
    link.declare(queue)

    with pytest.raises(CallerError):
        link.publish(DEFAULT, body(1), routing_key=queue.name, **options)

    send(link, queue, 2)
    assert left_in(connect, queue, 1) == [2]


# -- lost links


def drain_on(link: Connection) -> None:
    """Drain until that fails."""
    while True:
        link.drain(PATIENCE)


def test_what_a_lost_link_held_comes_again_and_is_settled_by_the_new_one_alone(
    rabbit_server: RabbitNode, amqp_url: str, links: ExitStack
) -> None:
    settings = Settings(broker_url=amqp_url)

    def connect() -> AmqpConnection:
        return links.enter_context(AmqpConnection(settings))

    queue = some_task_queue()
    first = Taker(connect(), queue)
    send(connect(), queue, *range(5))
    first.drain(5)
    first.accept(0)
    first.link.drain(0)

    rabbit_server.close_connections()
    with pytest.raises(ConnectionLost):
        drain_on(first.link)
    second = Taker(links.enter_context(first.link.clone()), queue)
    second.drain(4)
    first.accept(1)
    for delivery in first.deliveries:
        second.link.accept(delivery)
    second.accept(2)
    second.link.close()

    assert second.numbers == [1, 2, 3, 4]
    assert {each.message.is_redelivered for each in second.deliveries} == {True}
    assert left_in(connect, queue, 3) == [1, 3, 4]


def test_what_rabbitmq_takes_amiss_unasked_is_a_lost_link(connect: Connect) -> None:
    taker = Taker(connect(), some_task_queue())
    consumer: Any = taker.link._tasks[taker.queue.name]  # type: ignore[attr-defined]

    # As if it had waited too long to be settled: RabbitMQ closes the channel with the same words.
    consumer._channel.basic_ack(99)

    with pytest.raises(ConnectionLost, match="raise consumer_timeout"):
        drain_on(taker.link)


def test_a_link_that_is_lost_while_it_settles_is_not_made_anew_behind_our_back(connect: Connect) -> None:
    taker = Taker(connect(), some_task_queue())
    send(connect(), taker.queue, 1)
    taker.drain(1)
    theirs: Any = taker.link._kombu  # type: ignore[attr-defined]
    before = theirs._connection

    before.transport.sock.shutdown(socket.SHUT_WR)
    taker.accept()

    # A new one would consume nothing; and while the broker is away it could not be made.
    with pytest.raises(ConnectionLost):
        drain_on(taker.link)
    assert theirs._connection is before


def test_a_refusal_that_ends_the_link_is_a_lost_link_from_then_on(connect: Connect) -> None:
    taker = Taker(connect(), some_task_queue())
    consumer: Any = taker.link._tasks[taker.queue.name]  # type: ignore[attr-defined]

    consumer._channel.basic_consume(taker.queue.name, consumer_tag=consumer.tag, nowait=True)

    with pytest.raises(AccessRefused, match="attempt to reuse consumer tag"):
        drain_on(taker.link)
    with pytest.raises(ConnectionLost, match="attempt to reuse consumer tag"):
        taker.link.drain(0.1)


def test_settling_is_written_in_few_pieces(connect: Connect) -> None:
    queue = some_task_queue()
    taker = Taker(connect(), queue)
    send(connect(), queue, *range(300))
    taker.drain(300)
    transport = taker.link._kombu.connection.transport  # type: ignore[attr-defined]
    written: list[bytes] = []
    write = transport._write

    def note(data: bytes) -> None:
        written.append(data)
        write(data)

    transport._write = note
    taker.accept(*range(0, 300, 2))
    taker.link.drain(0)

    assert len(written) == 1
    taker.link.close()
    assert left_in(connect, queue, 150) == list(range(1, 300, 2))


# -- TLS


class TlsDoor:
    """Speaks TLS, and passes what it hears on to a server that does not."""

    def __init__(self, folder: Path, port: int) -> None:
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        subprocess.run(  # noqa: S603 - our own command
            [
                str(find_program("openssl", package="openssl")),
                *("req", "-x509", "-days", "2", "-nodes", "-subj", "/CN=localhost"),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-addext", f"subjectAltName=IP:{LOOPBACK}"),
                *("-keyout", str(key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._context = context
        self._server_port = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends = ExitStack()
        self._threads = [Thread(target=self._welcome)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        self._ends.close()

    def _welcome(self) -> None:
        with suppress(OSError):
            while True:
                guest, _ = self._listener.accept()
                self._ends.callback(guest.close)
                server = socket.create_connection((LOOPBACK, self._server_port))
                self._ends.callback(server.close)
                self._threads.append(Thread(target=self._serve, args=(guest, server)))
                self._threads[-1].start()

    def _serve(self, guest: socket.socket, server: socket.socket) -> None:
        """Pass on both ways in one thread: what TLS has open may not be read and written in two at once."""
        with suppress(OSError), self._context.wrap_socket(guest, server_side=True) as opened, server:
            opened.settimeout(0.01)
            server.settimeout(0.01)
            while True:
                for source, target in ((opened, server), (server, opened)):
                    with suppress(TimeoutError):
                        data = source.recv(100_000)
                        if not data:
                            return
                        target.settimeout(PATIENCE)
                        target.sendall(data)
                        target.settimeout(0.01)


def test_tasks_come_and_whoever_waits_is_woken_over_tls(
    rabbit_server: RabbitNode, tmp_path: Path, links: ExitStack, connect: Connect
) -> None:
    door = TlsDoor(tmp_path, rabbit_server.port)
    links.callback(door.close)
    settings = Settings(
        broker_url=f"amqps://guest:guest@{LOOPBACK}:{door.port}/{rabbit_server.vhost}",
        broker_use_ssl={"ca_certs": str(door.certificate), "cert_reqs": ssl.CERT_REQUIRED},
    )
    taker = Taker(links.enter_context(AmqpConnection(settings)), some_task_queue())
    # Longer than what is read at a time: of what TLS opened something is left, and the socket is silent.
    long = b"[" + b"1," * 400_000 + b"1]"
    send(connect(), taker.queue, 1)
    sender = connect()
    sender.publish(DEFAULT, long, routing_key=taker.queue.name)
    assert sender.unconfirmed(PATIENCE) == 0
    assert wait_until(lambda: taker.link.drain(1.0) >= 0 and len(taker.deliveries) == 2, patience=PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(taker.link.drain, PATIENCE * 4)
        wake_until(taker.link, draining.done)

        assert draining.result() == 0
    assert taker.deliveries[1].message.body == long


# -- greenlets


@pytest.mark.parametrize("order", ["early", "late"])
@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_greenlets_run_while_one_of_them_waits_for_tasks(
    rabbit_server: RabbitNode, library: str, order: str
) -> None:
    done = subprocess.run(  # noqa: S603 - our own program
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.greenlet_tasks", library, order),
            rabbit_server.url,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["woken", "woken", "taken"]
