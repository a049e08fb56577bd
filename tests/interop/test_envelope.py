"""The envelope is kombu's: each side opens what the other one closed."""

import json
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from kombu.utils.json import dumps, loads

from celeriac.model.message import Message
from celeriac.wire.envelope import body_of, unwrap, wrap

EVENT = {"type": "task-sent", "uuid": "8acc", "args": "('€',)", "clock": 7, "eta": None}


@pytest.fixture
def channel() -> Iterator[Any]:
    """A channel of a virtual transport, as the one to Redis is."""
    with kombu.Connection("memory://") as connection:
        yield connection.channel()


def published(channel: Any, body: object = EVENT, **options: Any) -> bytes:
    """Return what kombu would send to Redis for a message."""
    queue = kombu.Queue("looked-at", kombu.Exchange("celeryev", "direct"), "task.sent")(channel)
    queue.declare()
    queue.purge()
    producer = kombu.Producer(channel, exchange=queue.exchange, serializer="json")
    producer.publish(body, routing_key="task.sent", headers={"hostname": "gen7@web1"}, **options)
    # The channel to Redis writes with the same function.
    return bytes(dumps(channel._get("looked-at")), "utf-8")


def test_what_kombu_publishes_we_read(channel: Any) -> None:
    message = unwrap(published(channel))

    assert message == Message(
        message.body, headers={"hostname": "gen7@web1"}, routing_key="task.sent", exchange="celeryev"
    )
    assert json.loads(body_of(message)) == EVENT


def test_a_batch_that_kombu_publishes_we_read(channel: Any) -> None:
    message = unwrap(published(channel, [EVENT] * 24))

    assert json.loads(body_of(message)) == [EVENT] * 24


@pytest.mark.parametrize("compression", ["gzip", "bzip2"])
def test_what_kombu_packs_we_unpack(channel: Any, compression: str) -> None:
    message = unwrap(published(channel, compression=compression))

    assert "compression" in message.headers
    assert json.loads(body_of(message)) == EVENT


@pytest.mark.parametrize("encoding", ["base64", None])
def test_either_way_in_which_kombu_spells_a_body_we_read(channel: Any, encoding: str | None) -> None:
    channel.body_encoding = encoding

    data = published(channel)

    assert json.loads(body_of(unwrap(data))) == EVENT
    assert (b"base64" in data) == (encoding == "base64")


def test_a_message_that_kombu_redelivers_we_read(channel: Any) -> None:
    envelope = loads(published(channel))
    envelope["headers"]["redelivered"] = True
    envelope["properties"]["delivery_info"]["redelivered"] = True

    message = unwrap(bytes(dumps(envelope), "utf-8"))

    assert json.loads(body_of(message)) == EVENT


def test_what_we_wrap_kombu_reads(channel: Any) -> None:
    body = json.dumps(EVENT).encode()
    data = wrap(
        body,
        exchange="celeryev",
        routing_key="task.sent",
        headers={"hostname": "gen7@web1", "clock": 9},
        delivery_tag="8acc",
    )

    message = channel.message_to_python(channel.Message(loads(data), channel=channel))

    assert message.decode() == EVENT
    assert message.headers == {"hostname": "gen7@web1", "clock": 9}
    assert message.delivery_info == {"exchange": "celeryev", "routing_key": "task.sent"}
    assert (message.delivery_tag, message.content_type) == ("8acc", "application/json")


def test_an_envelope_of_ours_has_every_part_that_one_of_kombus_has(channel: Any) -> None:
    theirs = loads(published(channel))
    ours = loads(wrap(b"{}", exchange="celeryev", routing_key="task.sent", headers={}, delivery_tag="8acc"))

    missing = theirs.keys() - ours.keys(), theirs["properties"].keys() - ours["properties"].keys()

    assert missing == (set(), set())
