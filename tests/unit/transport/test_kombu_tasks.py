"""What is particular to deliveries through kombu: what it stumbles over, and what it says of messages."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from amqp.exceptions import PreconditionFailed

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.transport.kombu import KombuConnection, translated
from tests.contract import DEFAULT, PATIENCE, body
from tests.contract_tasks import Taker, send, some_task_queue


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


def new_link(links: ExitStack) -> KombuConnection:
    return links.enter_context(KombuConnection(Settings(broker_url="memory://")))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"properties": None},
        {"properties": {}, "body": "{}"},
        {"properties": {"delivery_tag": "1", "body_encoding": "nope"}, "body": "{}"},
        "text",
        None,
    ],
)
def test_an_envelope_that_kombu_cannot_read_keeps_no_task_from_us(links: ExitStack, raw: object) -> None:
    taker = Taker(new_link(links), some_task_queue())
    channel = links.enter_context(taker.link._kombu.channel())  # type: ignore[attr-defined]

    channel._put(taker.queue.name, raw)
    send(new_link(links), taker.queue, 2)

    assert taker.drain(1) == [2]


@pytest.mark.parametrize(
    "properties",
    [
        {"delivery_info": {"exchange": 7}, "priority": "high"},
        {"delivery_info": None, "priority": -1},
        {"priority": 1000, "correlation_id": 5},
    ],
)
def test_what_a_peer_says_badly_of_a_message_is_not_believed(
    links: ExitStack, properties: dict[str, object]
) -> None:
    taker = Taker(new_link(links), some_task_queue())
    channel = links.enter_context(taker.link._kombu.channel())  # type: ignore[attr-defined]

    channel._put(
        taker.queue.name, {"body": "{}", "headers": [], "properties": {"delivery_tag": "1", **properties}}
    )
    while not taker.deliveries:
        taker.link.drain(PATIENCE)

    message = taker.deliveries[0].message
    assert (message.exchange, message.priority, message.headers) == ("", 0, {})
    assert (message.correlation_id, message.is_redelivered) == ("", False)
    # kombu cannot put it back, and does not fail for that either.
    taker.link.reject(taker.deliveries[0], requeue=True)
    send(new_link(links), taker.queue, 2)
    taker.deliveries.clear()
    assert taker.drain(1) == [2]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms", ConnectionLost),
        ("unknown delivery tag 99", ConnectionLost),
        ("inequivalent arg 'x-max-priority' for queue 'delivery tag' in vhost '/'", AccessRefused),
    ],
)
def test_to_settle_too_late_is_a_lost_link_and_no_refusal(text: str, kind: type[Exception]) -> None:
    error = PreconditionFailed(f"PRECONDITION_FAILED - {text}", (60, 80), 406)

    assert type(translated(error, "amqp://web1//")) is kind


def test_an_expiration_is_told_in_milliseconds(links: ExitStack) -> None:
    queue = some_task_queue()
    sender = new_link(links)
    sender.declare(queue)

    sender.publish(DEFAULT, body(1), routing_key=queue.name, expiration=1.5)

    raw = links.enter_context(sender._kombu.channel())._get(queue.name)
    assert raw["properties"]["expiration"] == "1500"


def test_a_link_that_only_subscribes_is_woken_too(links: ExitStack) -> None:
    link = new_link(links)
    link.subscribe(some_task_queue(), print)

    link.wake()

    assert link.drain(None) == 0
