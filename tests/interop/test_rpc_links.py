"""Results as messages over real brokers, to a queue that outlives its links."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from celeriac.errors import CallerError, ConnectionLost
from celeriac.model.result import StoredResult
from celeriac.testing.brokers import RabbitServer
from celeriac.testing.rabbit import RabbitNode
from celeriac.transport.amqp import AmqpConnection
from tests.links import MIB, PATIENCE, Replies, arrivals, drained, frozen, success


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is called back here ends with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["amqp", "redis"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """Each broker there is."""
    if request.param == "amqp":
        server: RabbitNode = request.getfixturevalue("rabbit_server")
        return server.url
    url: str = request.getfixturevalue("redis_url")
    return url


@pytest.fixture
def replies(broker_url: str, ends: ExitStack) -> Replies:
    return Replies(broker_url, ends)


@pytest.fixture
def hurt_replies(hurt_rabbit: RabbitServer, ends: ExitStack) -> Replies:
    return Replies(hurt_rabbit.url, ends)


def test_results_that_are_sent_arrive_in_order(replies: Replies) -> None:
    link = replies.link()
    results = [success(f"task-{number}", number) for number in range(300)]

    for meta in results:
        replies.send(meta)

    assert arrivals(link, len(results)) == results
    assert link.refused == {}


def test_one_that_has_no_way_to_its_client_keeps_no_other_from_being_sent(
    rabbit_server: RabbitNode, ends: ExitStack
) -> None:
    replies = Replies(rabbit_server.url, ends)
    link = replies.link()
    ways = [replies.queue_name, "far too long" * 40, replies.queue_name]
    results = [StoredResult(success(f"task-{number}"), way) for number, way in enumerate(ways)]

    with pytest.raises(CallerError, match="too long"):
        replies.sender.send_many(results, is_persistent=False, timeout=PATIENCE)

    assert arrivals(link, 2) == [success("task-0"), success("task-2")]


def test_what_is_sent_while_no_link_is_open_waits_in_the_queue(replies: Replies) -> None:
    link = replies.link()
    link.close()

    replies.send(success("task-1"))

    assert arrivals(replies.opened(link.clone()), 1) == [success("task-1")]


def test_a_queue_that_was_deleted_takes_no_more(replies: Replies) -> None:
    link = replies.link()
    replies.send(success("task-1"))

    link.delete()
    link.delete()

    again = replies.link()
    replies.send(success("task-2"))
    assert arrivals(again, 1) == [success("task-2")]


def test_what_nobody_waits_for_any_more_is_sent_into_the_void(amqp_url: str, ends: ExitStack) -> None:
    Replies(amqp_url, ends).send(success("task-1"))


def test_an_interrupt_ends_a_drain_of_messages(replies: Replies) -> None:
    link = replies.link()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(link.drain, 10 * PATIENCE)
        link.interrupt()

        assert waiting.result(PATIENCE) == []


@pytest.mark.parametrize("size", [9 * MIB, 20 * MIB])
def test_a_message_may_be_as_long_as_the_settings_say(replies: Replies, size: int) -> None:
    link = replies.link()
    long = success("task-1", "x" * size)

    replies.send(long)
    replies.send(success("task-2"))

    assert arrivals(link, 2) == [long, success("task-2")]


def test_a_message_that_is_longer_is_told_to_who_waits_for_it(broker_url: str, ends: ExitStack) -> None:
    replies = Replies(broker_url, ends, result_max_bytes=MIB)
    link = replies.link()

    replies.send(success("task-1", "x" * (2 * MIB)))
    replies.send(success("task-2"))

    first, second = arrivals(link, 2)
    assert (first.task_id, first.result, second) == ("task-1", None, success("task-2"))
    assert "result_max_bytes" in first.fault


def test_the_queue_is_declared_to_outlive_its_link(
    rabbit_server: RabbitNode, amqp_url: str, ends: ExitStack
) -> None:
    replies = Replies(amqp_url, ends)
    replies.link()
    columns = ("name", "durable", "auto_delete", "exclusive", "arguments")
    vhost = amqp_url.rpartition("/")[2]

    (queue,) = rabbit_server.list_queues(vhost, *columns)

    assert (queue["name"], queue["durable"]) == (replies.queue_name, True)
    assert (queue["auto_delete"], queue["exclusive"]) == (False, False)
    assert 3_600_000 in queue["arguments"].values()


def test_when_an_operator_closes_all_links_nothing_is_lost(
    hurt_rabbit: RabbitServer, hurt_replies: Replies
) -> None:
    link = hurt_replies.link()
    hurt_replies.send(success("task-1"))
    assert arrivals(link, 1) == [success("task-1")]

    assert hurt_rabbit.close_connections() > 0
    with pytest.raises(ConnectionLost):
        drained(link, lambda _: False)
    # The sender finds its link closed too, and makes another.
    hurt_replies.send(success("task-2"))

    assert arrivals(hurt_replies.opened(link.clone()), 1) == [success("task-2")]


def test_what_is_persistent_outlives_a_broker_that_is_killed(
    hurt_rabbit: RabbitServer, hurt_replies: Replies
) -> None:
    link = hurt_replies.link()
    link.close()
    hurt_replies.send(success("task-1"), is_persistent=True)

    hurt_rabbit.kill()
    with pytest.raises(ConnectionLost):
        hurt_replies.send(success("task-2"))
    hurt_rabbit.start()

    assert arrivals(hurt_replies.opened(link.clone()), 1) == [success("task-1")]


def test_a_broker_that_does_not_confirm_is_a_lost_connection(
    hurt_rabbit: RabbitServer, hurt_replies: Replies
) -> None:
    hurt_replies.link()
    hurt_replies.send(success("task-1"))

    with frozen(hurt_rabbit), pytest.raises(ConnectionLost, match="did not confirm"):
        hurt_replies.send(success("task-2"), timeout=0.2)

    hurt_replies.send(success("task-3"))


def test_a_stream_of_results_is_described_once(amqp_url: str, ends: ExitStack) -> None:
    replies = Replies(amqp_url, ends)
    link = replies.link()

    for number in range(50):
        replies.send(success(f"task-{number}"))
    arrivals(link, 50)

    connection = link._connection
    assert isinstance(connection, AmqpConnection)
    assert len(connection._descriptions) == 1
