"""What a broker is told of the messages of one subscription."""

import pytest

from celeriac.model.message import Message
from celeriac.transport.amqp_consumer import AmqpConsumer

MESSAGE = Message(b"{}")


class Channel:
    """Notes what was acknowledged: the number, and whether all before it are meant too."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, bool]] = []

    def basic_ack(self, number: int, multiple: bool = False) -> None:
        self.acknowledged.append((number, multiple))


def fail(_: Message) -> None:
    raise RuntimeError("on purpose")


def test_what_was_delivered_is_acknowledged_in_one_word() -> None:
    channel = Channel()
    consumer = AmqpConsumer(channel, lambda _: None, max_bytes=1, acknowledges=True)

    for number in (1, 2, 3):
        consumer.receiver(number)(MESSAGE)
    consumer.acknowledge()
    consumer.acknowledge()
    consumer.receiver(4)(MESSAGE)
    consumer.acknowledge()

    assert channel.acknowledged == [(3, True), (4, True)]


def test_what_is_not_delivered_yet_is_not_acknowledged() -> None:
    channel = Channel()
    consumer = AmqpConsumer(channel, lambda _: None, max_bytes=1, acknowledges=True)

    receivers = [consumer.receiver(number) for number in (1, 2, 3)]
    receivers[0](MESSAGE)
    consumer.acknowledge()

    assert channel.acknowledged == [(1, True)]


def test_what_was_failed_on_is_never_acknowledged_by_what_came_after_it() -> None:
    channel = Channel()
    outcomes = iter([True, False, True, True])

    def deliver(message: Message) -> None:
        if not next(outcomes):
            fail(message)

    consumer = AmqpConsumer(channel, deliver, max_bytes=1, acknowledges=True)
    consumer.receiver(1)(MESSAGE)
    with pytest.raises(RuntimeError):
        consumer.receiver(2)(MESSAGE)
    consumer.acknowledge()
    for number in (3, 4):
        consumer.receiver(number)(MESSAGE)
    consumer.acknowledge()

    assert channel.acknowledged == [(1, False), (3, False), (4, False)]


def test_who_does_not_acknowledge_says_nothing() -> None:
    channel = Channel()
    consumer = AmqpConsumer(channel, lambda _: None, max_bytes=1, acknowledges=False)

    consumer.receiver(1)(MESSAGE)
    consumer.acknowledge()

    assert channel.acknowledged == []
