"""Control requests and replies: as Celery spells them, and whatever else a peer may send."""

import json
from typing import Any

import pytest

from celeriac.errors import PeerError
from celeriac.model.message import Message
from celeriac.wire.control import (
    Reply,
    ReplyError,
    ReplyTo,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    is_addressed,
    reply_limits,
)
from tests.builders import nested

#: A request as a Celery client was seen to send it.
REVOKE: dict[str, Any] = {
    "method": "revoke",
    "arguments": {"task_id": "4bc7", "terminate": False, "signal": "SIGTERM"},
    "destination": None,
    "pattern": None,
    "matcher": None,
    "ticket": "8acc",
    "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": "2350"},
}


def request(body: object = REVOKE, /, **headers: object) -> Message:
    return Message(json.dumps(body).encode(), headers=headers)


def reply(body: object, /, **headers: object) -> Message:
    return Message(json.dumps(body).encode(), headers=headers)


def refusal(message: Message) -> str:
    with pytest.raises(PeerError) as caught:
        decode_request(message)
    return str(caught.value)


# -- requests


def test_a_request_of_celery_is_read() -> None:
    message = request(clock=17, expires=1794703817.5)

    read = decode_request(message)

    assert read == Request(
        method="revoke",
        arguments={"task_id": "4bc7", "terminate": False, "signal": "SIGTERM"},
        ticket="8acc",
        reply_to=ReplyTo("reply.celery.pidbox", "2350"),
        clock=17,
        expires_at=1794703817.5,
    )


def test_a_request_is_spelled_as_celery_spells_it() -> None:
    ours = Request(
        "revoke",
        {"task_id": "4bc7", "terminate": False, "signal": "SIGTERM"},
        ticket="8acc",
        reply_to=ReplyTo("reply.celery.pidbox", "2350"),
        clock=17,
        expires_at=5.5,
    )

    headers, body = encode_request(ours)

    assert json.loads(body) == REVOKE
    assert headers == {"clock": 17, "expires": 5.5}


def test_a_request_that_wants_no_reply_names_neither_ticket_nor_place() -> None:
    ours = Request("shutdown", {}, ("w1@web", "w2@web"))

    _, body = encode_request(ours)

    assert json.loads(body) == {
        "method": "shutdown",
        "arguments": {},
        "destination": ["w1@web", "w2@web"],
        "pattern": None,
        "matcher": None,
    }


def test_what_was_spelled_is_read_as_it_was() -> None:
    ours = Request("active", {"safe": True}, ("w1@web",), "w*", "glob", "t", ReplyTo("e", "k"), 5, 7.25)

    headers, body = encode_request(ours)

    assert decode_request(Message(body, headers=headers)) == ours


def test_a_request_needs_no_more_than_a_method() -> None:
    message = request({"method": "ping"})

    read = decode_request(message)

    assert read == Request("ping")


def test_unknown_keys_and_headers_are_left_out() -> None:
    message = request({"method": "ping", "colour": "red"}, hostname="w9@web", x_sig="00")

    read = decode_request(message)

    assert read == Request("ping")


@pytest.mark.parametrize(
    "content_type", ["application/x-python-serialize", "application/x-yaml", "text/json", ""]
)
def test_what_is_not_json_is_refused_unread(content_type: str) -> None:
    message = request()._replace(content_type=content_type)

    assert refusal(message) == "content-type"


def test_another_encoding_is_refused() -> None:
    message = request()._replace(content_encoding="utf-16")

    assert refusal(message) == "content-encoding"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"\x80\x04.", b"[" * 100_000, b'{"method": ping}'])
def test_broken_json_is_refused(body: bytes) -> None:
    message = Message(body[:65_536])

    assert refusal(message) == "json"


@pytest.mark.parametrize("body", [[], "ping", 1, None, True, [REVOKE]])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    assert refusal(request(body)) == "not-a-request"


@pytest.mark.parametrize(
    "method", [None, 1, "", "a b", "x" * 65, "__import__('os')", "é", "a\n", ["ping"], {}]
)
def test_a_method_is_a_short_plain_name(method: object) -> None:
    assert refusal(request({**REVOKE, "method": method})) == "method"


@pytest.mark.parametrize("arguments", [[], "x", 1, True, [["task_id", 1]]])
def test_arguments_are_an_object(arguments: object) -> None:
    assert refusal(request({**REVOKE, "arguments": arguments})) == "arguments"


@pytest.mark.parametrize(
    "destination",
    ["w1@web", {"w1@web": 1}, 1, [1], [None], [""], ["a\nb"], ["x" * 256], ["é" * 128], [["w1@web"]]],
)
def test_a_destination_is_a_list_of_names(destination: object) -> None:
    assert refusal(request({**REVOKE, "destination": destination})) == "destination"


@pytest.mark.parametrize("pattern", [1, ["w*"], "x" * 257, {}])
def test_a_pattern_is_a_short_text(pattern: object) -> None:
    assert refusal(request({**REVOKE, "pattern": pattern, "matcher": "glob"})) == "pattern"


@pytest.mark.parametrize("matcher", [1, ["glob"], "x" * 33])
def test_a_matcher_is_a_short_text(matcher: object) -> None:
    assert refusal(request({**REVOKE, "pattern": "w*", "matcher": matcher})) == "matcher"


@pytest.mark.parametrize("ticket", [1, "", "x" * 256, ["8acc"], "a\x00b", "\x1b[31m"])
def test_a_ticket_is_a_short_printable_text(ticket: object) -> None:
    assert refusal(request({**REVOKE, "ticket": ticket})) == "ticket"


@pytest.mark.parametrize(
    "reply_to",
    [
        "reply.celery.pidbox",
        ["reply.celery.pidbox", "2350"],
        {"exchange": "reply.celery.pidbox"},
        {"routing_key": "2350"},
        {"exchange": "", "routing_key": "celery"},
        {"exchange": "reply.celery.pidbox", "routing_key": ""},
        {"exchange": "reply.celery.pidbox", "routing_key": "x" * 256},
        {"exchange": "reply.celery.pidbox", "routing_key": "a\x06\x16b"},
        {"exchange": 1, "routing_key": 2},
        1,
        True,
    ],
)
def test_a_place_for_replies_is_two_names(reply_to: object) -> None:
    assert refusal(request({**REVOKE, "reply_to": reply_to})) == "reply-to"


@pytest.mark.parametrize("reply_to", [None, {}])
def test_no_place_for_replies_is_no_wish_for_one(reply_to: object) -> None:
    read = decode_request(request({**REVOKE, "reply_to": reply_to}))

    assert read.reply_to is None


@pytest.mark.parametrize(
    "clock", [True, "abc", [], {}, -1, 0.5, 2**53, 2**63 - 1, 2**100, 1e308, float("nan"), float("inf")]
)
def test_a_header_that_is_no_clock_is_told_from_one(clock: object) -> None:
    read = decode_request(request(clock=clock))

    assert read.clock is None


@pytest.mark.parametrize(
    ("headers", "clock"), [({}, 0), ({"clock": None}, 0), ({"clock": 0}, 0), ({"clock": 5.0}, 5)]
)
def test_a_request_without_a_clock_has_none_to_follow(headers: dict[str, object], clock: int) -> None:
    read = decode_request(request(**headers))

    assert read.clock == clock


@pytest.mark.parametrize(
    "expires", [None, True, "1", [], -5, float("nan"), float("inf"), float("-inf"), 10**400, -(10**400)]
)
def test_what_is_no_moment_means_no_expiry(expires: object) -> None:
    read = decode_request(request(expires=expires))

    assert read.expires_at == 0.0


# -- the limits of requests


def test_a_request_of_more_than_64_kib_is_refused() -> None:
    fitting = request({"method": "ping", "arguments": {"x": "y" * 60_000}})
    too_long = request({"method": "ping", "arguments": {"x": "y" * 65_536}})

    assert decode_request(fitting).method == "ping"
    assert refusal(too_long) == "size"


def test_a_request_nested_deeper_than_32_is_refused() -> None:
    fitting = request({"method": "ping", "arguments": {"x": nested(30)}})
    too_deep = request({"method": "ping", "arguments": {"x": nested(31)}})

    assert decode_request(fitting).method == "ping"
    assert refusal(too_deep) == "depth"


def test_a_request_of_too_many_items_is_refused() -> None:
    fitting = request({"method": "revoke", "arguments": {"task_id": ["t"] * 2000}})
    too_many = request({"method": "revoke", "arguments": {"task_id": ["t"] * 2100}})

    assert decode_request(fitting).method == "revoke"
    assert refusal(too_many) == "items"


def test_a_number_that_no_64_bits_hold_is_refused() -> None:
    assert refusal(request({"method": "ping", "arguments": {"x": 2**70}})) == "integer"


def test_a_hello_may_bring_all_the_ids_that_a_full_node_holds() -> None:
    # As Celery up to 5.6 spells it, the longest of the shapes.
    ids = {f"{n:036}": [811.720793978, f"{n:036}"] for n in range(50_000)}
    message = request({"method": "hello", "arguments": {"from_node": "w1@web", "revoked": ids}})

    read = decode_request(message)

    assert read.arguments["revoked"] == ids


def test_no_command_becomes_longer_by_a_hello_inside_of_it() -> None:
    body = {"method": "ping", "arguments": {"method": "hello", "x": ["y" * 40] * 2000}}

    assert refusal(request(body)) == "size"


def test_nan_and_infinity_are_read_as_nothing() -> None:
    message = Message(b'{"method": "ping", "arguments": {"a": NaN, "b": Infinity, "c": -Infinity}}')

    read = decode_request(message)

    assert read.arguments == {"a": None, "b": None, "c": None}


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    message = Message(b'{"method": "ping", "arguments": {"a\\ud800": "b\\udfff"}}')

    read = decode_request(message)

    assert read.arguments == {"a?": "b?"}


# -- whom a request is for


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"destination": []}, True),
        ({"destination": ["w1@web", "w2@web"]}, True),
        ({"destination": ["w2@web"]}, False),
        ({"destination": ["w1@webserver"]}, False),
        ({"pattern": "w1*", "matcher": "glob"}, True),
        ({"pattern": "w2*", "matcher": "glob"}, False),
        ({"pattern": "w[12]@", "matcher": "pcre"}, True),
        ({"pattern": "web", "matcher": "pcre"}, False),
        # One alone is nothing, as in Celery.
        ({"pattern": "w2*"}, True),
        ({"matcher": "glob"}, True),
        ({"pattern": "", "matcher": "glob"}, True),
        # The names come first.
        ({"destination": ["w1@web"], "pattern": "w2*", "matcher": "glob"}, True),
    ],
)
def test_a_request_is_for_whom_it_names(fields: dict[str, object], expected: bool) -> None:
    read = decode_request(request({"method": "ping", **fields}))

    assert is_addressed(read, "w1@web") is expected


# -- replies


def test_a_reply_of_celery_is_read() -> None:
    message = reply({"w1@capture": {"ok": "pong"}}, ticket="8acc", clock=99)

    read = decode_reply(message)

    assert read == Reply("w1@capture", {"ok": "pong"}, "8acc", 99, len(message.body))


def test_a_reply_is_spelled_as_celery_spells_it() -> None:
    ours = Reply("w1@web", {"ok": "pong"}, "8acc", 99)

    headers, body = encode_reply(ours)

    assert json.loads(body) == {"w1@web": {"ok": "pong"}}
    assert headers == {"ticket": "8acc", "clock": 99}


@pytest.mark.parametrize("body", [{}, [], "w1@web", None, 1, {"w1@web": 1, "w2@web": 2}])
def test_a_reply_is_of_one_node(body: object) -> None:
    with pytest.raises(PeerError, match=r"^not-a-reply$"):
        decode_reply(reply(body))


@pytest.mark.parametrize("node", ["", "x" * 256, "a\nb", "\x1b[2J"])
def test_a_reply_is_of_a_node_with_a_name(node: str) -> None:
    with pytest.raises(PeerError, match=r"^node$"):
        decode_reply(reply({node: 1}))


@pytest.mark.parametrize("ticket", [1, "x" * 256, ["8acc"]])
def test_a_reply_with_an_odd_ticket_is_refused(ticket: object) -> None:
    with pytest.raises(PeerError, match=r"^ticket$"):
        decode_reply(reply({"w1@web": 1}, ticket=ticket))


def test_a_pickled_reply_is_refused_unread() -> None:
    message = reply({"w1@web": 1})._replace(content_type="application/x-python-serialize")

    with pytest.raises(PeerError, match=r"^content-type$"):
        decode_reply(message)


@pytest.mark.parametrize(
    ("value", "reason"),
    [("x" * 2**20, "size"), (nested(33), "depth"), ([0] * 100_001, "items"), (2**70, "integer")],
)
def test_the_node_of_a_reply_that_cannot_be_taken_is_known(value: object, reason: str) -> None:
    message = reply({"w1@web": value}, ticket="8acc")

    with pytest.raises(ReplyError) as caught:
        decode_reply(message)

    assert (str(caught.value), caught.value.node, caught.value.ticket) == (reason, "w1@web", "8acc")


@pytest.mark.parametrize("body", [b"[" + b" " * 2**20 + b"]", b'{"w1@web": ' + b"[" * 2**20, b"\xff" * 2**21])
def test_a_long_body_that_is_no_reply_is_refused(body: bytes) -> None:
    with pytest.raises(PeerError, match=r"^size$") as caught:
        decode_reply(Message(body))

    assert not isinstance(caught.value, ReplyError)


@pytest.mark.parametrize("command", ["active", "reserved", "scheduled", "dump_schedule"])
def test_a_list_of_as_many_tasks_as_a_worker_holds_for_their_eta_is_taken(command: str) -> None:
    info = {f"field{number}": "x" * 12 for number in range(14)} | {"args": ["x"], "delivery_info": {"x": "y"}}
    tasks = [{"eta": "9999-01-01T00:00:00+00:00", "priority": None, "request": info}] * 10_000
    message = reply({"w1@web": tasks})

    read = decode_reply(message, reply_limits(command))

    assert read.value == tasks
    with pytest.raises(ReplyError):
        decode_reply(message, reply_limits("ping"))


@pytest.mark.parametrize("command", ["hello", "revoked"])
def test_all_the_ids_of_a_full_node_are_taken_from_the_commands_that_tell_them(command: str) -> None:
    ids = [f"{n:036}" for n in range(50_000)]
    message = reply({"w1@web": ids})

    read = decode_reply(message, reply_limits(command))

    assert read.value == ids
    with pytest.raises(ReplyError):
        decode_reply(message, reply_limits("ping"))
