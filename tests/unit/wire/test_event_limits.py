"""The limits of the gate: what is too big or too deep harms nothing, and is remembered by its digest."""

from hashlib import sha256

import pytest

from celeriac import Gate, Limits
from celeriac.model.events import Revoked, Succeeded
from tests.builders import DOORS, Door, body, by_dict, nested, only, task

both_doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


# -- sizes


def test_a_batch_larger_than_a_body_may_be_is_refused() -> None:
    gate = Gate(Limits(body_bytes=1000))
    batch = body([task("started")] * 10)

    events = gate.decode(batch)

    assert len(batch) > 1000
    assert events == []
    assert dict(gate.refused) == {"body-size": 1}


def test_a_batch_as_large_as_a_body_may_be_is_taken() -> None:
    batch = body([task("started")] * 10)
    gate = Gate(Limits(body_bytes=len(batch)))

    events = gate.decode(batch)

    assert len(events) == 10


def test_an_event_larger_than_an_event_may_be_is_refused() -> None:
    gate = Gate(Limits(event_bytes=1000))

    events = gate.decode(body(task("succeeded", result="x" * 1000)))

    assert events == []
    assert dict(gate.refused) == {"event-size": 1}


def test_an_event_as_large_as_an_event_may_be_is_taken() -> None:
    wire = body(task("succeeded", result="x" * 1000))
    gate = Gate(Limits(event_bytes=len(wire)))

    events = gate.decode(wire)

    assert len(events) == 1


def test_a_large_event_in_a_batch_is_refused_alone() -> None:
    gate = Gate(Limits(event_bytes=1000))

    events = gate.decode(body([task("started"), task("succeeded", result="x" * 1000), task("started")]))

    assert [event.type for event in events] == ["task-started", "task-started"]
    assert dict(gate.refused) == {"event-size": 1}


def test_a_dict_with_more_text_than_an_event_may_be_is_refused() -> None:
    gate = Gate()

    event = by_dict(gate, task("progress", pages=["x" * 60_000] * 100))

    assert event is None
    assert gate.refused.total() == 1


def test_a_batch_of_more_events_than_allowed_is_refused() -> None:
    gate = Gate(Limits(batch_events=3))

    events = gate.decode(body([task("started")] * 4))

    assert events == []
    assert dict(gate.refused) == {"batch": 1}


def test_a_batch_of_as_many_events_as_allowed_is_taken() -> None:
    gate = Gate(Limits(batch_events=3))

    events = gate.decode(body([task("started")] * 3))

    assert len(events) == 3


def test_a_batch_of_too_many_empty_objects_is_refused_as_one() -> None:
    gate = Gate()

    events = gate.decode(b"[" + b"{}," * 10_000 + b"{}]")

    assert events == []
    assert dict(gate.refused) == {"batch": 1}


# -- depth and number


@both_doors
def test_an_unknown_field_nested_as_deep_as_allowed_is_kept(door: Door) -> None:
    gate = Gate(Limits(depth=32))

    event = only(door(gate, task("progress", tree=nested(31))))

    assert event.extra == {"tree": nested(31)}


@both_doors
@pytest.mark.parametrize("levels", [32, 100, 400])
def test_an_unknown_field_nested_too_deep_is_refused(levels: int, door: Door) -> None:
    gate = Gate(Limits(depth=32))

    event = door(gate, task("progress", tree=nested(levels)))

    assert event is None
    assert dict(gate.refused) == {"depth": 1}


@both_doors
def test_a_known_field_nested_too_deep_is_dropped(door: Door) -> None:
    gate = Gate(Limits(depth=32))

    event = only(door(gate, task("succeeded", result=nested(100))))

    assert isinstance(event, Succeeded)
    assert event.result is None
    assert dict(gate.mended) == {"result": 1}


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'{"type":"task-x","a":[', b'[[{"a":'])
def test_a_body_of_a_hundred_thousand_brackets_is_refused(opening: bytes) -> None:
    gate = Gate()

    events = gate.decode(opening * (100_000 // len(opening)))

    assert events == []
    assert gate.refused.total() == 1


def test_a_dict_that_holds_itself_is_refused() -> None:
    gate = Gate()
    wire = task("progress")
    wire["self"] = wire

    event = by_dict(gate, wire)

    assert event is None
    assert dict(gate.refused) == {"depth": 1}


@both_doors
def test_as_many_unknown_items_as_allowed_are_kept(door: Door) -> None:
    gate = Gate(Limits(items=10))

    event = only(door(gate, task("progress", a=[1, 2, 3], b={"c": [4, 5], "d": 6, "e": 7})))

    assert event.extra == {"a": [1, 2, 3], "b": {"c": [4, 5], "d": 6, "e": 7}}


@both_doors
@pytest.mark.parametrize(
    "many", [{f"k{n}": n for n in range(11)}, {"k": [0] * 10}, {"k": [[1, 2, 3], [4, 5, 6, 7]]}]
)
def test_more_unknown_items_than_allowed_are_refused(many: dict[str, object], door: Door) -> None:
    gate = Gate(Limits(items=9))

    event = door(gate, task("progress", **many))

    assert event is None
    assert dict(gate.refused) == {"items": 1}


@both_doors
@pytest.mark.parametrize("integer", [2**63, -(2**63), 0])
def test_an_unknown_integer_within_64_bits_is_kept(integer: int, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("progress", n=integer)))

    assert event.extra == {"n": integer}


@both_doors
@pytest.mark.parametrize("integer", [2**63 + 1, -(2**63) - 1, 2**100])
def test_an_unknown_integer_beyond_64_bits_is_refused(integer: int, door: Door) -> None:
    gate = Gate()

    event = door(gate, task("progress", n=[integer]))

    assert event is None
    assert dict(gate.refused) == {"integer": 1}


@both_doors
@pytest.mark.parametrize("integer", [2**63 + 1, -(2**63) - 1, 2**100])
def test_a_signal_number_beyond_64_bits_is_dropped(integer: int, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("revoked", signum=integer)))

    assert isinstance(event, Revoked)
    assert event.signum is None
    assert dict(gate.mended) == {"signum": 1}


def test_a_signal_number_too_long_to_print_is_dropped() -> None:
    gate = Gate()

    event = only(by_dict(gate, task("revoked", signum=10**5000)))

    assert isinstance(event, Revoked)
    assert event.signum is None


@pytest.mark.parametrize("name", ["clock", "timestamp", "pid", "signum", "n"])
def test_an_integer_too_long_to_parse_is_refused(name: str) -> None:
    gate = Gate()
    wire = body(task("revoked", **{name: "@"})).replace(b'"@"', b"9" * 50_000)

    events = gate.decode(wire)

    assert events == []
    assert dict(gate.refused) == {"json": 1}


@both_doors
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_an_unknown_number_that_is_not_finite_is_null(number: float, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("progress", n=[number, 1.5])))

    assert event.extra == {"n": [None, 1.5]}


@pytest.mark.parametrize("value", [{1: 2}, {None: 1}, {("a",): 1}])
def test_a_dict_with_keys_that_no_json_has_is_refused(value: dict[object, object]) -> None:
    gate = Gate()

    event = by_dict(gate, task("progress", n=value))

    assert event is None
    assert dict(gate.refused) == {"not-json": 1}


# -- quarantine


def test_a_refused_body_is_remembered_by_its_digest() -> None:
    gate = Gate()

    gate.decode(b"not json")

    assert list(gate.quarantine) == [("json", sha256(b"not json").hexdigest(), 8)]


def test_a_refused_event_of_a_batch_is_remembered_alone() -> None:
    gate = Gate()

    gate.decode(b'[{"type":"x"},7]')

    assert [(entry.reason, entry.size) for entry in gate.quarantine] == [
        ("hostname", 12),
        ("not-an-event", 1),
    ]


def test_the_quarantine_keeps_the_last_ones_and_no_more() -> None:
    gate = Gate(Limits(quarantine=3))

    for size in range(1, 11):
        gate.decode(b"x" * size)

    assert [entry.size for entry in gate.quarantine] == [8, 9, 10]
    assert dict(gate.refused) == {"json": 10}


def test_an_event_that_is_taken_is_not_in_quarantine() -> None:
    gate = Gate()

    gate.decode(body(task("started", clock="abc", timestamp=None)))

    assert not gate.quarantine
