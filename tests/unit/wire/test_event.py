"""The gate for events: what comes in is kept whole, and is written as it was read."""

import json
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from celeriac import Gate, decode, encode
from celeriac.model.events import EVENT_CLASSES, Custom, Event, Extra, Other, Revoked, Started
from tests.builders import (
    AT,
    DOORS,
    WIRE_EVENTS,
    Door,
    Fields,
    as_kombu_reads,
    body,
    by_dict,
    only,
    task,
    without,
    worker,
)

NAN = float("nan")

both_doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
each_known_type = pytest.mark.parametrize("wire", WIRE_EVENTS.values(), ids=WIRE_EVENTS)

# -- events we know


@both_doors
@each_known_type
def test_an_event_of_a_known_type_becomes_the_record_of_that_type(wire: Fields, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, wire))

    assert type(event) is EVENT_CLASSES[wire["type"]]
    assert event.type == wire["type"]


@both_doors
@each_known_type
def test_a_record_has_every_field_that_was_sent(wire: Fields, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, wire))

    sent = {**without(wire, "type"), **({"loadavg": tuple(wire["loadavg"])} if "loadavg" in wire else {})}
    assert {name: getattr(event, name) for name in sent} == sent
    assert event.extra is None


@both_doors
@each_known_type
def test_a_well_formed_event_is_neither_refused_nor_mended(wire: Fields, door: Door) -> None:
    gate = Gate()

    door(gate, wire)

    assert not gate.refused
    assert not gate.mended


@both_doors
def test_a_field_that_is_null_is_as_good_as_absent(door: Door) -> None:
    gate = Gate()
    # Celery: a plain revoke says so.
    wire = task("revoked", terminated=False, signum=None, expired=None)

    event = only(door(gate, wire))

    assert event == only(door(gate, without(wire, "signum", "expired")))
    assert not gate.mended


@both_doors
def test_the_signal_of_a_revoke_may_be_a_name(door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("revoked", signum="SIGTERM")))

    assert isinstance(event, Revoked)
    assert event.signum == "SIGTERM"


@both_doors
def test_a_heartbeat_on_request_leaves_the_load_open(door: Door) -> None:
    gate = Gate()
    wire = worker("heartbeat", freq=5)

    event = only(door(gate, without(wire, "active", "processed", "loadavg")))

    assert asdict(event)["freq"] == 5
    assert asdict(event)["active"] is None
    assert not gate.mended


# -- bodies


def test_a_body_of_one_object_is_one_event() -> None:
    gate = Gate()

    events = gate.decode(body(task("started")))

    assert events == [Started(hostname="celery@web1", pid=19036, clock=25, timestamp=AT, uuid="t1")]


def test_a_body_of_a_list_is_its_events_in_order() -> None:
    gate = Gate()
    wire = [task("started", f"t{number}") for number in range(24)]

    events = gate.decode(body(wire))

    assert [asdict(event)["uuid"] for event in events] == [f"t{number}" for number in range(24)]


def test_a_batch_may_mix_types_that_we_know_and_do_not_know() -> None:
    gate = Gate()

    events = gate.decode(body([task("started"), task("progress"), worker("heartbeat"), worker("elect")]))

    assert [event.type for event in events] == [
        "task-started",
        "task-progress",
        "worker-heartbeat",
        "worker-elect",
    ]


@pytest.mark.parametrize("bad", [7, None, "x", [], {}, [task("started")], {"type": "task-started"}])
def test_a_bad_event_in_a_batch_does_not_spoil_the_others(bad: object) -> None:
    gate = Gate()

    events = gate.decode(body([task("started", "t1"), bad, task("started", "t2")]))

    assert [asdict(event)["uuid"] for event in events] == ["t1", "t2"]
    assert gate.refused.total() == 1


def test_a_batch_that_only_python_can_read_keeps_its_good_events() -> None:
    gate = Gate()

    events = gate.decode(body([task("started", "t1", timestamp=NAN), {"type": NAN}, task("started", "t2")]))

    assert [asdict(event)["uuid"] for event in events] == ["t1", "t2"]
    assert dict(gate.refused) == {"type": 1}


def test_an_empty_batch_is_no_event_and_no_fault() -> None:
    gate = Gate()

    events = gate.decode(b"[]")

    assert events == []
    assert not gate.refused


@pytest.mark.parametrize("blank", [b" ", b"\n\t\r ", b" " * 1000])
@pytest.mark.parametrize(
    "wire", [task("started"), task("progress"), [task("started")], [task("progress"), {}]]
)
def test_blanks_before_a_body_change_nothing(wire: object, blank: bytes) -> None:
    plain = decode(body(wire))

    blank_led = decode(blank + body(wire))

    assert plain == blank_led != []


@pytest.mark.parametrize("wire", [task("started"), task("progress", note="é"), [task("sent", name="é"), {}]])
def test_a_text_body_is_read_as_its_bytes_are(wire: object) -> None:
    text = json.dumps(wire, ensure_ascii=False)

    events = decode(text)

    assert events == decode(text.encode()) != []


@pytest.mark.parametrize(
    "junk", [b"", b" ", b"not json", b"{", b"[", b"[1,", b"\x80\x04\x95", b"\xff\xfe", b"---\na: 1"]
)
def test_a_body_that_is_not_json_is_refused(junk: bytes) -> None:
    gate = Gate()

    events = gate.decode(junk)

    assert events == []
    assert dict(gate.refused) == {"json": 1}


@pytest.mark.parametrize("scalar", [b"1", b"-0.5", b"null", b"true", b'"task-started"', b"NaN", b"Infinity"])
def test_a_body_that_is_a_json_scalar_is_no_event(scalar: bytes) -> None:
    gate = Gate()

    events = gate.decode(scalar)

    assert events == []
    assert dict(gate.refused) == {"not-an-event": 1}


@pytest.mark.parametrize("junk", [None, 1, "task-started", b"{}", [], [task("started")], object()])
def test_what_is_no_mapping_is_no_event(junk: object) -> None:
    gate = Gate()

    converted = gate.convert(junk)

    assert converted is None
    assert dict(gate.refused) == {"not-an-event": 1}


# -- types and fields we do not know


@both_doors
def test_an_unknown_task_event_is_custom_and_has_its_fields_in_extra(door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("progress", done=3, of=[10, {"unit": "files"}])))

    assert isinstance(event, Custom)
    assert (event.uuid, event.subject, event.type) == ("t1", "progress", "task-progress")
    assert event.extra == {"done": 3, "of": [10, {"unit": "files"}]}


@both_doors
@pytest.mark.parametrize(
    ("type_", "group", "subject"),
    [
        ("worker-elect", "worker", "elect"),
        ("worker-elect-ack", "worker", "elect-ack"),
        ("cluster-suspect", "cluster", "suspect"),
        ("deploy", "deploy", ""),
        ("task", "task", ""),
    ],
)
def test_an_event_of_another_group_is_other(type_: str, group: str, subject: str, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, {**without(task("started"), "uuid"), "type": type_, "id": "e1", "cver": 1}))

    assert isinstance(event, Other)
    assert (event.group, event.subject, event.type) == (group, subject, type_)
    assert event.extra == {"id": "e1", "cver": 1}


@both_doors
@each_known_type
def test_unknown_fields_of_a_known_type_are_kept_in_extra(wire: Fields, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, {**wire, "region": "eu", "tags": ["a", None, 1.5]}))

    assert event.extra == {"region": "eu", "tags": ["a", None, 1.5]}
    assert replace(event, extra=None) == only(door(gate, wire))


@both_doors
@pytest.mark.parametrize("value", ["forged", {"deep": [1]}, 7])
@pytest.mark.parametrize(
    "name", ["extra", "group", "subject", "event", "id", "alive", "state", "history", "__class__"]
)
@pytest.mark.parametrize("wire", [task("started"), task("progress"), worker("heartbeat"), worker("elect")])
def test_a_field_named_like_an_attribute_lands_in_extra_and_changes_none(
    wire: Fields, name: str, value: object, door: Door
) -> None:
    gate = Gate()
    plain = only(door(gate, wire))

    event = only(door(gate, {**wire, name: value}))

    assert event.extra == {**(plain.extra or {}), name: value}
    assert replace(event, extra=plain.extra) == plain


def test_a_datetime_that_kombu_decoded_does_not_cost_a_custom_event() -> None:
    gate = Gate()
    # Celery: its JSON carries these types, and a task may send them with send_event.
    wire = as_kombu_reads(
        task("progress", since={"__type__": "datetime", "__value__": "2026-11-15T01:30:00+00:00"})
    )

    event = only(by_dict(gate, wire))

    assert event == only(by_dict(gate, task("progress", since="2026-11-15 01:30:00+00:00")))
    assert event.extra == {"since": "2026-11-15 01:30:00+00:00"}
    assert not gate.refused
    assert not gate.mended


# -- there and back


def _full_record(kind: type[Event]) -> Event:
    wire = next(wire for type_, wire in WIRE_EVENTS.items() if EVENT_CLASSES[type_] is kind)
    return only(by_dict(Gate(), {**wire, "region": "eu", "group": {"a": [None, 1, "é"]}}))


_COMMON: dict[str, Any] = {
    "timestamp": AT,
    "clock": 2**53 - 1,
    "hostname": "w@é",
    "pid": 1,
    "utcoffset": -3.5,
}
RECORDS = [
    *map(_full_record, EVENT_CLASSES.values()),
    Custom(**_COMMON, uuid="t1", subject="progress", extra=Extra(subject="x", done=0.5, none=None)),
    Other(**_COMMON, group="cluster", subject="suspect", extra=Extra(group="x", uuid="t1", big=2**63)),
    Other(**_COMMON, group="deploy"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{type(record).__name__}:{record.type}")
def test_what_is_encoded_decodes_to_itself(record: Event) -> None:
    written = encode(record)

    read = decode(written)

    assert read == [record]


@each_known_type
def test_a_decoded_event_is_encoded_to_what_was_sent(wire: Fields) -> None:
    (event,) = decode(body(wire))

    written = encode(event)

    assert json.loads(written) == wire


def test_a_null_field_that_is_named_extra_makes_no_difference_on_the_way_back() -> None:
    (event,) = decode(body(task("started", extra=None, clock=None)))

    again = decode(encode(event))

    assert again == [event]


def test_the_time_of_receipt_is_not_sent_on() -> None:
    event = Started(timestamp=AT, clock=1, hostname="w", uuid="t1", local_received=AT + 1)

    written = encode(event)

    assert b"local_received" not in written
