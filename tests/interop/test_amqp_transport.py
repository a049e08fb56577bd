"""What is particular to RabbitMQ: frames in any pieces, confirmations, and queues as Celery declares them."""

import select
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from time import monotonic
from typing import Any

import amqp
import celery
import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Message
from celeriac.testing.rabbit import RabbitNode
from celeriac.transport.amqp import AmqpConnection
from celeriac.wire.names import event_exchange, event_queue, node_queue, reply_queue
from tests.contract import DEFAULT, Listener, body, kept_queue, publish, queue_of, some_exchange

PATIENCE = 60.0
MIB = 1024 * 1024
#: What RabbitMQ sends when it has nothing to say.
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
#: From nothing to several frames of the smallest size there may be, on both sides of each edge.
SIZES = [0, 1, 500, 4088, 4089, 9000, 2]


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def link(rabbit_server: RabbitNode, links: ExitStack) -> AmqpConnection:
    return links.enter_context(AmqpConnection(Settings(broker_url=rabbit_server.url)))


@pytest.fixture
def sender(rabbit_server: RabbitNode, links: ExitStack) -> AmqpConnection:
    return links.enter_context(AmqpConnection(Settings(broker_url=rabbit_server.url)))


def arrived(link: AmqpConnection) -> bool:
    """Wait until something of the broker lies in the socket."""
    return bool(select.select([link._kombu.connection.transport.sock], [], [], PATIENCE)[0])


# -- frames


class Capture:
    """What RabbitMQ sent over one link for some messages, byte by byte, and a link that reads it."""

    def __init__(self, url: str) -> None:
        settings = Settings(broker_url=url, broker_transport_options={"frame_max": 4096})
        self.link, sender = AmqpConnection(settings), AmqpConnection(settings)
        first, second = some_exchange("topic"), some_exchange("topic")
        for exchange in (first, second):
            self.link.subscribe(queue_of(exchange, "#"), print)
        for number, size in enumerate(SIZES):
            exchange = first if number % 3 else second
            headers = {"hostname": "celery@web1", "number": number % 2}
            sender.publish(exchange, b"x" * size, routing_key=f"task.{number}", headers=headers)
        assert sender.unconfirmed(PATIENCE) == 0
        sender.close()
        self.messages = self._read()

    def _read(self) -> list[bytes]:
        """Return the bytes of each message."""
        raw = b""
        deadline = monotonic() + PATIENCE
        while len(cut := deliveries(raw)) < len(SIZES):
            assert monotonic() < deadline
            assert arrived(self.link)
            raw += self.link._kombu.connection.transport.sock.recv(100_000)
        assert b"".join(cut) == raw
        return cut

    def take(self, pieces: list[bytes]) -> list[Message]:
        """Let the link take the pieces one after the other, and return the messages it made of them."""
        rest = b""
        for piece in pieces:
            rest = self.link._take(rest + piece)
        assert rest == b""
        messages = [message for _, message in self.link._waiting]
        self.link._waiting.clear()
        return messages


def deliveries(raw: bytes) -> list[bytes]:
    """Cut what was captured into messages, those alone that are complete."""
    frames, at = [], 0
    while at + 8 <= len(raw):
        (length,) = struct.unpack_from(">I", raw, at + 3)
        frames.append(raw[at : at + length + 8])
        at += length + 8
    starts = [number for number, frame in enumerate(frames) if frame[0] == 1]
    parts = [frames[start:end] for start, end in pairwise([*starts, len(frames)])]
    whole = []
    for frames_of_one in parts:
        size = struct.unpack_from(">Q", frames_of_one[1], 11)[0] if len(frames_of_one) > 1 else -1
        if sum(len(frame) - 8 for frame in frames_of_one[2:]) == size and at <= len(raw):
            whole.append(b"".join(frames_of_one))
    return whole


def is_as_sent(messages: list[Message]) -> bool:
    sent = [
        Message(
            b"x" * size,
            "application/json",
            "utf-8",
            {"hostname": "celery@web1", "number": number % 2},
            f"task.{number}",
        )
        for number, size in enumerate(SIZES)
    ]
    # Those of one queue come in order; between two queues there is none.
    return sorted(messages, key=lambda message: message.routing_key) == sent


@pytest.fixture(scope="module")
def capture(rabbit_server: RabbitNode) -> Iterator[Capture]:
    made = Capture(rabbit_server.url)
    yield made
    made.link.close()


class TestCapture:
    """One capture, read in many ways."""

    def test_a_capture_is_read_as_it_was_sent(self, capture: Capture) -> None:
        messages = capture.take(capture.messages)

        assert is_as_sent(messages)

    def test_a_capture_that_is_cut_at_any_byte_is_read_as_a_whole(self, capture: Capture) -> None:
        raw = HEARTBEAT.join(capture.messages)

        wrong = [at for at in range(len(raw)) if not is_as_sent(capture.take([raw[:at], raw[at:]]))]

        assert wrong == []

    @given(data=st.data())
    def test_a_capture_that_comes_in_any_pieces_is_read_as_a_whole(
        self, capture: Capture, data: st.DataObject
    ) -> None:
        heartbeats = data.draw(st.lists(st.booleans(), min_size=len(SIZES), max_size=len(SIZES)))
        raw = b"".join(
            (HEARTBEAT if has_heartbeat else b"") + message
            for has_heartbeat, message in zip(heartbeats, capture.messages, strict=True)
        )
        cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=30))

        messages = capture.take([raw[start:end] for start, end in pairwise([0, *sorted(cuts), len(raw)])])

        assert is_as_sent(messages)


# -- what a peer may spell badly


class Odd(amqp.Message):  # type: ignore[misc]
    """A message whose properties are any bytes."""

    def __init__(self, spelled: bytes, text: bytes) -> None:
        super().__init__(text)
        self.spelled = spelled

    def _serialize_properties(self) -> bytes:
        return self.spelled


def header(kind: bytes, value: bytes) -> bytes:
    """Return properties with nothing but one header."""
    table = b"\x01x" + kind + value
    return struct.pack(">HI", 0x2000, len(table)) + table


ODD = {
    "none at all": struct.pack(">H", 0),
    "a content type that is no text": struct.pack(">HB", 0x8000, 2) + b"\xff\xfe",
    "a moment beyond all years": header(b"T", struct.pack(">Q", 2**62)),
    "a header that is no text": header(b"S", struct.pack(">I", 2) + b"\xff\xfe"),
}


@pytest.fixture
def channel(rabbit_server: RabbitNode) -> Iterator[amqp.Channel]:
    """A channel of a peer that writes what it likes."""
    with amqp.Connection(f"127.0.0.1:{rabbit_server.port}", virtual_host=rabbit_server.vhost) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_message_with_odd_properties_is_handed_on_and_the_next_one_too(
    link: AmqpConnection, sender: AmqpConnection, channel: amqp.Channel, odd: bytes
) -> None:
    news = some_exchange("fanout")
    listener = Listener(link, queue_of(news))

    channel.basic_publish_confirm(Odd(odd, b'{"number": 1}'), news.name)
    publish(sender, news, 2)

    assert listener.drain(2) == [1, 2]
    assert listener.messages[0].content_type != "application/json"
    assert listener.messages[1] == Message(body(2))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_message_with_odd_properties_breaks_no_more_than_the_link(
    link: AmqpConnection, channel: amqp.Channel, odd: bytes
) -> None:
    news = some_exchange("fanout")
    listener = Listener(link, queue_of(news))
    channel.basic_publish_confirm(Odd(odd, b'{"number": 1}'), news.name)
    assert arrived(link)

    # Here it is py-amqp that reads, while it waits for the answer of the broker.
    try:
        link.subscribe(queue_of(news), print)
    except ConnectionLost:
        return

    assert listener.drain(1) == [1]


def test_an_empty_message_is_a_message(link: AmqpConnection, channel: amqp.Channel) -> None:
    news = some_exchange("fanout")
    listener = Listener(link, queue_of(news))

    channel.basic_publish_confirm(amqp.Message(b"", content_type="application/json"), news.name)

    while not listener.messages:
        link.drain(PATIENCE)
    assert listener.messages == [Message(b"", content_encoding="None")]


# -- what is lost, and how that is told


def test_a_message_that_the_broker_cannot_keep_is_a_lost_connection(
    link: AmqpConnection, channel: amqp.Channel
) -> None:
    news = some_exchange("fanout")
    link.publish(news, body(1))
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    name, _, _ = channel.queue_declare(exclusive=True, arguments=limits)
    channel.queue_bind(name, news.name)

    with pytest.raises(ConnectionLost, match="did not store message"):
        publish(link, news, 1, 2, 3)


def test_a_queue_that_is_deleted_is_a_lost_connection(link: AmqpConnection, channel: amqp.Channel) -> None:
    queue = queue_of(some_exchange("fanout"))._replace(is_exclusive=False)
    link.subscribe(queue, print)

    channel.queue_delete(queue.name)

    with pytest.raises(ConnectionLost):
        link.drain(PATIENCE)


def test_a_link_that_an_operator_closes_while_it_drains_is_lost(
    rabbit_server: RabbitNode, link: AmqpConnection
) -> None:
    link.subscribe(queue_of(some_exchange("fanout")), print)

    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(link.drain, PATIENCE)
        assert rabbit_server.close_connections() > 0

        with pytest.raises(ConnectionLost, match=f"lost the broker at amqp://.*:{rabbit_server.port}"):
            draining.result()


def test_a_link_that_an_operator_closed_publishes_nothing_in_vain(
    rabbit_server: RabbitNode, link: AmqpConnection
) -> None:
    news = some_exchange("fanout")
    link.publish(news, body(1))
    assert link.unconfirmed(PATIENCE) == 0

    rabbit_server.close_connections()

    assert arrived(link)
    with pytest.raises(ConnectionLost):
        publish(link, news, 2)


def test_a_link_that_is_busy_receiving_is_not_taken_for_dead(
    rabbit_server: RabbitNode, sender: AmqpConnection
) -> None:
    beat = 1
    news = some_exchange("fanout")
    with AmqpConnection(Settings(broker_url=rabbit_server.url, broker_heartbeat=beat)) as link:
        listener = Listener(link, queue_of(news))
        sent = 0

        # After two beats in which nothing is heard py-amqp gives a link up.
        end = monotonic() + 3.5 * beat
        while monotonic() < end:
            publish(sender, news, sent)
            sent += 1
            link.drain(0.05)

        assert listener.drain(sent) == list(range(sent))


# -- queues


def test_our_queues_are_declared_as_those_of_celery(
    rabbit_server: RabbitNode, amqp_url: str, links: ExitStack
) -> None:
    settings = Settings(broker_url=amqp_url)
    link = links.enter_context(AmqpConnection(settings))
    events = event_exchange("celeryev", "amqp")
    for queue in (
        event_queue(settings, events, unique="ours"),
        node_queue(settings, "ours@web1"),
        reply_queue(settings, "ours"),
    ):
        link.subscribe(queue, print)
    app = celery.Celery(broker=amqp_url, set_as_current=False)
    connection = links.enter_context(app.connection())
    channel = connection.channel()
    mailbox = app.control.mailbox
    replies = mailbox(channel).get_reply_queue()
    for theirs in (
        app.events.Receiver(channel, node_id="theirs").queue,
        mailbox.Node("theirs@web1", channel=channel).mailbox.get_queue("theirs@web1"),
        replies,
    ):
        queue = theirs(channel)
        queue.declare()
        # A queue without a consumer expires after ten seconds, and a busy rabbitmqctl may take longer.
        queue.consume(consumer_tag=queue.name)

    kinds = flags(rabbit_server, amqp_url.rpartition("/")[2])

    assert kinds["celeryev.ours"] == kinds["celeryev.theirs"]
    assert kinds["ours@web1.celery.pidbox"] == kinds["theirs@web1.celery.pidbox"]
    assert kinds["ours.reply.celery.pidbox"] == kinds[replies.name]
    assert kinds["celeryev.ours"]["arguments"] == {"x-expires": 60_000, "x-message-ttl": 5_000}
    assert kinds["celeryev.ours"]["exclusive"] is True


def flags(server: RabbitNode, vhost: str) -> dict[str, dict[str, Any]]:
    """Return how each queue was declared, as RabbitMQ tells it."""
    columns = ("name", "durable", "auto_delete", "exclusive", "arguments")
    return {queue.pop("name"): queue for queue in server.list_queues(vhost, *columns)}


def test_an_exchange_without_readers_takes_messages_and_confirms_them(sender: AmqpConnection) -> None:
    sender.publish(Exchange("nobody-listens", "topic"), body(1), routing_key="task.sent")

    unconfirmed = sender.unconfirmed(PATIENCE)

    assert unconfirmed == 0


# -- long messages


def test_a_long_message_is_put_together_of_its_pieces(link: AmqpConnection, sender: AmqpConnection) -> None:
    queue = queue_of(DEFAULT)._replace(max_bytes=64 * MIB)
    listener = Listener(link, queue)
    long = b"[" + b"1," * (10 * MIB) + b"1]"

    sender.publish(DEFAULT, long, routing_key=queue.name)
    publish(sender, DEFAULT, 2, routing_key=queue.name)
    while len(listener.messages) < 2:
        link.drain(PATIENCE)

    assert [message.body for message in listener.messages] == [long, body(2)]
    assert link._growing is None


def test_a_long_message_that_py_amqp_reads_on_is_whole(link: AmqpConnection, sender: AmqpConnection) -> None:
    queue = queue_of(DEFAULT)._replace(max_bytes=64 * MIB)
    listener = Listener(link, queue)
    long = b"[" + b"1," * (10 * MIB) + b"1]"
    sender.publish(DEFAULT, long, routing_key=queue.name)
    while link._growing is None:
        assert arrived(link)
        link._read(PATIENCE)

    # py-amqp reads it, on its way to the answer of the broker.
    link.subscribe(queue_of(some_exchange("fanout")), print)

    publish(sender, DEFAULT, 2, routing_key=queue.name)
    while len(listener.messages) < 2:
        link.drain(PATIENCE)
    assert [message.body for message in listener.messages] == [long, body(2)]


def test_a_message_that_is_too_long_for_its_queue_is_thrown_away_as_it_comes(
    link: AmqpConnection, sender: AmqpConnection
) -> None:
    queue = queue_of(DEFAULT)._replace(max_bytes=MIB)
    listener = Listener(link, queue)

    sender.publish(DEFAULT, b"x" * (5 * MIB), routing_key=queue.name, correlation_id="task-1")
    sender.publish(DEFAULT, b"x" * MIB, routing_key=queue.name)
    while len(listener.messages) < 2:
        link.drain(PATIENCE)

    first, second = listener.messages
    assert (first.body, first.fault, first.correlation_id) == (b"", "body-size", "task-1")
    assert (len(second.body), second.fault) == (MIB, "")


# -- acknowledging


def test_what_was_not_taken_when_a_link_breaks_comes_again(
    rabbit_server: RabbitNode, amqp_url: str, links: ExitStack
) -> None:
    link, sender = (links.enter_context(AmqpConnection(Settings(broker_url=amqp_url))) for _ in range(2))
    queue = kept_queue()
    listener = Listener(link, queue, acknowledges=True)
    publish(sender, DEFAULT, *range(20), routing_key=queue.name)
    listener.failures = [RuntimeError("on purpose")]
    with pytest.raises(RuntimeError, match="on purpose"):
        listener.drain(20)

    rabbit_server.close_connections()

    again = Listener(links.enter_context(link.clone()), queue, acknowledges=True)
    assert again.drain(20 - len(listener.numbers)) == list(range(20))
