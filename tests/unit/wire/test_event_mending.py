"""The gate for events: what is wrong in them is mended and counted, or they are refused for it."""

import pytest
from msgspec.structs import asdict

from celeriac import Gate
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

DAY = 86_400.0
NAN, INFINITY = float("nan"), float("inf")
BAD_CLOCKS: list[object] = [
    None, True, False, "", "abc", "5", [], [5], {}, -1, -1.0, 0.5, NAN, INFINITY, -INFINITY, 2**53, 2**63,
    2**100, 1e308,
]  # fmt: skip

both_doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
each_known_type = pytest.mark.parametrize("wire", WIRE_EVENTS.values(), ids=WIRE_EVENTS)

# -- clocks and timestamps


@both_doors
@pytest.mark.parametrize("clock", BAD_CLOCKS)
def test_a_bad_clock_is_mended_to_none_and_the_event_is_kept(clock: object, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("started", clock=clock)))

    assert event == only(door(gate, task("started", clock=0)))
    assert dict(gate.mended) == {"clock": 1}


@both_doors
@each_known_type
def test_a_blind_event_is_kept_and_counted(wire: Fields, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, {**wire, "clock": None}))

    assert event.clock == 0
    assert dict(gate.mended) == {"clock": 1}


@both_doors
def test_an_event_without_a_clock_is_kept_and_counted(door: Door) -> None:
    gate = Gate()

    event = only(door(gate, without(task("started"), "clock")))

    assert event.clock == 0
    assert dict(gate.mended) == {"clock": 1}


@both_doors
def test_an_integral_float_is_a_good_clock(door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("started", clock=7.0)))

    assert event.clock == 7
    assert not gate.mended


@both_doors
@pytest.mark.parametrize(
    "timestamp",
    [
        NAN,
        INFINITY,
        -INFINITY,
        -1,
        -0.001,
        253_370_764_800.0,
        1e20,
        2**100,
        None,
        True,
        "x",
        "1794703817",
        [],
        {},
    ],
)
def test_a_bad_timestamp_is_mended_to_zero_and_the_event_is_kept(timestamp: object, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("started", timestamp=timestamp)))

    assert event == only(door(gate, task("started", timestamp=0.0)))
    assert dict(gate.mended) == {"timestamp": 1}


@both_doors
def test_an_event_without_a_timestamp_is_kept_and_counted(door: Door) -> None:
    gate = Gate()

    event = only(door(gate, without(worker("heartbeat"), "timestamp")))

    assert event.timestamp == 0.0
    assert dict(gate.mended) == {"timestamp": 1}


@pytest.mark.parametrize("wire", [task("started"), task("progress"), worker("heartbeat")])
def test_a_timestamp_more_than_a_day_after_receipt_is_mended(wire: Fields) -> None:
    gate = Gate()

    (event,) = gate.decode(body(wire), received_at=AT - DAY - 1)

    assert event.timestamp == 0.0
    assert dict(gate.mended) == {"timestamp": 1}


@pytest.mark.parametrize("received_at", [AT - DAY, AT, AT + 1000 * DAY])
def test_a_timestamp_up_to_a_day_after_receipt_is_kept(received_at: float) -> None:
    gate = Gate()

    (event,) = gate.decode(body(task("started")), received_at=received_at)

    assert event.timestamp == AT
    assert not gate.mended


def test_only_the_late_timestamps_of_a_batch_are_mended() -> None:
    gate = Gate()
    wire = [task("started", timestamp=AT), task("started", timestamp=AT + 2 * DAY)]

    events = gate.decode(body(wire), received_at=AT)

    assert [event.timestamp for event in events] == [AT, 0.0]


def test_a_timestamp_in_a_dict_is_held_against_its_time_of_receipt() -> None:
    gate = Gate()

    event = only(by_dict(gate, task("started", local_received=AT - DAY - 1)))

    assert event.timestamp == 0.0
    assert dict(gate.mended) == {"timestamp": 1}


def test_the_time_of_receipt_in_a_dict_is_told_beside_the_record() -> None:
    gate = Gate()

    converted = gate.convert(task("started", local_received=AT + 0.5))

    assert converted is not None
    assert converted[0].local_received is None
    assert converted[1] == AT + 0.5


@pytest.mark.parametrize("wire", [task("started"), task("progress")])
@pytest.mark.parametrize("forged", [AT + 1e6, "x", NAN, None])
def test_a_time_of_receipt_that_a_peer_sent_is_ignored(wire: Fields, forged: object) -> None:
    gate = Gate()

    events = gate.decode(body({**wire, "local_received": forged}))

    assert events == gate.decode(body(wire)) != []


@pytest.mark.parametrize("name", ["timestamp", "local_received", "utcoffset"])
@pytest.mark.parametrize("value", ["NaN", "sNaN", "Infinity", "-1e400"])
def test_no_decimal_that_kombu_decoded_makes_the_gate_raise(name: str, value: str) -> None:
    gate = Gate()
    wire = as_kombu_reads(task("started", **{name: {"__type__": "decimal", "__value__": value}}))

    converted = gate.convert(wire)

    assert converted is not None
    assert dict(gate.mended) == {name: 1}


# -- who speaks, and of what


@both_doors
@pytest.mark.parametrize("wire", [task("started"), task("progress"), worker("online"), worker("elect")])
@pytest.mark.parametrize("hostname", [None, "", 1, True, [], {}, ["celery@web1"], "h" * 257])
def test_an_event_without_a_proper_hostname_is_refused(wire: Fields, hostname: object, door: Door) -> None:
    gate = Gate()

    event = door(gate, {**wire, "hostname": hostname})

    assert event is None
    assert dict(gate.refused) == {"hostname": 1}


@both_doors
@pytest.mark.parametrize("wire", [task("started"), task("progress")])
@pytest.mark.parametrize("uuid", [None, "", 1, 0.5, False, [], {"a": 1}, "u" * 257])
def test_a_task_event_without_a_proper_uuid_is_refused(wire: Fields, uuid: object, door: Door) -> None:
    gate = Gate()

    event = door(gate, {**wire, "uuid": uuid})

    assert event is None
    assert dict(gate.refused) == {"uuid": 1}


@both_doors
@pytest.mark.parametrize(
    "type_", [None, "", "-", "-started", 1, True, NAN, [], ["task-started"], {}, "t" * 257]
)
def test_an_event_without_a_proper_type_is_refused(type_: object, door: Door) -> None:
    gate = Gate()

    event = door(gate, task("started") | {"type": type_})

    assert event is None
    assert dict(gate.refused) == {"type": 1}


@both_doors
@pytest.mark.parametrize("name", ["type", "hostname", "uuid"])
def test_an_event_that_lacks_its_identity_is_refused_for_that(name: str, door: Door) -> None:
    gate = Gate()

    event = door(gate, without(task("started"), name))

    assert event is None
    assert dict(gate.refused) == {name: 1}


@both_doors
def test_a_name_as_long_as_names_may_be_is_taken(door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("started", "u" * 256, hostname="h" * 256)))

    assert (asdict(event)["uuid"], event.hostname) == ("u" * 256, "h" * 256)


# -- payloads


@both_doors
@pytest.mark.parametrize(
    ("wire", "name", "bad"),
    [
        (task("received"), "name", ["shop.pay"]),
        (task("received"), "parent_id", {"id": "t0"}),
        (task("received"), "retries", -1),
        (task("received"), "retries", "2"),
        (task("sent"), "args", [1, 2]),
        (task("sent"), "client_clock", 2**53),
        (task("started"), "pid", -5),
        (task("started"), "pid", "19036"),
        (task("started"), "utcoffset", 1000),
        (task("succeeded"), "runtime", NAN),
        (task("succeeded"), "runtime", "0.1"),
        (task("failed"), "traceback", 1),
        (task("rejected"), "requeue", "yes"),
        (task("revoked"), "signum", [9]),
        (task("revoked"), "expired", 1),
        (worker("heartbeat"), "freq", 0),
        (worker("heartbeat"), "freq", INFINITY),
        (worker("heartbeat"), "active", 1.5),
        (worker("heartbeat"), "processed", "many"),
        (worker("heartbeat"), "loadavg", [1.0, 2.0]),
        (worker("heartbeat"), "loadavg", [1.0, 2.0, NAN]),
        (worker("heartbeat"), "sw_ver", 5.7),
    ],
)
def test_a_payload_field_of_the_wrong_kind_is_dropped_and_counted(
    wire: Fields, name: str, bad: object, door: Door
) -> None:
    gate = Gate()

    event = only(door(gate, {**wire, name: bad}))

    assert event == only(door(gate, without(wire, name)))
    assert dict(gate.mended) == {name: 1}
