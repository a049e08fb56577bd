"""What an envelope says beside its body: where it came from, how urgent it is, and whether it came before."""

import json
from typing import Any

import pytest

from celeriac.wire.envelope import opened, unwrap, wrap


def wrapped(properties: dict[str, Any] | None = None, **headers: object) -> bytes:
    """Return an envelope with some properties changed."""
    data = wrap(b"[]", exchange="tasks", routing_key="fast", headers=headers, delivery_tag="1")
    parts = json.loads(data)
    parts["properties"] |= properties or {}
    return json.dumps(parts).encode()


@pytest.mark.parametrize("priority", [0, 3, 9, 255])
def test_a_priority_survives_the_envelope(priority: int) -> None:
    data = wrap(b"[]", exchange="", routing_key="q", headers={}, delivery_tag="1", priority=priority)

    assert unwrap(data).priority == priority
    assert json.loads(data)["properties"]["priority"] == priority


@pytest.mark.parametrize("priority", [None, "3", 3.0, True, -1, 256, 10**30, [3], {}])
def test_a_priority_that_is_no_number_or_none_there_is_counts_as_none(priority: object) -> None:
    assert unwrap(wrapped({"priority": priority})).priority == 0


def test_the_exchange_is_told() -> None:
    assert unwrap(wrapped()).exchange == "tasks"


@pytest.mark.parametrize("exchange", [None, 7, ["tasks"], {}])
def test_an_exchange_that_is_no_text_is_not_told(exchange: object) -> None:
    message = unwrap(wrapped({"delivery_info": {"exchange": exchange, "routing_key": "fast"}}))

    assert (message.exchange, message.routing_key) == ("", "fast")


def test_what_comes_for_the_first_time_does_not_say_otherwise() -> None:
    assert unwrap(wrapped()).is_redelivered is False


@pytest.mark.parametrize(
    "data",
    [wrapped(redelivered=True), wrapped({"delivery_info": {"redelivered": True}})],
    ids=["header", "property"],
)
def test_each_mark_of_kombus_says_that_a_message_came_before(data: bytes) -> None:
    assert unwrap(data).is_redelivered is True


@pytest.mark.parametrize("mark", [None, 1, "yes", [True], {}, False])
def test_a_mark_that_is_not_true_says_nothing(mark: object) -> None:
    message = unwrap(wrapped({"delivery_info": {"redelivered": mark}}, redelivered=mark))

    assert message.is_redelivered is False


def test_a_body_of_another_kind_says_so() -> None:
    data = wrap(
        b"\x80\xff",
        exchange="",
        routing_key="q",
        headers={},
        delivery_tag="1",
        content_type="application/data",
    )

    message = unwrap(data)

    assert (message.body, message.content_type, message.content_encoding) == (
        b"\x80\xff",
        "application/data",
        "binary",
    )


@pytest.mark.parametrize(
    ("data", "fault"), [(b"garbage", "envelope"), (wrapped() + b" " * 2000, "envelope-size")]
)
def test_what_cannot_be_opened_tells_why_and_is_kept(data: bytes, fault: str) -> None:
    message = opened(data, max_bytes=1000)

    assert (message.body, message.fault) == (data, fault)
