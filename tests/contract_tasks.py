"""What every way to a broker promises about deliveries that are to be settled, as tests to inherit.

A subclass has a fixture ``connect``, as for :mod:`tests.contract`. What comes is compared without its
order: brokers that kombu makes up have one of their own.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from time import monotonic
from uuid import uuid4

import pytest

from celeriac.model.message import Delivery, Exchange, Queue
from celeriac.transport.base import Connection
from tests.contract import DEFAULT, PATIENCE, Connect, publish

__all__ = ["AsideContract", "LostLinkContract", "OrderContract", "Taker", "TaskContract", "some_task_queue"]

#: All that headers of a task hold: texts, nothing, lists of nothing, tables, numbers of any size.
HEADERS: dict[str, object] = {
    "lang": "py",
    "task": "tests.ädd",
    "id": "4b5dd8a9-4e6c-4b27-8c3c-6f8d0d8aef14",
    "shadow": None,
    "eta": None,
    "expires": "2026-01-01T00:00:00+00:00",
    "group_index": 3,
    "retries": 0,
    "timelimit": [None, 2.5],
    "argsrepr": "(" + "'€', " * 200 + ")",
    "ignore_result": False,
    "is_true": True,
    "replaced_task_nesting": 0,
    "stamped_headers": ["a", "b"],
    "stamps": {"a": ["x", None], "b": {"deep": [1, [2, {"more": "ü"}]]}},
    "negative": -7,
    "large": 2**40,
    "larger": -(2**62),
    "float": 0.1,
    "empty": "",
    "no_items": [],
    "no_fields": {},
}


def some_task_queue(**options: object) -> Queue:
    """Return a queue of tasks, with a name that no other test has."""
    name = f"tasks-{uuid4()}"
    queue = Queue(
        name,
        Exchange(name, "direct", is_durable=True),
        name,
        is_durable=True,
        is_exclusive=False,
        is_auto_deleted=False,
    )
    return queue._replace(**options)  # type: ignore[arg-type]


def number_of(delivery: Delivery) -> int:
    number: int = json.loads(delivery.message.body)["number"]
    return number


class Taker:
    """Holds what it was given; what is to become of it the test says."""

    def __init__(self, link: Connection, queue: Queue, *, prefetch: int = 1000) -> None:
        self.link = link
        self.queue = queue
        self.deliveries: list[Delivery] = []
        self.failures: list[BaseException] = []
        link.consume(queue, self.take, prefetch=prefetch)

    def take(self, delivery: Delivery) -> None:
        """Hold a delivery, and fail as told."""
        self.deliveries.append(delivery)
        if self.failures:
            raise self.failures.pop()

    @property
    def numbers(self) -> list[int]:
        return sorted(number_of(delivery) for delivery in self.deliveries)

    def drain(self, expected: int) -> list[int]:
        """Drain until as many deliveries are there as expected, and return their numbers, sorted."""
        deadline = monotonic() + PATIENCE
        while len(self.deliveries) < expected and monotonic() < deadline:
            self.link.drain(0.5)
        return self.numbers

    def of(self, number: int) -> Delivery:
        """Return the last delivery of a number."""
        return next(each for each in reversed(self.deliveries) if number_of(each) == number)

    def accept(self, *numbers: int) -> None:
        """Accept deliveries; all of them, if none is named."""
        for delivery in [self.of(number) for number in numbers] or self.deliveries:
            self.link.accept(delivery)


def send(link: Connection, queue: Queue, *numbers: int) -> None:
    """Publish tasks, and return when the broker has them."""
    publish(link, DEFAULT, *numbers, routing_key=queue.name)


def left_in(connect: Connect, queue: Queue, expected: int) -> list[int]:
    """Return what a queue holds, sorted: as much as expected, and more if there is more; it is then gone."""
    with connect() as link:
        taker = Taker(link, queue)
        taker.drain(expected)
        link.drain(0.05)
        taker.accept()
        return taker.numbers


class TaskContract:
    """Inherit from this, and have a fixture ``connect``."""

    # -- where tasks go

    def test_what_is_published_to_a_declared_queue_waits_for_who_consumes(self, connect: Connect) -> None:
        queue = some_task_queue()
        sender = connect()
        sender.declare(queue)
        send(sender, queue, 1, 2)

        numbers = Taker(connect(), queue).drain(2)

        assert numbers == [1, 2]

    def test_a_queue_that_is_declared_again_keeps_what_waits(self, connect: Connect) -> None:
        queue = some_task_queue()
        sender = connect()
        sender.declare(queue)
        send(sender, queue, 1)

        sender.declare(queue)
        connect().declare(queue)

        assert Taker(connect(), queue).drain(1) == [1]

    def test_a_queue_is_found_by_its_exchange_and_key_as_well_as_by_its_name(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        sender = connect()

        publish(sender, queue.exchange, 1, routing_key=queue.routing_key)
        publish(sender, DEFAULT, 2, routing_key=queue.name)
        publish(sender, queue.exchange, 3, routing_key=f"{queue.routing_key}.too")

        assert taker.drain(2) == [1, 2]
        exchanges = {number_of(each): each.message.exchange for each in taker.deliveries}
        assert exchanges == {1: queue.exchange.name, 2: ""}
        assert {each.message.routing_key for each in taker.deliveries} == {queue.name}

    def test_a_delivery_is_as_it_was_sent_and_says_where_it_waited(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        text = '[["€ \U0001f333"], {}, {}]'.encode()

        connect().publish(
            queue.exchange,
            text,
            routing_key=queue.routing_key,
            headers=HEADERS,
            is_persistent=True,
            correlation_id="task-1",
            reply_to="queue-1",
            priority=3,
            expiration=600.0,
        )

        deadline = monotonic() + PATIENCE
        while not taker.deliveries and monotonic() < deadline:
            taker.link.drain(0.5)
        ((message, name, _),) = taker.deliveries
        assert name == queue.name
        assert message.body == text
        assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
        assert {key: message.headers[key] for key in HEADERS} == HEADERS
        assert message.headers["is_true"] is True
        assert message.headers["ignore_result"] is False
        assert (message.correlation_id, message.reply_to, message.priority) == ("task-1", "queue-1", 3)
        assert (message.fault, message.is_redelivered) == ("", False)

    def test_several_queues_of_one_link_each_have_their_own(self, connect: Connect) -> None:
        link, sender = connect(), connect()
        takers = [Taker(link, some_task_queue()) for _ in range(3)]

        for number, taker in enumerate(takers):
            send(sender, taker.queue, number)

        assert [taker.drain(1) for taker in takers] == [[0], [1], [2]]
        assert [taker.deliveries[0].queue for taker in takers] == [taker.queue.name for taker in takers]

    def test_a_body_that_is_too_long_is_told_and_can_be_settled(self, connect: Connect) -> None:
        queue = some_task_queue(max_bytes=1000)
        taker = Taker(connect(), queue)
        sender = connect()

        sender.publish(DEFAULT, b'"' + b"x" * 100_000 + b'"', routing_key=queue.name, correlation_id="task-1")
        while not taker.deliveries:
            taker.link.drain(PATIENCE)
        (long,) = taker.deliveries
        taker.link.accept(long)
        taker.deliveries.clear()
        send(sender, queue, 2)

        assert taker.drain(1) == [2]
        assert long.message.fault != ""
        assert long.message.correlation_id == "task-1"
        taker.accept()
        taker.link.close()
        assert left_in(connect, queue, 0) == []

    # -- how many

    def test_no_more_are_delivered_than_may_be_unsettled(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue, prefetch=3)
        send(connect(), queue, *range(10))

        taker.drain(3)
        drained = taker.link.drain(0.05)

        assert (drained, len(taker.deliveries)) == (0, 3)

    @pytest.mark.parametrize("is_accepted", [True, False])
    def test_what_is_settled_makes_room_for_as_many(self, connect: Connect, is_accepted: bool) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue, prefetch=3)
        send(connect(), queue, *range(10))
        taker.drain(3)

        for delivery in taker.deliveries[1:]:
            if is_accepted:
                taker.link.accept(delivery)
            else:
                taker.link.reject(delivery, requeue=False)

        assert len(taker.drain(5)) == 5
        assert taker.link.drain(0.05) == 0

    def test_the_number_that_may_be_unsettled_can_be_raised_and_lowered(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue, prefetch=1)
        send(connect(), queue, *range(20))
        taker.drain(1)

        taker.link.set_prefetch(4)
        raised = len(taker.drain(4)), taker.link.drain(0.05)
        taker.link.set_prefetch(2)
        taker.accept()
        taker.deliveries.clear()
        lowered = len(taker.drain(2)), taker.link.drain(0.05)

        assert raised == (4, 0)
        assert lowered == (2, 0)

    def test_a_number_set_before_anything_is_consumed_changes_nothing_else(self, connect: Connect) -> None:
        queue = some_task_queue()
        link = connect()

        link.set_prefetch(7)

        taker = Taker(link, queue, prefetch=2)
        send(connect(), queue, *range(5))
        assert len(taker.drain(2)) == 2
        assert link.drain(0.05) == 0

    # -- what becomes of deliveries

    def test_what_was_accepted_never_comes_again(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, *range(5))
        taker.drain(5)

        taker.accept()
        taker.link.close()

        assert left_in(connect, queue, 0) == []

    def test_what_was_not_settled_comes_again_when_the_link_is_closed(self, connect: Connect) -> None:
        queue = some_task_queue()
        first = Taker(connect(), queue)
        send(connect(), queue, *range(6))
        first.drain(6)
        first.accept(1, 4, 5)

        first.link.close()

        second = Taker(connect(), queue)
        assert second.drain(3) == [0, 2, 3]
        assert {each.message.is_redelivered for each in second.deliveries} == {True}
        assert second.link.drain(0.05) == 0

    def test_what_came_and_was_not_taken_comes_again_when_the_link_is_closed(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, *range(20))
        taker.failures = [RuntimeError("on purpose")]
        with pytest.raises(RuntimeError, match="on purpose"):
            taker.drain(1)

        taker.link.close()

        assert left_in(connect, queue, 20) == list(range(20))

    def test_what_is_settled_in_any_order_is_settled_for_good(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, *range(12))
        taker.drain(12)

        for numbers in ([3], [11, 0, 5], [1, 2], [4, 10]):
            taker.accept(*numbers)
            taker.link.drain(0)
        taker.link.reject(taker.of(7), requeue=False)
        taker.accept(6)
        taker.link.close()

        assert left_in(connect, queue, 2) == [8, 9]

    def test_what_is_rejected_to_be_put_back_comes_again_and_says_so(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, 1)
        taker.drain(1)

        taker.link.reject(taker.deliveries[0], requeue=True)

        taker.drain(2)
        first, second = taker.deliveries
        assert second.message.body == first.message.body
        assert (first.message.is_redelivered, second.message.is_redelivered) == (False, True)
        taker.link.accept(second)
        taker.link.close()
        assert left_in(connect, queue, 0) == []

    def test_what_is_rejected_to_be_dropped_is_gone(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, 1)
        taker.drain(1)

        taker.link.reject(taker.deliveries[0], requeue=False)
        taker.link.close()

        assert left_in(connect, queue, 0) == []

    def test_what_is_settled_twice_is_settled_as_at_first(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        sender = connect()
        send(sender, queue, 1, 2)
        taker.drain(2)

        taker.accept(1, 1)
        taker.link.drain(0)
        taker.accept(1)
        taker.link.reject(taker.of(1), requeue=True)
        taker.link.reject(taker.of(2), requeue=False)
        taker.accept(2)

        send(sender, queue, 3)
        assert taker.drain(3) == [1, 2, 3]
        taker.accept(3)
        taker.link.close()
        assert left_in(connect, queue, 0) == []

    def test_a_take_may_settle_and_publish_at_once(self, connect: Connect) -> None:
        link, source, target = connect(), some_task_queue(), some_task_queue()
        link.declare(target)

        def pass_on(delivery: Delivery) -> None:
            link.publish(DEFAULT, delivery.message.body, routing_key=target.name)
            link.accept(delivery)

        link.consume(source, pass_on, prefetch=10)
        send(connect(), source, *range(50))
        deadline = monotonic() + PATIENCE
        passed = 0
        while passed < 50 and monotonic() < deadline:
            passed += link.drain(0.5)
        assert link.unconfirmed(PATIENCE) == 0
        link.close()

        assert left_in(connect, target, 50) == list(range(50))
        assert left_in(connect, source, 0) == []

    def test_what_a_take_raises_passes_and_the_delivery_is_still_to_be_settled(
        self, connect: Connect
    ) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        taker.failures = [ConnectionResetError("on purpose")]
        send(connect(), queue, *range(5))

        with pytest.raises(ConnectionResetError, match="on purpose"):
            taker.drain(5)

        assert taker.drain(5) == list(range(5))
        taker.accept()
        taker.link.close()
        assert left_in(connect, queue, 0) == []

    # -- several who consume

    def test_of_several_links_each_delivery_goes_to_one(self, connect: Connect) -> None:
        queue = some_task_queue()
        takers = [Taker(connect(), queue, prefetch=5) for _ in range(3)]
        send(connect(), queue, *range(30))

        deadline = monotonic() + PATIENCE
        while sum(len(taker.deliveries) for taker in takers) < 30 and monotonic() < deadline:
            for taker in takers:
                taker.link.drain(0.01)
                taker.accept()
        for taker in takers:
            taker.link.close()

        assert sorted(number for taker in takers for number in taker.numbers) == list(range(30))
        assert left_in(connect, queue, 0) == []

    def test_what_one_link_holds_no_other_is_given(self, connect: Connect) -> None:
        queue = some_task_queue()
        first = Taker(connect(), queue)
        send(connect(), queue, 1)
        first.drain(1)

        second = Taker(connect(), queue)

        assert second.link.drain(0.05) == 0

    # -- an end to it

    def test_who_stopped_consuming_takes_no_more_and_settles_what_is_there(self, connect: Connect) -> None:
        queue, sender = some_task_queue(), connect()
        taker = Taker(connect(), queue, prefetch=2)
        send(sender, queue, *range(5))
        taker.drain(2)

        taker.link.stop_consuming(queue.name)
        taker.accept(taker.numbers[0])
        drained = taker.link.drain(0.05)
        taker.accept(taker.numbers[1])
        taker.link.drain(0)

        assert (drained, len(taker.deliveries)) == (0, 2)
        taker.link.close()
        assert left_in(connect, queue, 3) == sorted({*range(5)} - {*taker.numbers})

    def test_what_came_and_was_not_taken_goes_back_when_consuming_is_stopped(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, *range(20))
        taker.failures = [RuntimeError("on purpose")]
        with pytest.raises(RuntimeError, match="on purpose"):
            taker.drain(20)
        taker.accept()

        taker.link.stop_consuming(queue.name)
        drained = taker.link.drain(0)

        assert drained == 0
        assert left_in(connect, queue, 20 - len(taker.numbers)) == sorted({*range(20)} - {*taker.numbers})

    def test_who_stopped_consuming_can_begin_again(self, connect: Connect) -> None:
        link, queue, sender = connect(), some_task_queue(), connect()
        first = Taker(link, queue, prefetch=2)
        send(sender, queue, 1)
        first.drain(1)
        link.stop_consuming(queue.name)
        send(sender, queue, 2)

        second = Taker(link, queue, prefetch=2)

        assert second.drain(1) == [2]
        first.accept(1)
        second.accept(2)
        send(sender, queue, 3)
        assert second.drain(2) == [2, 3]
        assert first.numbers == [1]
        second.accept(3)
        link.close()
        assert left_in(connect, queue, 0) == []

    def test_to_stop_consuming_from_one_queue_leaves_the_others(self, connect: Connect) -> None:
        link, sender = connect(), connect()
        first, second = Taker(link, some_task_queue()), Taker(link, some_task_queue())

        link.stop_consuming(first.queue.name)
        link.stop_consuming("a queue that nobody consumes from")
        send(sender, first.queue, 1)
        send(sender, second.queue, 2)

        assert second.drain(1) == [2]
        assert first.numbers == []

    # -- waking

    def test_who_waits_is_woken_from_another_thread(self, connect: Connect) -> None:
        taker = Taker(connect(), some_task_queue())

        with ThreadPoolExecutor(1) as pool:
            draining = pool.submit(taker.link.drain, PATIENCE * 4)
            wake_until(taker.link, draining.done)

            assert draining.result() == 0

    def test_who_waits_without_end_is_woken_too(self, connect: Connect) -> None:
        taker = Taker(connect(), some_task_queue())

        with ThreadPoolExecutor(1) as pool:
            draining = pool.submit(taker.link.drain)
            wake_until(taker.link, draining.done)

            assert draining.result() == 0

    def test_whoever_is_woken_before_it_waits_does_not_wait(self, connect: Connect) -> None:
        taker = Taker(connect(), some_task_queue())

        taker.link.wake()
        taker.link.wake()

        assert taker.link.drain(None) == 0

    def test_a_link_is_woken_before_it_is_open_and_after_it_is_closed(self, connect: Connect) -> None:
        link = connect()

        link.wake()
        taker = Taker(link, some_task_queue())
        drained = link.drain(None)
        link.close()
        link.wake()
        link.close()

        assert (drained, taker.numbers) == (0, [])

    def test_who_was_woken_goes_on_to_wait_and_to_take(self, connect: Connect) -> None:
        taker = Taker(connect(), some_task_queue())
        sender = connect()

        for number in range(3):
            taker.link.wake()
            taker.link.drain(None)
            send(sender, taker.queue, number)
            taker.drain(number + 1)

        assert taker.numbers == [0, 1, 2]

    def test_any_number_of_threads_may_wake_while_deliveries_come(self, connect: Connect) -> None:
        taker = Taker(connect(), some_task_queue())
        is_over = Event()
        threads = [Thread(target=wake_until, args=(taker.link, is_over.is_set)) for _ in range(3)]
        for thread in threads:
            thread.start()

        try:
            send(connect(), taker.queue, *range(100))
            numbers = taker.drain(100)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()

        assert numbers == list(range(100))


def wake_until(link: Connection, is_over: Callable[[], bool]) -> None:
    """Wake a link again and again: the thread that drains it may not have begun to wait."""
    deadline = monotonic() + PATIENCE
    pause = Event()
    while not is_over():
        assert monotonic() < deadline
        link.wake()
        pause.wait(0.005)


class OrderContract:
    """For brokers whose queues have an order."""

    def test_deliveries_come_in_the_order_they_were_published(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, *range(200))

        taker.drain(200)

        assert [number_of(delivery) for delivery in taker.deliveries] == list(range(200))

    def test_many_deliveries_come_with_few_at_a_time(self, connect: Connect) -> None:
        link, queue = connect(), some_task_queue()
        numbers: list[int] = []

        def take(delivery: Delivery) -> None:
            numbers.append(number_of(delivery))
            link.accept(delivery)

        link.consume(queue, take, prefetch=20)
        send(connect(), queue, *range(2000))
        deadline = monotonic() + PATIENCE
        while len(numbers) < 2000 and monotonic() < deadline:
            link.drain(0.5)
        link.close()

        assert numbers == list(range(2000))
        assert left_in(connect, queue, 0) == []


class LostLinkContract:
    """For brokers that give out again what a link held when it was lost."""

    def test_what_another_link_delivered_is_neither_kept_nor_settled(self, connect: Connect) -> None:
        queue = some_task_queue()
        first = Taker(connect(), queue)
        send(connect(), queue, *range(3))
        first.drain(3)
        first.link.close()
        second = Taker(first.link.clone(), queue)
        second.drain(3)

        is_kept = [second.link.keep(delivery) for delivery in first.deliveries]
        first.link, link = second.link, first.link
        first.accept(0)
        for number in (1, 2):
            second.link.reject(first.of(number), requeue=number == 1)
        link.accept(first.of(0))
        second.link.drain(0)
        second.link.close()

        assert is_kept == [False, False, False]
        assert left_in(connect, queue, 3) == [0, 1, 2]


class AsideContract:
    """For brokers that can move a delivery out of the way for a while."""

    def test_what_was_set_aside_returns_as_it_was_sent_and_once(self, connect: Connect) -> None:
        queue = some_task_queue(max_priority=9)
        taker = Taker(connect(), queue)
        options = {"correlation_id": "task-1", "reply_to": "queue-1", "priority": 3}
        headers = HEADERS | {"x-mine": "stays"}
        connect().publish(DEFAULT, b'{"number": 1}', routing_key=queue.name, headers=headers, **options)  # type: ignore[arg-type]
        taker.drain(1)

        # Twice: what RabbitMQ writes into its headers is left out of the next copy.
        assert taker.link.set_aside(taker.deliveries[0], 0.05)
        taker.drain(2)
        assert taker.link.set_aside(taker.deliveries[1], 0.05)
        taker.drain(3)

        first, _, third = (each.message for each in taker.deliveries)
        assert {key: third.headers[key] for key in headers} == {key: first.headers[key] for key in headers}
        assert third._replace(headers={}) == first._replace(headers={})
        taker.accept()
        taker.link.close()
        assert left_in(connect, queue, 0) == []

    def test_what_was_set_aside_makes_room_for_others_at_once(self, connect: Connect) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue, prefetch=1)
        send(connect(), queue, *range(4))

        for number in range(3):
            taker.drain(number + 1)
            assert taker.link.set_aside(taker.of(number), 600)

        assert taker.drain(4) == [0, 1, 2, 3]

    def test_what_was_set_aside_is_neither_lost_nor_doubled_when_the_link_is_closed(
        self, connect: Connect
    ) -> None:
        queue = some_task_queue()
        taker = Taker(connect(), queue)
        send(connect(), queue, *range(20))
        taker.drain(20)

        for number in range(10):
            assert taker.link.set_aside(taker.of(number), 0.05)
        taker.link.close()

        assert left_in(connect, queue, 20) == list(range(20))

    def test_what_another_link_delivered_is_not_set_aside(self, connect: Connect) -> None:
        queue = some_task_queue()
        first = Taker(connect(), queue)
        send(connect(), queue, 1)
        first.drain(1)
        first.link.close()
        second = Taker(connect(), queue)
        second.drain(1)

        second.link.set_aside(first.deliveries[0], 600)
        second.accept()
        second.link.drain(0)
        second.link.close()

        assert left_in(connect, queue, 0) == []
