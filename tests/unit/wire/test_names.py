"""The exchanges and queues are those that Celery's nodes declare and look for."""

import pytest
from celery import Celery
from kombu.pidbox import Mailbox

from celeriac.config import Settings
from celeriac.model.message import Exchange, Queue
from celeriac.wire.names import (
    WORKER_EVENTS,
    control_exchange,
    event_exchange,
    event_queue,
    node_queue,
    reply_exchange,
    reply_queue,
)


@pytest.mark.parametrize(
    ("driver", "kind"), [("amqp", "topic"), ("memory", "topic"), ("redis", "fanout"), ("gcpubsub", "fanout")]
)
def test_events_go_through_a_topic_where_the_broker_has_one_that_serves(driver: str, kind: str) -> None:
    exchange = event_exchange("celeryev", driver)

    assert (exchange.name, exchange.type, exchange.is_durable) == ("celeryev", kind, True)


def test_the_queue_of_a_receiver_is_its_own() -> None:
    exchange = event_exchange("celeryev", "amqp")

    queue = event_queue(Settings(), exchange, unique="5f1e", routing_key=WORKER_EVENTS)

    assert queue == Queue(
        "celeryev.5f1e",
        exchange,
        "worker.#",
        is_durable=False,
        is_exclusive=True,
        is_auto_deleted=True,
        message_ttl=5.0,
        expires=60.0,
    )


def test_a_receiver_gets_all_events_unless_it_asks_for_less() -> None:
    queue = event_queue(Settings(), event_exchange("celeryev", "amqp"), unique="5f1e", max_length=9)

    assert (queue.routing_key, queue.max_length) == ("#", 9)


@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(control_exchange="shop", control_queue_ttl=7.0, control_queue_expires=3.0)],
)
def test_the_queues_of_control_are_those_of_kombu(settings: Settings) -> None:
    theirs = Mailbox(
        settings.control_exchange,
        type="fanout",
        queue_ttl=settings.control_queue_ttl,
        reply_queue_ttl=settings.control_queue_ttl,
        queue_expires=settings.control_queue_expires,
        reply_queue_expires=settings.control_queue_expires,
    )

    requests = node_queue(settings, "w1@web")
    replies = reply_queue(settings, theirs.oid)

    assert requests == converted(theirs.get_queue("w1@web"))
    assert replies == converted(theirs.get_reply_queue())
    assert (requests.exchange, replies.exchange) == (control_exchange(settings), reply_exchange(settings))


def test_a_durable_queue_stays_and_is_not_exclusive() -> None:
    settings = Settings(control_queue_durable=True, control_queue_exclusive=False)

    queue = node_queue(settings, "w1@web")

    assert (queue.is_durable, queue.is_exclusive, queue.is_auto_deleted) == (True, False, False)


def test_by_default_we_and_celery_meet() -> None:
    theirs = Celery(set_as_current=False).control.mailbox

    assert control_exchange(Settings()).name == theirs.exchange.name == "celery.pidbox"
    assert reply_exchange(Settings()).name == theirs.reply_exchange.name == "reply.celery.pidbox"
    assert node_queue(Settings(), "w1@web") == converted(theirs.get_queue("w1@web"))


def converted(queue: object) -> Queue:
    """Return a queue of kombu's as one of ours."""
    theirs: object = vars(queue)
    assert isinstance(theirs, dict)
    exchange = theirs["exchange"]
    return Queue(
        theirs["name"],
        Exchange(exchange.name, exchange.type, is_durable=exchange.durable),
        theirs["routing_key"] or "",
        is_durable=theirs["durable"],
        is_exclusive=theirs["exclusive"],
        is_auto_deleted=theirs["auto_delete"],
        message_ttl=theirs["message_ttl"],
        expires=theirs["expires"],
    )
