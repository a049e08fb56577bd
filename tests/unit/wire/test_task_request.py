"""Tasks as messages: what we write, what we read, and what we refuse."""

import json
import zlib
from typing import Any

import pytest

from celeriac.errors import PeerError
from celeriac.model.message import Message
from celeriac.model.task_request import Arguments, TaskRequest
from celeriac.wire.task_request import PROTOCOL_HEADERS, decode, encode, iso, spell_body

MAX_BYTES = 10_000
BODY = spell_body(Arguments((1, "two"), {"three": 3}))
#: As Celery 5.7 writes them.
HEADERS: dict[str, object] = {
    "lang": "py",
    "task": "shop.pay",
    "id": "t1",
    "shadow": None,
    "eta": None,
    "expires": None,
    "group": None,
    "group_index": None,
    "retries": 0,
    "timelimit": [None, None],
    "root_id": "t1",
    "parent_id": None,
    "argsrepr": "(1, 'two')",
    "kwargsrepr": "{'three': 3}",
    "origin": "gen77@web1",
    "ignore_result": False,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}


def message(body: bytes = BODY, **headers: object) -> Message:
    return Message(body, headers={**HEADERS, **headers}, correlation_id="t1", reply_to="client")


def first(**fields: object) -> Message:
    """Return a message of protocol 1."""
    body = {"task": "shop.pay", "id": "t1", "args": [1], "kwargs": {}, "utc": True, **fields}
    return Message(json.dumps(body).encode(), correlation_id="t1", reply_to="client")


def read(told: Message) -> TaskRequest:
    return decode(told, max_bytes=MAX_BYTES)


def refusal(told: Message) -> str:
    with pytest.raises(PeerError) as caught:
        read(told)
    return str(caught.value)


FULL = TaskRequest(
    "t1",
    "shop.pay",
    BODY,
    "t0",
    "t0",
    "g1",
    3,
    "pay-fast",
    1_794_703_817.25,
    1_794_703_900.0,
    2,
    30.0,
    20.5,
    "(1, 'two')",
    "{'three': 3}",
    "gen77@web1",
    True,
    1,
    "client",
    "t1",
    {"traceparent": "00-ab-cd-01", "stamped_headers": ["why"], "stamps": {"why": "test"}},
)


def sent(request: TaskRequest) -> Message:
    headers, body = encode(request)
    return Message(body, headers=headers, correlation_id=request.correlation_id, reply_to=request.reply_to)


# -- what we write


def test_a_request_says_all_that_celery_says() -> None:
    headers, body = encode(TaskRequest("t1", "shop.pay", BODY))

    assert headers.keys() == HEADERS.keys()
    assert (headers["lang"], headers["root_id"], headers["timelimit"]) == ("py", "t1", [None, None])
    assert (headers["stamped_headers"], headers["stamps"]) == (None, {})
    assert body == BODY


def test_what_was_written_is_read_as_it_was() -> None:
    told = sent(FULL)

    assert read(told) == FULL


def test_the_hard_limit_comes_first() -> None:
    headers, _ = encode(FULL)

    assert headers["timelimit"] == [30.0, 20.5]


def test_moments_are_written_with_their_zone() -> None:
    headers, _ = encode(FULL)

    assert headers["eta"] == "2026-11-15T00:50:17.250000+00:00"
    assert iso(None) is None


def test_headers_of_a_user_stand_beside_those_of_the_protocol() -> None:
    headers, _ = encode(TaskRequest("t1", "shop.pay", headers={"traceparent": "00-ab", "id": "forged"}))

    assert (headers["traceparent"], headers["id"]) == ("00-ab", "t1")


# -- what we read


def test_a_task_of_celerys_is_read_without_its_body() -> None:
    request = read(message(b"not looked at"))

    assert request == TaskRequest(
        "t1",
        "shop.pay",
        b"not looked at",
        "t1",
        argsrepr="(1, 'two')",
        kwargsrepr="{'three': 3}",
        origin="gen77@web1",
        ignore_result=False,
        reply_to="client",
        correlation_id="t1",
        headers={},
    )


def test_what_the_message_leaves_to_the_task_stays_open() -> None:
    assert read(message(ignore_result=None)).ignore_result is None


def test_headers_that_are_not_the_protocols_are_kept() -> None:
    request = read(message(traceparent="00-ab", mine={"deep": [1]}, redelivered=True, stamped_headers=["a"]))

    assert request.headers == {"traceparent": "00-ab", "mine": {"deep": [1]}, "stamped_headers": ["a"]}


def test_a_compressed_body_is_unpacked() -> None:
    told = message(zlib.compress(BODY), compression="application/x-gzip")

    assert read(told).body == BODY


def test_an_id_may_be_a_uuid_as_kombu_spells_it() -> None:
    spelled = {"__type__": "uuid", "__value__": {"hex": "0" * 31 + "1"}}

    assert read(message(id=spelled)).id == "00000000-0000-0000-0000-000000000001"


def test_without_a_correlation_id_the_task_is_named_by_its_own() -> None:
    assert read(Message(BODY, headers=HEADERS)).correlation_id == "t1"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-15T00:50:17.250000+00:00", 1_794_703_817.25),
        ("2026-11-15T00:50:17.250000Z", 1_794_703_817.25),
        ("2026-11-15T01:50:17.25+01:00", 1_794_703_817.25),
        ("2026-11-15T00:50:17.25", 1_794_703_817.25),
        # The first and the last that UTC has; a float would round the last up to the year 10000.
        ("0001-01-01T00:00:00-23:59", -62_135_510_460.0),
        ("9999-12-31T23:59:59.999999", 253_402_300_799.0),
    ],
)
def test_moments_are_read_in_every_zone(text: str, at: float) -> None:
    request = read(message(eta=text, expires=text))

    assert (request.eta, request.expires) == (at, at)


def test_a_limit_of_zero_is_none() -> None:
    request = read(message(timelimit=[0, 5]))

    assert (request.time_limit, request.soft_time_limit) == (None, 5.0)


@pytest.mark.parametrize(
    ("header", "value", "field", "instead"),
    [
        ("shadow", 7, "shadow", None),
        ("shadow", "", "shadow", None),
        ("retries", "2", "retries", 0),
        ("retries", True, "retries", 0),
        ("retries", -1, "retries", 0),
        ("root_id", ["t0"], "root_id", None),
        ("parent_id", "x" * 300, "parent_id", None),
        ("group", 5, "group_id", None),
        ("group_index", "1", "group_index", None),
        ("argsrepr", None, "argsrepr", ""),
        ("argsrepr", "x" * 5000, "argsrepr", "x" * 1021 + "..."),
        ("origin", {}, "origin", None),
        ("ignore_result", "yes", "ignore_result", None),
        ("replaced_task_nesting", None, "replaced_task_nesting", 0),
    ],
)
def test_a_header_that_makes_no_sense_counts_as_absent_where_that_does_no_harm(
    header: str, value: Any, field: str, instead: object
) -> None:
    request = read(message(**{header: value}))

    assert getattr(request, field) == instead


def test_a_place_to_reply_that_no_broker_knows_is_none() -> None:
    told = message()._replace(reply_to="q" * 256)

    assert read(told).reply_to == ""


# -- what we refuse


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"task": ""}, "task-name"),
        ({"task": 7}, "task-name"),
        ({"task": "x" * 1025}, "task-name"),
        ({"task": "two\nlines"}, "task-name"),
        ({"id": None}, "no-id"),
        ({"id": ""}, "task-id"),
        ({"id": "x" * 257}, "task-id"),
        ({"id": "\ud800"}, "task-id"),
        ({"id": {"__type__": "uuid", "__value__": "no"}}, "task-id"),
        ({"eta": "tomorrow"}, "eta"),
        ({"eta": 1_794_703_817}, "eta"),
        ({"eta": "2" * 1000}, "eta"),
        ({"expires": "0000-00-00"}, "expires"),
        ({"eta": "0001-01-01T00:00:00+14:00"}, "eta"),
        ({"expires": "9999-12-31T23:59:59-23:59"}, "expires"),
        ({"timelimit": 5}, "timelimit"),
        ({"timelimit": [1, 2, 3]}, "timelimit"),
        ({"timelimit": [-1, None]}, "timelimit"),
        ({"timelimit": [float("nan"), None]}, "timelimit"),
        ({"timelimit": [None, True]}, "timelimit"),
        ({"mine": "x" * 300_000}, "headers"),
        ({"mine": list(range(2000))}, "headers"),
    ],
)
def test_a_task_that_cannot_be_understood_is_refused_with_the_reason(
    headers: dict[str, Any], reason: str
) -> None:
    assert refusal(message(**headers)) == reason


def test_headers_that_are_nested_too_deep_are_refused() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]

    assert refusal(message(mine=deep)) == "headers"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"content_type": "application/x-python-serialize"}, "content-type"),
        ({"content_encoding": "binary"}, "content-encoding"),
        ({"fault": "properties"}, "properties"),
        ({"body": b" " * (MAX_BYTES + 1)}, "body-size"),
    ],
)
def test_a_message_that_may_not_be_read_is_refused_with_the_reason(
    changes: dict[str, Any], reason: str
) -> None:
    assert refusal(message()._replace(**changes)) == reason


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    told = message(zlib.compress(b" " * 10_000_000), compression="application/x-gzip")

    assert refusal(told) == "body-size"


# -- protocol 1


def test_a_task_of_protocol_1_is_read_as_one_of_protocol_2() -> None:
    told = first(
        kwargs={"a": 1},
        retries=2,
        eta="2026-11-15T00:50:17.25",
        timelimit=[9, 5],
        taskset="g1",
        group_index=1,
    )

    request = read(told)

    assert request == TaskRequest(
        "t1",
        "shop.pay",
        b'[[1], {"a": 1}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]',
        group_id="g1",
        group_index=1,
        eta=1_794_703_817.25,
        retries=2,
        time_limit=9.0,
        soft_time_limit=5.0,
        argsrepr="(1,)",
        kwargsrepr="{'a': 1}",
        reply_to="client",
        correlation_id="t1",
        headers={},
    )


def test_of_protocol_1_callbacks_are_kept() -> None:
    callback = {"task": "shop.thank", "args": [], "kwargs": {}}

    request = read(first(callbacks=[callback]))

    assert json.loads(request.body)[2]["callbacks"] == [callback]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", "no-task"),
        (b"[]", "no-task"),
        (b"\x80\x04", "body"),
        (b"[" * 5000, "body-depth"),
        (b'{"task": "x", "id": "t1", "kwargs": []}', "ok"),
        (b'{"task": "x", "id": "t1", "kwargs": [1]}', "arguments"),
        (b'{"task": "x", "id": "t1", "args": {"a": 1}}', "arguments"),
        (b'{"task": "x"}', "no-id"),
        (b'{"task": "x", "id": "t1", "eta": "soon"}', "eta"),
        (b'{"task": "x", "id": "t1", "eta": "soon", "utc": false}', "eta"),
    ],
)
def test_a_body_of_protocol_1_that_makes_no_sense_is_refused(body: bytes, reason: str) -> None:
    told = Message(body)

    if reason == "ok":  # what is empty is none
        assert read(told).task == "x"
    else:
        assert refusal(told) == reason


def test_the_headers_of_the_protocol_are_those_that_celery_writes_and_two_of_kombus() -> None:
    assert (HEADERS.keys() - {"stamped_headers", "stamps"}) | {
        "compression",
        "redelivered",
    } == PROTOCOL_HEADERS
