"""The envelope of a message on Redis: what is read out of it, and what is refused."""

import json
from base64 import b64encode, encodebytes
from typing import Any

import pytest

from celeriac.errors import PeerError
from celeriac.model.message import Message
from celeriac.wire.envelope import MAX_ENVELOPE_BYTES, correlation_of, envelope_bytes, unwrap, wrap

BODY = b'{"type":"worker-heartbeat","clock":7}'


def envelope(body: object = b64encode(BODY).decode(), /, **changes: object) -> dict[str, Any]:
    """Return an envelope as kombu writes it, with changes to its parts; None leaves a part out."""
    parts = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"hostname": "celery@web1"},
        "properties": {
            "delivery_mode": 1,
            "delivery_info": {"exchange": "celeryev", "routing_key": "worker.heartbeat"},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": "8acc",
        },
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in parts.items() if value is not None}


def spelled(body: object, encoding: object) -> bytes:
    """Return an envelope whose body is spelled in some way, and says so."""
    return json.dumps(envelope(body, properties={"body_encoding": encoding})).encode()


def refusal(data: bytes) -> str:
    """Return why an envelope is refused."""
    with pytest.raises(PeerError) as caught:
        unwrap(data)
    return str(caught.value)


# -- there and back


def test_what_was_wrapped_is_what_is_unwrapped() -> None:
    wrapped = wrap(
        BODY, exchange="celeryev", routing_key="task.sent", headers={"hostname": "a@b"}, delivery_tag="1"
    )

    message = unwrap(wrapped)

    assert message == Message(BODY, headers={"hostname": "a@b"}, routing_key="task.sent", exchange="celeryev")


def test_an_envelope_of_ours_has_the_parts_of_one_of_kombus() -> None:
    wrapped = wrap(
        BODY,
        exchange="celeryev",
        routing_key="worker.heartbeat",
        headers={"hostname": "celery@web1"},
        delivery_tag="8acc",
    )

    parts = json.loads(wrapped)

    assert parts == envelope()


@pytest.mark.parametrize(("is_persistent", "mode"), [(True, 2), (False, 1)])
def test_the_delivery_mode_says_whether_a_message_is_to_be_kept(is_persistent: bool, mode: int) -> None:
    wrapped = wrap(
        BODY, exchange="", routing_key="q", headers={}, delivery_tag="1", is_persistent=is_persistent
    )

    parts = json.loads(wrapped)

    assert parts["properties"]["delivery_mode"] == mode


@pytest.mark.parametrize("body", [b"", b"[]", b"\x00\xff", "€".encode(), b"x" * 100_000])
def test_any_bytes_survive_the_envelope(body: bytes) -> None:
    wrapped = wrap(body, exchange="e", routing_key="k", headers={}, delivery_tag="1")

    message = unwrap(wrapped)

    assert message.body == body


# -- how a body may be spelled


def test_a_body_in_base_64_is_read() -> None:
    message = unwrap(json.dumps(envelope()).encode())

    assert message == Message(
        BODY, headers={"hostname": "celery@web1"}, routing_key="worker.heartbeat", exchange="celeryev"
    )


def test_a_body_in_base_64_with_line_breaks_is_read() -> None:
    body = BODY * 10
    text = encodebytes(body).decode()
    assert "\n" in text.strip()

    message = unwrap(spelled(text, "base64"))

    assert message.body == body


@pytest.mark.parametrize("encoding", ["utf-8", None, ""])
def test_a_body_in_plain_text_is_read(encoding: str | None) -> None:
    message = unwrap(spelled('{"name":"€"}', encoding))

    assert message.body == '{"name":"€"}'.encode()


@pytest.mark.parametrize("text", ["1234", "null", "true", "deadbeef", ""])
def test_a_plain_text_that_reads_like_base_64_is_taken_as_it_is(text: str) -> None:
    message = unwrap(spelled(text, "utf-8"))

    assert message.body == text.encode()


@pytest.mark.parametrize("text", ["a", "abc", "{}ab=", "é", "€€€€", "\udc80"])
def test_a_body_that_is_not_the_base_64_it_claims_to_be_is_refused(text: str) -> None:
    reason = refusal(spelled(text, "base64"))

    assert reason == "envelope"


# -- what may be missing


def test_a_key_that_is_missing_is_empty() -> None:
    data = json.dumps(envelope(properties={"body_encoding": "base64"})).encode()

    message = unwrap(data)

    assert (message.body, message.routing_key) == (BODY, "")


def test_headers_that_are_missing_are_none() -> None:
    data = json.dumps(envelope(headers=None)).encode()

    message = unwrap(data)

    assert message.headers == {}


def test_a_content_type_that_is_missing_is_not_guessed() -> None:
    data = json.dumps(envelope(content_type=None, content_encoding=None)).encode()

    message = unwrap(data)

    assert (message.content_type, message.content_encoding) == ("", "")


def test_a_body_that_is_missing_is_empty() -> None:
    data = json.dumps(envelope(None)).encode()

    message = unwrap(data)

    assert message.body == b""


def test_parts_nobody_knows_are_ignored() -> None:
    data = json.dumps(envelope(colour="red", properties={"body_encoding": "base64", "x": [1]})).encode()

    message = unwrap(data)

    assert message.body == BODY


# -- what is refused


@pytest.mark.parametrize(
    "changes",
    [
        {"properties": None},
        {"properties": []},
        {"properties": "base64"},
        {"properties": {"body_encoding": 7}},
        {"properties": {"body_encoding": ["base64"]}},
        {"properties": {"body_encoding": "base64", "delivery_info": []}},
        {"properties": {"body_encoding": "base64", "delivery_info": {"routing_key": 7}}},
        {"headers": []},
        {"headers": "hostname"},
        {"content_type": 7},
        {"content_encoding": {}},
    ],
)
def test_a_part_of_the_wrong_type_is_refused(changes: dict[str, object]) -> None:
    data = json.dumps(envelope(**changes)).encode()

    reason = refusal(data)

    assert reason == "envelope"


@pytest.mark.parametrize("body", [7, None, [], {"a": 1}, True])
@pytest.mark.parametrize("encoding", ["base64", "utf-8"])
def test_a_body_that_is_no_text_is_refused(body: object, encoding: str) -> None:
    parts = envelope(properties={"body_encoding": encoding})
    parts["body"] = body

    reason = refusal(json.dumps(parts).encode())

    assert reason == "envelope"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\x80\x04\x95",
        b"\xff\xfe{}",
        b'{"body": "\xff", "properties": {}}',
        b'{"properties": ' + b'{"a":' * 100_000,
        json.dumps(envelope()).encode()[:-1],
        json.dumps(envelope()).encode() + b"x",
    ],
)
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    reason = refusal(data)

    assert reason == "envelope"


def test_an_envelope_of_the_largest_size_is_read() -> None:
    room = MAX_ENVELOPE_BYTES - len(spelled("", "utf-8"))

    message = unwrap(spelled("x" * room, "utf-8"))

    assert len(message.body) == room


def test_an_envelope_beyond_the_largest_size_is_refused_unread() -> None:
    room = MAX_ENVELOPE_BYTES - len(spelled("", "utf-8"))

    reason = refusal(spelled("x" * (room + 1), "utf-8"))

    assert reason == "envelope-size"


# -- replies


def test_what_a_message_answers_to_is_in_its_properties() -> None:
    wrapped = wrap(
        BODY,
        exchange="",
        routing_key="queue",
        headers={},
        delivery_tag="1",
        correlation_id="task-1",
        reply_to="queue-1",
    )

    message = unwrap(wrapped)

    assert message == Message(BODY, routing_key="queue", correlation_id="task-1", reply_to="queue-1")
    properties = json.loads(wrapped)["properties"]
    assert (properties["correlation_id"], properties["reply_to"]) == ("task-1", "queue-1")


def test_where_there_is_nothing_to_answer_to_nothing_is_written() -> None:
    wrapped = wrap(BODY, exchange="", routing_key="queue", headers={}, delivery_tag="1")

    assert {"correlation_id", "reply_to"} & json.loads(wrapped)["properties"].keys() == set()


@pytest.mark.parametrize("odd", [None, 7, ["task-1"], {"id": 1}])
def test_what_is_no_text_answers_to_nothing_and_the_rest_is_read(odd: object) -> None:
    parts = envelope(properties={"body_encoding": "base64", "correlation_id": odd, "reply_to": odd})

    message = unwrap(json.dumps(parts).encode())

    assert (message.body, message.correlation_id, message.reply_to) == (BODY, "", "")


def test_the_limit_may_be_another_one() -> None:
    body = b"x" * (MAX_ENVELOPE_BYTES + 1)
    wrapped = wrap(
        body, exchange="", routing_key="queue", headers={}, delivery_tag="1", correlation_id="task-1"
    )

    assert refusal(wrapped) == "envelope-size"
    assert correlation_of(wrapped) == "task-1"
    assert unwrap(wrapped, max_bytes=envelope_bytes(len(body))).body == body


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{}", b'{"properties": {}}', b'{"properties": 1}'])
def test_of_what_is_no_envelope_it_is_not_known_what_it_answers_to(data: bytes) -> None:
    assert correlation_of(data) == ""
