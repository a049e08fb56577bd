"""What RabbitMQ is told of deliveries that are settled by hand: all that was settled, and nothing else."""

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac.model.message import Delivery, Exchange, Message, Queue
from celeriac.transport.amqp_tasks import AmqpTaskConsumer

CHANNEL = 7
QUEUE = Queue("tasks", Exchange("tasks", "direct"), "tasks")
ACK, REJECT = (60, 80), (60, 90)


class Channel:
    """Notes what it was asked for."""

    channel_id = CHANNEL

    def __init__(self) -> None:
        self.limits: list[tuple[int, int, bool]] = []
        self.cancelled: list[str] = []

    def basic_qos(self, size: int, count: int, is_global: bool) -> None:
        self.limits.append((size, count, is_global))

    def basic_cancel(self, tag: str) -> None:
        self.cancelled.append(tag)


class Bound:
    """A queue that notes who began to consume."""

    def __init__(self) -> None:
        self.tags: list[str] = []

    def consume(self, tag: str, receive: object, *, no_ack: bool) -> None:
        assert callable(receive)
        assert not no_ack
        self.tags.append(tag)


class Broker:
    """Takes what it is told as RabbitMQ does: a number that it does not have out is an error."""

    def __init__(self) -> None:
        self.out: list[int] = []
        self.accepted: list[int] = []
        self.rejected: list[tuple[int, bool]] = []

    def read(self, frames: bytes) -> int:
        """Return how many frames there were."""
        assert len(frames) % 21 == 0
        for at in range(0, len(frames), 21):
            kind, channel, size, group, method, number, bit, end = struct.unpack_from(">BHIHHQBB", frames, at)
            assert (kind, channel, size, end) == (1, CHANNEL, 13, 0xCE)
            assert number in self.out
            if (group, method) == REJECT:
                self.out.remove(number)
                self.rejected.append((number, bool(bit)))
                continue
            assert (group, method) == ACK
            settled = [each for each in self.out if each == number or (bit and each < number)]
            self.accepted += settled
            self.out = [each for each in self.out if each not in settled]
        return len(frames) // 21


def new_consumer(channel: Any = None, bound: Any = None, queue: Queue = QUEUE) -> AmqpTaskConsumer:
    return AmqpTaskConsumer(channel or Channel(), bound or Bound(), queue, print, max_bytes=100)


def delivered(consumer: AmqpTaskConsumer, broker: Broker, count: int) -> None:
    for number in range(1, count + 1):
        consumer.receiver(number)
        broker.out.append(number)


def test_what_is_accepted_up_to_the_first_that_is_not_is_told_in_one_word() -> None:
    consumer, broker = new_consumer(), Broker()
    delivered(consumer, broker, 6)

    for number in (3, 1, 2, 5):
        consumer.accept(number)
    frames = broker.read(consumer.settlements())

    assert (frames, broker.accepted) == (2, [1, 2, 3, 5])
    assert consumer.settlements() == b""


def test_what_is_rejected_is_not_accepted_by_what_came_after_it() -> None:
    consumer, broker = new_consumer(), Broker()
    delivered(consumer, broker, 4)

    consumer.accept(4)
    consumer.reject(2, requeue=True)
    consumer.accept(3)
    consumer.reject(1, requeue=False)
    broker.read(consumer.settlements())

    assert broker.rejected == [(2, True), (1, False)]
    assert broker.accepted == [3, 4]


@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "accept", "reject", "requeue", "write"]), st.integers(1, 12)),
        max_size=60,
    )
)
def test_however_it_is_settled_the_broker_is_told_of_each_once_and_of_nothing_else(
    steps: list[tuple[str, int]],
) -> None:
    consumer, broker = new_consumer(), Broker()
    came = 0
    accepted: list[int] = []
    rejected: list[tuple[int, bool]] = []
    for step, number in steps:
        is_open = number in {*range(1, came + 1)} - {*accepted} - {each for each, _ in rejected}
        match step:
            case "come":
                came += 1
                consumer.receiver(came)
                broker.out.append(came)
            case "accept":
                consumer.accept(number)
                accepted += [number] * is_open
            case "write":
                broker.read(consumer.settlements())
            case _:
                consumer.reject(number, requeue=step == "requeue")
                rejected += [(number, step == "requeue")] * is_open

    broker.read(consumer.settlements())

    assert sorted(broker.accepted) == sorted(accepted)
    assert broker.rejected == rejected


def test_the_limit_is_one_that_the_broker_can_count() -> None:
    channel = Channel()
    consumer = new_consumer(channel)

    consumer.begin(print, 0)
    for prefetch in (-1, 12, 65_535, 1_000_000):
        consumer.set_prefetch(prefetch)

    assert [count for _, count, _ in channel.limits] == [1, 1, 12, 65_535, 65_535]
    assert {is_global for _, _, is_global in channel.limits} == {True}


def test_of_a_quorum_queue_the_limit_is_that_of_the_consumer_and_stays() -> None:
    channel = Channel()
    consumer = new_consumer(channel, queue=QUEUE._replace(type="quorum"))

    consumer.begin(print, 5)
    consumer.set_prefetch(7)

    assert channel.limits == [(0, 5, False)]


def test_who_begins_twice_consumes_once_and_the_last_one_takes() -> None:
    bound, taken = Bound(), list[Delivery]()
    consumer = new_consumer(bound=bound)

    consumer.begin(print, 5)
    consumer.begin(taken.append, 5)
    consumer.receiver(1)(Message(b"{}"))

    assert bound.tags == ["celeriac.tasks"]
    assert [delivery.queue for delivery in taken] == ["tasks"]


def test_what_comes_after_consuming_was_stopped_is_put_back() -> None:
    channel, broker, taken = Channel(), Broker(), list[Delivery]()
    consumer = new_consumer(channel)
    consumer.begin(taken.append, 5)
    delivered(consumer, broker, 1)

    consumer.stop()
    consumer.stop()
    broker.out.append(2)
    consumer.receiver(2)(Message(b"{}"))
    broker.read(consumer.settlements())

    assert (taken, broker.rejected, broker.out) == ([], [(2, True)], [1])
    assert channel.cancelled == ["celeriac.tasks"]
