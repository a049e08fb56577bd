"""The answer to a hello: revoked ids in three shapes, one shape out, and what cannot be read told apart."""

import json

import pytest
from msgspec import json as wire_json

from celeriac.model.greeting import BadGreeting, Greeting
from celeriac.wire.hello import MAX_REVOKED, decode_greeting, decode_revoked, encode_revoked


def test_a_list_of_ids_is_read_in_its_order() -> None:
    revoked = ["c", "a", "b"]

    ids = decode_revoked(revoked)

    assert ids == ["c", "a", "b"]


def test_an_object_of_stamps_is_read_oldest_first() -> None:
    revoked = {"new": 811.72, "old": 3.5, "middle": 90.0}

    ids = decode_revoked(revoked)

    assert ids == ["old", "middle", "new"]


def test_an_object_of_stamps_and_ids_is_read_oldest_first() -> None:
    revoked = {"new": [811.72, "new"], "old": [3.5, "old"], "middle": [90.0, "middle"]}

    ids = decode_revoked(revoked)

    assert ids == ["old", "middle", "new"]


def test_ids_of_one_stamp_stay_in_the_order_sent() -> None:
    revoked = {"c": 1.0, "a": 1.0, "b": 1.0}

    ids = decode_revoked(revoked)

    assert ids == ["c", "a", "b"]


def test_whole_numbers_are_stamps_too() -> None:
    revoked = {"new": 811, "old": [3, "old"], "middle": 90.5}

    ids = decode_revoked(revoked)

    assert ids == ["old", "middle", "new"]


@pytest.mark.parametrize("empty", [[], {}, ()])
def test_an_empty_shape_holds_no_ids(empty: object) -> None:
    ids = decode_revoked(empty)

    assert ids == []


@pytest.mark.parametrize("junk", [None, 1, 0.5, True, "abc", b"abc", {"a"}, object()])
def test_what_is_no_known_shape_holds_no_ids(junk: object) -> None:
    ids = decode_revoked(junk)

    assert ids == []


@pytest.mark.parametrize("junk", [None, 1, "", [], {}, ["b"], b"b", "x" * 257])
def test_what_is_no_id_is_left_out_of_a_list(junk: object) -> None:
    revoked = ["a", junk, "c"]

    ids = decode_revoked(revoked)

    assert ids == ["a", "c"]


@pytest.mark.parametrize("junk", [None, 1, "", "x" * 257, ("a", "b")])
def test_what_is_no_id_is_left_out_of_an_object(junk: object) -> None:
    revoked = {"a": 1.0, junk: 2.0, "c": 3.0}

    ids = decode_revoked(revoked)

    assert ids == ["a", "c"]


@pytest.mark.parametrize(
    "stamp", [None, "x", [], {}, [None], [[]], {"at": 1}, float("nan"), [float("nan"), "b"]]
)
def test_an_id_whose_stamp_cannot_be_read_counts_as_oldest(stamp: object) -> None:
    revoked = {"a": 1.0, "b": stamp, "c": [2.0, "c"]}

    ids = decode_revoked(revoked)

    assert ids == ["b", "a", "c"]


def test_half_a_surrogate_pair_is_no_id() -> None:
    # Python's JSON brings it in; no UTF-8, and so no hello of ours, could carry it on.
    revoked = json.loads('["a", "b\\ud800"]')

    ids = decode_revoked(revoked)

    assert wire_json.encode(encode_revoked(ids)) == b'["a"]'


@pytest.mark.parametrize("as_object", [True, False], ids=["object", "list"])
def test_of_too_many_ids_the_newest_are_kept(as_object: bool) -> None:
    sent = [f"id{number}" for number in range(MAX_REVOKED + 10)]
    revoked = {task_id: float(at) for at, task_id in enumerate(sent)} if as_object else sent

    ids = decode_revoked(revoked)

    assert ids == sent[10:]


def test_ids_are_written_as_a_list_in_their_order() -> None:
    written = encode_revoked(iter(["b", "a"]))

    assert written == ["b", "a"]


def test_what_is_written_is_read_again() -> None:
    written = encode_revoked(["b", "a", "c"])

    ids = decode_revoked(written)

    assert ids == ["b", "a", "c"]


@pytest.mark.parametrize(
    "revoked", [["a", "b"], {"b": 2.0, "a": 1.0}, {"b": [2.0, "b"], "a": [1.0, "a"]}], ids=str
)
def test_an_answer_is_read_whatever_the_shape_of_its_ids(revoked: object) -> None:
    answer = decode_greeting("w1@host", {"revoked": revoked, "clock": 99})

    assert answer == Greeting("w1@host", 99, ["a", "b"])


def test_an_answer_without_ids_has_a_clock_all_the_same() -> None:
    answer = decode_greeting("w1@host", {"clock": 99})

    assert answer == Greeting("w1@host", 99, [])


def test_what_a_node_says_of_its_clock_is_left_to_those_who_judge_clocks() -> None:
    answer = decode_greeting("w1@host", {"clock": "late", "revoked": ["a"]})

    assert answer == Greeting("w1@host", "late", ["a"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "NoneType instead of a table"),
        (["clock"], "list instead of a table"),
        ({}, "no clock"),
        ({"revoked": ["a"]}, "no clock"),
        ({"error": "KeyError('x')"}, "error: KeyError('x')"),
        ({"error": 7}, "error: int"),
    ],
)
def test_an_answer_that_cannot_be_read_says_why(value: object, reason: str) -> None:
    answer = decode_greeting("w1@host", value)

    assert answer == BadGreeting("w1@host", reason)


def test_an_error_in_an_answer_is_told_in_brief() -> None:
    answer = decode_greeting("w1@host", {"error": "x" * 100_000})

    assert isinstance(answer, BadGreeting)
    assert len(answer.reason) < 300
