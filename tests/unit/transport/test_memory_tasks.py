"""What is particular to deliveries of the broker in memory: one order, cuts, and a limit over all queues."""

import pytest

from celeriac.errors import ConnectionLost
from celeriac.transport.memory import MemoryBroker
from tests.contract import DEFAULT, Listener, body, publish
from tests.contract_tasks import Taker, number_of, send, some_task_queue


def test_what_was_held_at_a_cut_comes_again_before_all_else_and_says_so() -> None:
    broker, queue = MemoryBroker(), some_task_queue()
    first = Taker(broker.connect(), queue, prefetch=3)
    send(broker.connect(), queue, *range(5))
    first.drain(3)
    first.accept(1)

    broker.cut()

    second = Taker(broker.connect(), queue)
    second.drain(4)
    came = [(number_of(each), each.message.is_redelivered) for each in second.deliveries]
    assert came == [(0, True), (2, True), (3, False), (4, False)]


def test_what_several_links_held_at_a_cut_comes_again_in_the_order_it_was_published() -> None:
    broker, queue = MemoryBroker(), some_task_queue()
    takers = [Taker(broker.connect(), queue, prefetch=1) for _ in range(3)]
    for number, taker in enumerate(takers):
        send(broker.connect(), queue, number)
        taker.drain(1)

    broker.cut()

    again = Taker(broker.connect(), queue)
    again.drain(3)
    assert [number_of(each) for each in again.deliveries] == [0, 1, 2]


def test_after_a_cut_a_link_is_lost_and_what_it_settles_changes_nothing() -> None:
    broker, queue = MemoryBroker(), some_task_queue()
    taker = Taker(broker.connect(), queue)
    send(broker.connect(), queue, 1, 2)
    taker.drain(2)
    broker.cut()

    taker.accept(1)
    taker.link.reject(taker.of(2), requeue=False)

    with pytest.raises(ConnectionLost):
        taker.link.drain(0)
    with pytest.raises(ConnectionLost):
        taker.link.consume(some_task_queue(), print, prefetch=1)
    assert Taker(broker.connect(), queue).drain(2) == [1, 2]


def test_what_goes_back_goes_in_front_of_what_waits() -> None:
    broker, queue = MemoryBroker(), some_task_queue()
    taker = Taker(broker.connect(), queue, prefetch=1)
    send(broker.connect(), queue, *range(3))
    taker.drain(1)

    taker.link.reject(taker.deliveries[0], requeue=True)
    taker.drain(2)

    assert [number_of(each) for each in taker.deliveries] == [0, 0]


def test_the_limit_counts_over_all_queues_of_a_link() -> None:
    broker = MemoryBroker()
    link = broker.connect()
    takers = [Taker(link, some_task_queue(), prefetch=3) for _ in range(2)]
    for taker in takers:
        send(broker.connect(), taker.queue, *range(5))

    drained = link.drain(0)

    assert drained == 3
    assert link.drain(0) == 0


def test_the_order_is_that_of_publishing_whatever_the_priority() -> None:
    broker, queue = MemoryBroker(), some_task_queue()
    sender = broker.connect()
    sender.declare(queue)
    for number, priority in enumerate((0, 9, 5)):
        sender.publish(DEFAULT, body(number), routing_key=queue.name, priority=priority)

    taker = Taker(broker.connect(), queue)
    taker.drain(3)

    assert [each.message.priority for each in taker.deliveries] == [0, 9, 5]


def test_what_was_published_is_on_record_as_it_was_sent() -> None:
    broker, queue = MemoryBroker(), some_task_queue()
    sender = broker.connect()
    sender.declare(queue)

    publish(sender, queue.exchange, 1, routing_key=queue.name)

    ((exchange, message),) = broker.published
    assert (exchange, message.body, message.routing_key) == (queue.exchange.name, body(1), queue.name)


def test_one_link_may_subscribe_and_consume() -> None:
    broker = MemoryBroker()
    link = broker.connect()
    tasks, news = some_task_queue(), some_task_queue()
    taker, listener = Taker(link, tasks), Listener(link, news)

    send(broker.connect(), tasks, 1)
    publish(broker.connect(), DEFAULT, 2, routing_key=news.name)

    assert (taker.drain(1), listener.drain(1)) == ([1], [2])


def test_a_queue_of_a_link_s_own_goes_with_it() -> None:
    broker = MemoryBroker()
    queue = some_task_queue(is_exclusive=True, is_auto_deleted=True)
    taker = Taker(broker.connect(), queue)
    send(broker.connect(), queue, 1)
    taker.drain(1)

    taker.link.close()

    assert Taker(broker.connect(), queue).link.drain(0) == 0
