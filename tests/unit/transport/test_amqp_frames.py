"""How a message is described at RabbitMQ: as py-amqp spells it, and cut where messages begin to differ."""

import pytest
from amqp.basic_message import Message as AmqpMessage
from hypothesis import given
from hypothesis import strategies as st

from celeriac.errors import CallerError
from celeriac.transport.amqp_frames import (
    Properties,
    cut_properties,
    read_properties,
    spell_properties,
    spell_publish,
)

#: What stands before the properties when py-amqp reads them: class, weight and the size of the body.
BEFORE = b"\0<\0\0\0\0\0\0\0\0\0\0"
HEADERS = {"hostname": "celery@web1", "clock": 7, "lang": "py"}
TEXT = st.text(max_size=60)


def read(described: bytes) -> dict[str, object]:
    """Return properties as py-amqp reads them."""
    message = AmqpMessage()
    message.inbound_header(BEFORE + described)
    properties: dict[str, object] = message.properties
    return properties


def spelled(**properties: object) -> bytes:
    """Return properties as py-amqp spells them."""
    described: bytes = AmqpMessage(**properties)._serialize_properties()
    return described


@given(st.booleans(), TEXT, TEXT)
def test_py_amqp_reads_what_we_spell(is_persistent: bool, correlation_id: str, reply_to: str) -> None:
    described = spell_properties(
        HEADERS, is_persistent=is_persistent, correlation_id=correlation_id, reply_to=reply_to
    )

    expected: dict[str, object] = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "application_headers": HEADERS,
        "delivery_mode": 2 if is_persistent else 1,
        "priority": 0,
    }
    replies = {"correlation_id": correlation_id, "reply_to": reply_to}
    assert read(described) == expected | {name: text for name, text in replies.items() if text}


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXT,
        "content_encoding": TEXT,
        "application_headers": st.dictionaries(st.text(max_size=9), st.integers(0, 9), max_size=3),
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 9),
        "correlation_id": TEXT,
        "reply_to": TEXT,
        "expiration": TEXT,
        "message_id": TEXT,
        "type": TEXT,
        "app_id": TEXT,
    },
)
FIRST = ("content_type", "content_encoding", "application_headers", "delivery_mode", "priority")


@given(PROPERTIES)
def test_properties_are_cut_where_messages_begin_to_differ(properties: dict[str, object]) -> None:
    first, correlation_id, reply_to = cut_properties(spelled(**properties))

    assert read(first) == {name: value for name, value in properties.items() if name in FIRST}
    assert correlation_id == properties.get("correlation_id", "")
    assert reply_to == properties.get("reply_to", "")


def test_messages_that_differ_in_nothing_but_what_they_answer_to_share_the_rest() -> None:
    cut = {
        cut_properties(
            spell_properties(HEADERS, is_persistent=False, correlation_id=str(number), reply_to=str(number))
        )[0]
        for number in range(100)
    }

    assert cut == {spell_properties(HEADERS, is_persistent=False)}


@given(PROPERTIES, st.integers(0, 200))
def test_what_is_cut_short_comes_back_as_it_is_or_is_read_as_far_as_it_goes(
    properties: dict[str, object], at: int
) -> None:
    described = spelled(**properties)[:at]

    first, correlation_id, reply_to = cut_properties(described)

    if first == described:
        return
    assert correlation_id in {"", properties.get("correlation_id")}
    assert reply_to in {"", properties.get("reply_to")}


@given(st.binary(max_size=60))
def test_any_bytes_are_taken(described: bytes) -> None:
    first, correlation_id, reply_to = cut_properties(described)

    assert isinstance(first, bytes)
    assert isinstance(correlation_id + reply_to, str)


@given(PROPERTIES)
def test_properties_are_read_as_py_amqp_reads_them(properties: dict[str, object]) -> None:
    described = spelled(**properties)

    assert read_properties(described) == Properties(
        str(properties.get("content_type")),
        str(properties.get("content_encoding")),
        properties.get("application_headers", {}),  # type: ignore[arg-type]
        properties.get("priority", 0),  # type: ignore[arg-type]
        properties.get("correlation_id", ""),  # type: ignore[arg-type]
        properties.get("reply_to", ""),  # type: ignore[arg-type]
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_properties_or_are_refused(described: bytes) -> None:
    try:
        properties = read_properties(described)
    except ValueError:
        return

    assert isinstance(properties, Properties)


@given(PROPERTIES, st.data())
def test_properties_that_are_cut_short_are_refused_or_read_as_far_as_they_go(
    properties: dict[str, object], data: st.DataObject
) -> None:
    described = spelled(**properties)
    whole = read_properties(described)

    try:
        part = read_properties(described[: data.draw(st.integers(0, len(described)))])
    except ValueError:
        return

    assert part == whole


def test_priority_and_expiration_are_spelled_where_py_amqp_finds_them() -> None:
    described = spell_properties(
        {}, is_persistent=True, correlation_id="a", reply_to="b", priority=9, expiration="1500"
    )

    found = read(described)

    assert (found["priority"], found["expiration"]) == (9, "1500")
    assert (found["correlation_id"], found["reply_to"]) == ("a", "b")


@pytest.mark.parametrize("priority", [-1, 256])
def test_a_priority_that_is_none_is_refused(priority: int) -> None:
    with pytest.raises(CallerError, match="use 0 to 255"):
        spell_properties({}, is_persistent=True, priority=priority)


def test_an_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(CallerError, match="shorten it to 255 bytes"):
        spell_properties({}, is_persistent=True, correlation_id="x" * 256)


def test_headers_that_no_frame_can_hold_are_refused() -> None:
    properties = spell_properties({"long": "x" * 5000}, is_persistent=True)

    with pytest.raises(CallerError, match="the 4088 that the broker accepts: shorten them"):
        spell_publish(b"", channel=1, exchange="", routing_key="", properties=properties, frame_bytes=4096)
