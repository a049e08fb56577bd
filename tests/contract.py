"""What every way to a broker promises, as tests that each implementation inherits.

A subclass has a fixture ``connect``, that returns a function which makes a new link to one
broker. Names are new in each test, since some brokers outlive it.
"""

import json
from collections.abc import Callable
from time import monotonic
from uuid import uuid4

import pytest

from celeriac.model.message import Exchange, ExchangeType, Message, Queue
from celeriac.transport.base import Connection

__all__ = [
    "DEFAULT",
    "Connect",
    "ConnectionContract",
    "Listener",
    "OwnQueueContract",
    "RedeliveryContract",
    "body",
    "kept_queue",
    "publish",
    "queue_of",
    "some_exchange",
]

Connect = Callable[[], Connection]

#: Far more than needed, for a busy machine.
PATIENCE = 60.0
#: The exchange that leads to every queue by its name.
DEFAULT = Exchange("", "direct")


def some_exchange(kind: ExchangeType) -> Exchange:
    """Return an exchange with a name that no other test has."""
    return Exchange(f"news-{uuid4()}", kind)


def queue_of(exchange: Exchange, routing_key: str = "") -> Queue:
    """Return a queue with a name that no other test has."""
    return Queue(f"reader-{uuid4()}", exchange, routing_key)


def kept_queue(name: str | None = None) -> Queue:
    """Return a queue that is bound by its name alone and outlives its links, as that of results does."""
    name = name or f"kept-{uuid4()}"
    return Queue(
        name, DEFAULT, name, is_durable=True, is_exclusive=False, is_auto_deleted=False, expires=600.0
    )


def body(number: int) -> bytes:
    return json.dumps({"number": number}).encode()


class Listener:
    """Keeps what came, and can be told to fail."""

    def __init__(self, link: Connection, queue: Queue, *, acknowledges: bool = False) -> None:
        self.link = link
        self.messages: list[Message] = []
        self.failures: list[BaseException] = []
        link.subscribe(queue, self.receive, acknowledges=acknowledges)

    def receive(self, message: Message) -> None:
        """Keep a message, or fail as told; what it fails on is not kept."""
        if self.failures:
            raise self.failures.pop()
        self.messages.append(message)

    @property
    def numbers(self) -> list[int]:
        return [json.loads(message.body)["number"] for message in self.messages]

    def drain(self, expected: int) -> list[int]:
        """Drain until as many messages are there as expected, and return their numbers."""
        deadline = monotonic() + PATIENCE
        while len(self.messages) < expected and monotonic() < deadline:
            self.link.drain(0.5)
        return self.numbers


def publish(link: Connection, exchange: Exchange, *numbers: int, routing_key: str = "") -> None:
    """Publish messages, and return when the broker has them."""
    for number in numbers:
        link.publish(exchange, body(number), routing_key=routing_key)
    assert link.unconfirmed(PATIENCE) == 0


class ConnectionContract:
    """Inherit from this, and have a fixture ``connect``."""

    # -- where messages go

    def test_a_fanout_reaches_every_queue(self, connect: Connect) -> None:
        news = some_exchange("fanout")
        listeners = [Listener(connect(), queue_of(news)) for _ in range(3)]

        publish(connect(), news, 1, 2)

        assert [listener.drain(2) for listener in listeners] == [[1, 2]] * 3

    def test_a_topic_reaches_the_queues_whose_key_takes_it(self, connect: Connect) -> None:
        news = some_exchange("topic")
        everything = Listener(connect(), queue_of(news, "#"))
        workers = Listener(connect(), queue_of(news, "worker.#"))
        acks = Listener(connect(), queue_of(news, "*.ack"))
        sender = connect()

        publish(sender, news, 1, routing_key="worker.elect.ack")
        publish(sender, news, 2, routing_key="task.sent")
        publish(sender, news, 3, routing_key="worker.ack")

        assert everything.drain(3) == [1, 2, 3]
        assert workers.drain(2) == [1, 3]
        assert acks.drain(1) == [3]

    def test_a_direct_exchange_reaches_the_queue_of_that_very_key(self, connect: Connect) -> None:
        replies = some_exchange("direct")
        mine = Listener(connect(), queue_of(replies, "mine"))
        theirs = Listener(connect(), queue_of(replies, "theirs"))
        sender = connect()

        publish(sender, replies, 1, routing_key="mine")
        publish(sender, replies, 2, routing_key="mine.too")
        publish(sender, replies, 3, routing_key="theirs")

        assert (mine.drain(1), theirs.drain(1)) == ([1], [3])

    def test_the_default_exchange_leads_to_the_queue_of_that_name(self, connect: Connect) -> None:
        queue = queue_of(some_exchange("direct"), "key")
        listener = Listener(connect(), queue)

        publish(connect(), DEFAULT, 1, routing_key=queue.name)

        assert listener.drain(1) == [1]

    def test_a_queue_of_the_default_exchange_is_found_by_its_name_and_by_nothing_else(
        self, connect: Connect
    ) -> None:
        queue = queue_of(DEFAULT)
        first, second = Listener(connect(), queue), Listener(connect(), queue_of(DEFAULT))
        sender = connect()

        publish(sender, DEFAULT, 1, routing_key=queue.name)
        publish(sender, DEFAULT, 2, routing_key=f"{queue.name}.too")
        publish(sender, some_exchange("direct"), 3, routing_key=queue.name)
        publish(sender, DEFAULT, 4, routing_key=queue.name)

        assert first.drain(2) == [1, 4]
        assert second.link.drain(0) == 0

    def test_what_nobody_listens_to_is_gone_and_harms_nothing(self, connect: Connect) -> None:
        sender, news = connect(), some_exchange("fanout")

        publish(sender, news, 1)

        listener = Listener(connect(), queue_of(news))
        publish(sender, news, 2)
        assert listener.drain(1) == [2]

    def test_a_message_arrives_as_it_was_sent(self, connect: Connect) -> None:
        news = some_exchange("topic")
        listener = Listener(connect(), queue_of(news, "#"))
        text = '{"number":1,"name":"€ \\u0000 \U0001f333"}'.encode()
        headers = {"hostname": "celery@web1", "clock": 7}

        connect().publish(news, text, routing_key="worker.heartbeat", headers=headers)

        listener.drain(1)
        (message,) = listener.messages
        # Where it was published is promised of what is to be settled only.
        told = message._replace(exchange="")
        assert told == Message(text, "application/json", "utf-8", headers, "worker.heartbeat")

    def test_a_message_says_what_it_answers_to_and_where_to_reply(self, connect: Connect) -> None:
        queue = queue_of(DEFAULT)
        listener = Listener(connect(), queue)
        sender = connect()
        described = [
            ("task-1", "queue-1"),
            ("task-2", ""),
            ("", "queue-3"),
            ("", ""),
            ("täsk-5 €", "queue-1"),
        ]

        for number, (correlation_id, reply_to) in enumerate(described):
            sender.publish(
                DEFAULT,
                body(number),
                routing_key=queue.name,
                headers={"hostname": "celery@web1"},
                correlation_id=correlation_id,
                reply_to=reply_to,
            )

        assert listener.drain(len(described)) == list(range(len(described)))
        got = [(message.correlation_id, message.reply_to) for message in listener.messages]
        assert got == described
        assert {message.headers["hostname"] for message in listener.messages} == {"celery@web1"}
        assert {message.content_type for message in listener.messages} == {"application/json"}

    # -- several at once

    def test_several_subscriptions_of_one_link_each_get_their_own(self, connect: Connect) -> None:
        link, sender = connect(), connect()
        exchanges = [some_exchange("fanout"), some_exchange("topic"), some_exchange("direct")]
        listeners = [Listener(link, queue_of(exchange, "key")) for exchange in exchanges]

        for number, exchange in enumerate(exchanges):
            publish(sender, exchange, number, routing_key="key")

        assert [listener.drain(1) for listener in listeners] == [[0], [1], [2]]

    def test_two_queues_of_one_exchange_and_one_link_both_get_a_message(self, connect: Connect) -> None:
        link, news = connect(), some_exchange("fanout")
        listeners = [Listener(link, queue_of(news)) for _ in range(2)]

        publish(connect(), news, 1, 2)

        assert [listener.drain(2) for listener in listeners] == [[1, 2]] * 2

    def test_what_comes_while_another_queue_is_declared_is_delivered_in_order(self, connect: Connect) -> None:
        link, news = connect(), some_exchange("fanout")
        listener = Listener(link, queue_of(news))
        publish(connect(), news, *range(50))

        for _ in range(3):
            Listener(link, queue_of(some_exchange("fanout")))

        assert listener.numbers == []
        assert listener.drain(50) == list(range(50))

    def test_a_callback_may_publish_on_the_link_it_is_called_by(self, connect: Connect) -> None:
        link, asks, answers = connect(), some_exchange("fanout"), some_exchange("direct")
        asked: list[bytes] = []

        def answer(message: Message) -> None:
            asked.append(message.body)
            link.publish(answers, message.body, routing_key="asker")

        link.subscribe(queue_of(asks), answer)
        asker = Listener(connect(), queue_of(answers, "asker"))
        publish(connect(), asks, *range(200))
        deadline = monotonic() + PATIENCE
        while len(asked) < 200 and monotonic() < deadline:
            link.drain(0.5)

        assert link.unconfirmed(PATIENCE) == 0
        assert asked == [body(number) for number in range(200)]
        assert asker.drain(200) == list(range(200))

    # -- draining

    @pytest.mark.parametrize("timeout", [0, 0.05])
    def test_where_nothing_came_nothing_is_drained(self, connect: Connect, timeout: float) -> None:
        listener = Listener(connect(), queue_of(some_exchange("fanout")))

        drained = [listener.link.drain(timeout) for _ in range(3)]

        assert drained == [0, 0, 0]

    def test_to_drain_without_waiting_brings_what_is_there_in_the_end(self, connect: Connect) -> None:
        news = some_exchange("fanout")
        listener = Listener(connect(), queue_of(news))
        publish(connect(), news, 1, 2, 3)

        deadline = monotonic() + PATIENCE
        drained = 0
        while drained < 3 and monotonic() < deadline:
            drained += listener.link.drain(0)

        assert (drained, listener.numbers) == (3, [1, 2, 3])

    @pytest.mark.parametrize(
        ("kind", "failure"),
        [
            ("fanout", RuntimeError),
            ("fanout", OSError),
            ("fanout", TimeoutError),
            ("fanout", ConnectionResetError),
            ("topic", TimeoutError),
            ("direct", ConnectionResetError),
        ],
    )
    def test_what_a_callback_raises_passes_and_spoils_nothing_else(
        self, connect: Connect, kind: ExchangeType, failure: type[Exception]
    ) -> None:
        news = some_exchange(kind)
        listener = Listener(connect(), queue_of(news, "key"))
        raised = failure("on purpose")
        listener.failures = [raised]
        publish(connect(), news, *range(5), routing_key="key")

        with pytest.raises(failure) as caught:
            listener.drain(5)

        assert caught.value is raised
        assert listener.drain(4) == [1, 2, 3, 4]

    def test_what_one_callback_raises_keeps_the_message_from_no_other_queue(self, connect: Connect) -> None:
        link, news = connect(), some_exchange("fanout")
        first, second = Listener(link, queue_of(news)), Listener(link, queue_of(news))
        first.failures = [RuntimeError("on purpose")]
        publish(connect(), news, 1)

        with pytest.raises(RuntimeError, match="on purpose"):
            first.drain(1)

        assert second.drain(1) == [1]

    # -- much

    def test_many_small_messages_arrive_in_order(self, connect: Connect) -> None:
        news = some_exchange("fanout")
        listener = Listener(connect(), queue_of(news))

        publish(connect(), news, *range(10_000))

        assert listener.drain(10_000) == list(range(10_000))

    @pytest.mark.parametrize("kind", ["fanout", "topic", "direct"])
    def test_large_messages_arrive_whole_and_in_order(self, connect: Connect, kind: ExchangeType) -> None:
        news = some_exchange(kind)
        listener = Listener(connect(), queue_of(news, "key"))
        sender = connect()
        sizes = [500 * 1024, 3, 128 * 1024, 131_064, 131_065, 1, 500 * 1024]

        for number, size in enumerate(sizes):
            text = json.dumps({"number": number, "text": "x" * size}).encode()
            sender.publish(news, text, routing_key="key")
        sender.unconfirmed(PATIENCE)

        listener.drain(len(sizes))
        assert [len(json.loads(message.body)["text"]) for message in listener.messages] == sizes

    def test_all_that_was_published_is_confirmed(self, connect: Connect) -> None:
        sender, news = connect(), some_exchange("topic")

        for number in range(500):
            sender.publish(news, body(number), routing_key="key")

        assert sender.unconfirmed(PATIENCE) == 0

    # -- acknowledging

    def test_what_was_delivered_comes_no_second_time(self, connect: Connect) -> None:
        queue = kept_queue()
        first = Listener(connect(), queue, acknowledges=True)
        publish(connect(), DEFAULT, 1, 2, 3, routing_key=queue.name)
        assert first.drain(3) == [1, 2, 3]

        first.link.close()

        second = Listener(connect(), queue, acknowledges=True)
        publish(connect(), DEFAULT, 4, routing_key=queue.name)
        assert second.drain(1) == [4]
        second.link.close()
        connect().delete_queue(queue.name)

    def test_many_messages_are_acknowledged_as_they_are_delivered(self, connect: Connect) -> None:
        queue = kept_queue()
        first = Listener(connect(), queue, acknowledges=True)
        sender = connect()

        publish(sender, DEFAULT, *range(5000), routing_key=queue.name)

        assert first.drain(5000) == list(range(5000))
        first.link.close()
        second = Listener(connect(), queue, acknowledges=True)
        publish(sender, DEFAULT, 5000, routing_key=queue.name)
        assert second.drain(1) == [5000]
        second.link.close()
        connect().delete_queue(queue.name)

    def test_a_queue_that_outlives_its_link_keeps_what_comes_meanwhile(self, connect: Connect) -> None:
        queue = kept_queue()
        Listener(connect(), queue, acknowledges=True).link.close()

        publish(connect(), DEFAULT, 1, 2, routing_key=queue.name)

        again = Listener(connect(), queue, acknowledges=True)
        assert again.drain(2) == [1, 2]
        again.link.close()
        connect().delete_queue(queue.name)

    # -- what waits

    def test_the_length_of_a_queue_tells_what_waits_in_it_and_whether_it_is_there(
        self, connect: Connect
    ) -> None:
        queue, link = kept_queue(), connect()
        lengths = [link.queue_length(queue.name)]
        link.declare(queue)

        publish(link, DEFAULT, 1, 2, 3, routing_key=queue.name)
        lengths.append(link.queue_length(queue.name))

        assert lengths == [None, 3]
        link.delete_queue(queue.name)

    def test_a_link_that_asked_for_a_queue_that_is_not_there_goes_on(self, connect: Connect) -> None:
        link, news = connect(), some_exchange("fanout")
        listener = Listener(link, queue_of(news))

        length = link.queue_length(f"nothing-{news.name}")

        publish(link, news, 1)
        assert (length, listener.drain(1)) == (None, [1])

    # -- the life of a link

    def test_a_link_that_published_nothing_waits_for_no_confirmation(self, connect: Connect) -> None:
        link = connect()

        unconfirmed = link.unconfirmed(PATIENCE), link.unconfirmed()

        assert unconfirmed == (0, 0)

    def test_a_link_can_be_opened_before_it_is_used(self, connect: Connect) -> None:
        link, news = connect(), some_exchange("fanout")

        link.open()
        link.open()

        listener = Listener(link, queue_of(news))
        publish(connect(), news, 1)
        assert listener.drain(1) == [1]

    def test_a_link_can_be_closed_twice_and_before_it_was_used(self, connect: Connect) -> None:
        used, unused = connect(), connect()
        Listener(used, queue_of(some_exchange("direct"), "key"))
        publish(used, some_exchange("fanout"), 1)

        for link in (used, unused):
            link.close()
            link.close()

    def test_a_clone_leads_to_the_same_broker_and_lives_on_its_own(self, connect: Connect) -> None:
        link, news = connect(), some_exchange("fanout")
        link.open()

        clone = link.clone()
        link.close()

        assert (clone.driver, clone.address) == (link.driver, link.address)
        with clone:
            listener = Listener(clone, queue_of(news))
            publish(connect(), news, 1)
            assert listener.drain(1) == [1]

    def test_a_queue_that_was_deleted_holds_nothing_any_more(self, connect: Connect) -> None:
        queue = kept_queue()
        Listener(connect(), queue).link.close()
        sender = connect()
        publish(sender, DEFAULT, 1, routing_key=queue.name)

        sender.delete_queue(queue.name)
        sender.delete_queue(queue.name)

        again = Listener(connect(), queue)
        publish(sender, DEFAULT, 2, routing_key=queue.name)
        assert again.drain(1) == [2]
        again.link.close()
        sender.delete_queue(queue.name)


class RedeliveryContract:
    """For brokers that keep a message until it is acknowledged; Redis, and kombu in memory, do not."""

    def test_what_a_callback_failed_on_comes_again_by_the_next_link_and_nothing_else_does(
        self, connect: Connect
    ) -> None:
        queue = kept_queue()
        first = Listener(connect(), queue, acknowledges=True)
        publish(connect(), DEFAULT, 1, routing_key=queue.name)
        assert first.drain(1) == [1]
        first.failures = [RuntimeError("on purpose")]
        publish(connect(), DEFAULT, *range(2, 7), routing_key=queue.name)
        with pytest.raises(RuntimeError, match="on purpose"):
            first.drain(6)
        # Which of them it was: brokers that kombu makes up have an order of their own.
        (failed,) = {*range(1, 7)} - {*first.drain(5)}

        first.link.close()

        second = Listener(connect(), queue, acknowledges=True)
        assert second.drain(1) == [failed]
        publish(connect(), DEFAULT, 7, routing_key=queue.name)
        assert second.drain(2) == [failed, 7]
        second.link.close()
        connect().delete_queue(queue.name)

    def test_what_came_and_was_not_delivered_comes_again_by_the_next_link(self, connect: Connect) -> None:
        queue = kept_queue()
        first = Listener(connect(), queue, acknowledges=True)
        publish(connect(), DEFAULT, *range(50), routing_key=queue.name)
        first.failures = [RuntimeError("on purpose")]
        with pytest.raises(RuntimeError, match="on purpose"):
            first.drain(50)

        first.link.close()

        second = Listener(connect(), queue, acknowledges=True)
        second.drain(50 - len(first.numbers))
        assert sorted(first.numbers + second.numbers) == list(range(50))
        second.link.close()
        connect().delete_queue(queue.name)


class OwnQueueContract:
    """For brokers that drop the queue of a link with it; those that kombu makes up do not."""

    def test_a_link_takes_its_own_queue_along_when_it_closes(self, connect: Connect) -> None:
        replies = some_exchange("direct")
        queue = queue_of(replies, "mine")
        first = Listener(connect(), queue)
        sender = connect()

        first.link.close()
        publish(sender, replies, 1, routing_key="mine")

        second = Listener(connect(), queue)
        publish(sender, replies, 2, routing_key="mine")
        assert second.drain(1) == [2]

    def test_a_link_is_closed_at_the_end_of_its_block(self, connect: Connect) -> None:
        replies = some_exchange("direct")
        queue = queue_of(replies, "mine")
        with connect() as link:
            Listener(link, queue)

        publish(connect(), replies, 1, routing_key="mine")

        again = Listener(connect(), queue)
        assert again.link.drain(0.05) == 0
