"""Entries of what is taken and not settled, as kombu writes and reads them."""

import json
from typing import Any

import pytest
from kombu.utils.json import loads

from celeriac.errors import PeerError
from celeriac.wire.envelope import MAX_ENVELOPE_BYTES, opened, unwrap, wrap
from celeriac.wire.unacked import priority_of, read_unacked, returned, sheltered, unacked_ending

BODY = b'[[1], {}, {"chain": null}]'
HEADERS: dict[str, object] = {"id": "4b5d", "stamped_headers": [], "stamps": {}, "large": 2**70, "float": 0.1}


def envelope(**options: Any) -> bytes:
    given = {"exchange": "", "routing_key": "celery", "headers": HEADERS, "delivery_tag": "1"} | options
    return wrap(BODY, **given)


def entry(data: bytes, queue: str = "celery") -> bytes:
    return b"[" + data + unacked_ending(queue)


# -- an entry


@pytest.mark.parametrize("queue", ["celery", "täsks €", 'a "quoted" name', "back\\slash", "\x06\x16"])
def test_an_entry_leads_back_to_its_queue_for_us_and_for_kombu(queue: str) -> None:
    data = entry(envelope(), queue)

    ours, theirs = read_unacked(data), loads(data.decode())

    assert (ours.exchange, ours.routing_key) == ("", queue)
    assert theirs == [json.loads(envelope()), "", queue]


@pytest.mark.parametrize(("exchange", "key"), [(None, None), ("", ""), ("tasks", "tasks.all")])
def test_an_entry_of_kombus_is_read(exchange: str | None, key: str | None) -> None:
    read = read_unacked(json.dumps([{"body": ""}, exchange, key]).encode())

    assert read == ({"body": ""}, exchange or "", key or "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"null",
        b"{}",
        b"[]",
        b'[{}, ""]',
        b'[{}, "", "", ""]',
        b'["text", "", "celery"]',
        b'[{}, 7, "celery"]',
        b'[{}, "", ["celery"]]',
        b'[garbage, "", "celery"]',
        b"\xff\xfe",
        b"[" * 100_000,
        b'[{"number": ' + b"9" * 10_000 + b'}, "", "celery"]',
    ],
)
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError, match="unacked"):
        read_unacked(data)


# -- going back


def test_what_goes_back_is_what_it_was_and_says_that_it_was_given_out() -> None:
    message = unwrap(returned(read_unacked(entry(envelope())).envelope))

    assert (message.body, message.is_redelivered) == (BODY, True)
    assert message.headers == HEADERS | {"redelivered": True}


def test_what_goes_back_has_both_marks_that_kombu_sets() -> None:
    parts = json.loads(returned(json.loads(envelope())))

    assert parts["headers"]["redelivered"] is True
    assert parts["properties"]["delivery_info"]["redelivered"] is True


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"headers": None, "properties": None},
        {"headers": [], "properties": []},
        {"properties": {"delivery_info": "text"}},
    ],
)
def test_an_odd_envelope_goes_back_as_odd_as_it_was(parts: dict[str, Any]) -> None:
    data = returned(dict(parts))

    assert json.loads(data) == parts | ({"headers": {"redelivered": True}} if "headers" not in parts else {})


@pytest.mark.parametrize(
    ("priority", "expected"),
    [(0, 0), (5, 5), (9, 9), (10, 9), (-1, 0), ("7", 7), (None, 0), ("high", 0), ([], 0), (1e400, 0)],
)
def test_a_priority_is_read_as_kombu_reads_it(priority: object, expected: int) -> None:
    assert priority_of({"properties": {"priority": priority}}) == expected


@pytest.mark.parametrize("parts", [{}, {"properties": None}, {"properties": {}}])
def test_who_names_no_priority_has_the_lowest_number(parts: dict[str, Any]) -> None:
    assert priority_of(parts) == 0


# -- what is no JSON


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"{garbage}", b"\x80\x04\x95", b"{", b"{}x", b"[" * 100_000]
)
def test_what_is_no_json_is_sheltered_in_an_entry_that_can_be_read(data: bytes) -> None:
    sheltering = sheltered(data, queue="celery", tag="1")

    assert sheltering is not None
    read = read_unacked(sheltering)
    message = opened(returned(read.envelope))
    assert (read.exchange, read.routing_key) == ("", "celery")
    assert (message.body, message.fault, message.content_type) == (data, "", "application/data")


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"null", b'{"content-type": 7}', envelope()])
def test_what_is_json_needs_no_shelter(data: bytes) -> None:
    assert sheltered(data, queue="celery", tag="1") is None


def test_a_shelter_has_a_largest_size() -> None:
    sheltering = sheltered(b"x" * (MAX_ENVELOPE_BYTES + 1), queue="celery", tag="1")

    assert sheltering is not None
    assert len(sheltering) < 2 * MAX_ENVELOPE_BYTES
