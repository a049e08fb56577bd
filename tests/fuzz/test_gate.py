"""Structured fuzz: valid events, broken in every way that a hostile or confused peer might break them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac import Gate, Limits, State, Task, Worker, decode, encode
from celeriac.core.history import CAPS
from celeriac.model.events import Event
from tests.builders import AT, WIRE_EVENTS, Fields, nested, task, worker
from tests.property.effort import COSTLY

MAX_TASKS, MAX_WORKERS = 8, 4
TASK_NAMES, WORKER_NAMES = frozenset(dir(Task)), frozenset(dir(Worker))

# -- what is broken, and how

BASES = [
    *WIRE_EVENTS.values(),
    task("progress", done=1),
    worker("elect", id="e1", topic="t", action={}, cver=1),
]
FIELDS = sorted({name for event in BASES for name in event})
#: Names that would do harm if they became attributes.
ATTRIBUTES = [
    "extra", "group", "subject", "event", "id", "alive", "state", "history", "facts", "latest", "host",
    "children", "parent", "heartbeats", "status_string", "heartbeat_expires", "has_left", "cluster_state",
    "_facts", "_now", "__class__", "__dict__", "__slots__", "local_received", "local_clock", "client_clock",
]  # fmt: skip
#: Pieces of bytes that a reader of JSON may stumble over.
TOKENS = [
    b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1", b"null", b"[", b"]", b"{", b"}", b'"', b",", b":",
    b"\\", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\xef\xbb\xbf", b" " * 100, b"9" * 5000,
    b"[" * 100_000, b'{"a":' * 20_000, b'"' + b"x" * 70_000 + b'"',
]  # fmt: skip

# Halves of surrogate pairs included, unlike the default.
texts = st.text(st.characters(exclude_categories=()), max_size=8)
names = st.sampled_from([*FIELDS, *ATTRIBUTES]) | texts
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 2**53 - 1, 2**53, 2**63, 2**64, 2**100, -(2**63) - 1, 1e308, 253_370_764_800.0])
)
sizes = st.sampled_from(
    ["x" * 257, "x" * 65_537, "é" * 70_000, [0] * 1025, {f"k{n}": n for n in range(1025)}]
)
deep = st.sampled_from([2, 31, 32, 100, 400]).map(nested)
json_values = (
    st.none()
    | st.booleans()
    | numbers
    | texts
    | sizes
    | deep
    | st.recursive(
        numbers | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
    )
)
#: What no JSON holds, but a dict that another library decoded may.
python_values = json_values | st.sampled_from(
    [
        Decimal("NaN"), Decimal("sNaN"), Decimal("1.5"), Decimal("1e999"), b"\xff",
        datetime(2026, 1, 1, tzinfo=UTC), 10**5000, -(10**5000), 1j, {1: 2}, {None: {()}}, (1, 2, 3),
        frozenset("a"), object(), nested(50_000),
    ]
)  # fmt: skip


@st.composite
def broken(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Fields:
    """Draw a valid event, and break it up to four times."""
    event = dict(draw(st.sampled_from(BASES)))
    # Few moments and few tasks, so that events meet: doubles, forgeries, ties.
    event["timestamp"] = AT + draw(st.integers(0, 2))
    event["clock"] = draw(st.integers(0, 2))
    if "uuid" in event:
        event["uuid"] = f"t{draw(st.integers(0, 20))}"
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(sorted(event, key=repr))) if event else "type"
        match draw(st.sampled_from(["drop", "retype", "rename", "nest", "add", "multiply"])):
            case "drop":
                event.pop(name, None)
            case "retype":
                event[name] = draw(values)
            case "rename":
                event[draw(names)] = event.pop(name, None)
            case "nest":
                event[name] = draw(st.sampled_from([[event.get(name)], {name: event.get(name)}]))
            case "add":
                event[draw(names)] = draw(values)
            case _:
                event |= {f"{name}{number}": event.get(name) for number in range(20)}
    return event


@st.composite
def broken_bodies(draw: st.DrawFn) -> bytes | str:
    """Draw a message of such events, and break its bytes as well."""
    events = draw(st.lists(broken(json_values), max_size=3))
    text = json.dumps(events[0] if len(events) == 1 else events, ensure_ascii=draw(st.booleans()))
    body = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(body)))
        skipped = draw(st.integers(0, 3))
        body = body[:place] + draw(st.sampled_from(TOKENS) | st.binary(max_size=4)) + body[place + skipped :]
    return body.decode("utf-8", "surrogateescape") if draw(st.booleans()) else body


dicts = st.lists(broken(python_values), max_size=6)
bodies = st.lists(broken_bodies(), max_size=4)
received_at = st.none() | st.sampled_from([AT, AT + 1e6, AT - 1e6])

# -- what must hold


def small_state() -> State:
    return State(max_tasks_in_memory=MAX_TASKS, max_workers_in_memory=MAX_WORKERS, now=lambda: AT)


def fed(events: Iterable[Fields], messages: Iterable[bytes | str]) -> State:
    """Return a small state that was fed all of it."""
    state = small_state()
    for event in events:
        state.event(event)
    for message in messages:
        state.receive(message, received_at=AT)
    return state


def parts(value: object) -> Iterable[object]:
    """Yield a value and all that is in it."""
    yield value
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    for item in inner:
        yield from parts(item)


@COSTLY
@given(dicts)
def test_every_dict_is_either_counted_or_refused(events: list[Fields]) -> None:
    state = small_state()

    for event in events:
        state.event(event)

    assert state.event_count + state.gate.refused.total() == len(events)


@COSTLY
@given(bodies, received_at)
def test_every_event_taken_from_a_body_is_counted(messages: list[bytes | str], at: float | None) -> None:
    state = small_state()

    taken = [state.receive(message, received_at=at) for message in messages]

    assert state.event_count == sum(map(len, taken))


@COSTLY
@given(broken_bodies())
def test_a_body_without_events_is_refused_unless_it_is_an_empty_batch(message: bytes | str) -> None:
    gate = Gate()

    events = gate.decode(message)

    assert events or gate.refused or json.loads(message) == []


@COSTLY
@given(dicts, bodies)
def test_the_state_answers_every_question_afterwards(
    events: list[Fields], messages: list[bytes | str]
) -> None:
    state = fed(events, messages)

    answers = [
        repr(state),
        sorted(state.task_types()),
        list(state.tasks_by_time()),
        list(state.tasks_by_time(limit=3, reverse=False)),
        list(state.itertasks()),
        list(state.alive_workers()),
        [dict(view) for view in (state.tasks_by_type, state.tasks_by_worker)],
        [
            (task.as_dict(), task.info(), repr(task), task.phase, task.conflict, task.origin)
            for task in tasks_of(state)
        ],
        [
            (repr(known), known.id, known.heartbeat_expires, known.is_drifting)
            for known in state.workers.values()
        ],
    ]

    assert len(answers) == 9
    assert [uuid for uuid, _ in state.tasks_by_time()] == [task.uuid for _, task in state.tasks_by_time()]


def tasks_of(state: State) -> list[Task]:
    return list(state.tasks.values())


@COSTLY
@given(dicts, bodies)
def test_no_attribute_outside_the_closed_lists_exists(
    events: list[Fields], messages: list[bytes | str]
) -> None:
    state = fed(events, messages)

    names = {frozenset(dir(task)) for task in state.tasks.values()}
    worker_names = {frozenset(dir(known)) for known in state.workers.values()}

    assert names <= {TASK_NAMES}
    assert worker_names <= {WORKER_NAMES}
    assert not any(hasattr(event, "__dict__") for task in tasks_of(state) for event in task.history)


@COSTLY
@given(dicts, bodies)
def test_every_attribute_of_a_worker_has_its_own_kind(
    events: list[Fields], messages: list[bytes | str]
) -> None:
    state = fed(events, messages)

    workers = list(state.workers.items())

    for hostname, known in workers:
        assert known.hostname == hostname
        assert type(known.pid) in {int, type(None)}
        assert type(known.freq) is float
        assert 0 < known.freq <= 86_400
        assert type(known.clock) is int
        assert all(type(beat) is float for beat in known.heartbeats)
        assert type(known.alive) is bool


@COSTLY
@given(dicts, bodies)
def test_a_good_event_sent_afterwards_is_folded_right(
    events: list[Fields], messages: list[bytes | str]
) -> None:
    state = fed(events, messages)

    good = [
        task("received", "good", hostname="good@h", name="shop.pay", clock=1, timestamp=AT),
        task("started", "good", hostname="good@h", clock=2, timestamp=AT + 1),
        task("succeeded", "good", hostname="good@h", result="42", clock=3, timestamp=AT + 2),
    ]
    state.receive(json.dumps(good).encode(), received_at=AT)

    known = state.tasks["good"]
    assert (known.state, known.name, known.result) == ("SUCCESS", "shop.pay", "42")
    assert known.worker is state.workers["good@h"]
    assert known.worker.alive


@COSTLY
@given(dicts, bodies)
def test_the_state_stays_within_its_bounds(events: list[Fields], messages: list[bytes | str]) -> None:
    state = fed(events, messages)

    gate = state.gate

    assert len(state.tasks) <= MAX_TASKS
    assert len(state.workers) <= MAX_WORKERS
    assert len(state._children) <= MAX_TASKS
    assert all(len(known.heartbeats) <= 4 for known in state.workers.values())
    assert all(len(task.history) <= sum(CAPS.values()) for task in tasks_of(state))
    assert len(gate.quarantine) <= gate.limits.quarantine
    assert set(gate.mended) <= {*FIELDS, "local_received", "local_clock", "client_clock"}
    assert set(gate.refused) <= {
        "type", "hostname", "uuid", "json", "not-json", "not-an-event", "items", "integer", "depth", "batch",
        "event-size", "body-size",
    }  # fmt: skip


@COSTLY
@given(dicts, bodies)
def test_what_is_kept_of_an_event_stays_within_its_limits(
    events: list[Fields], messages: list[bytes | str]
) -> None:
    limits = Limits()
    kept = kept_events(events, messages)

    values = [value for event in kept for value in parts(event.extra or {})]

    assert all(len(value) <= limits.text_chars for value in values if isinstance(value, str))
    assert all(abs(value) <= 2**63 for value in values if isinstance(value, int))
    assert all(sum(1 for _ in parts(event.extra or {})) <= 2 * limits.items + 1 for event in kept)


@COSTLY
@given(dicts, bodies)
def test_what_was_taken_can_be_written_and_read_again(
    events: list[Fields], messages: list[bytes | str]
) -> None:
    kept = kept_events(events, messages)

    again = [decode(encode(event)) for event in kept]

    assert again == [[event] for event in kept]


def kept_events(events: Iterable[Fields], messages: Iterable[bytes | str]) -> list[Event]:
    """Return the records that the gate made of it all, without those too long to be one message."""
    gate = Gate()
    records = [converted[0] for event in events if (converted := gate.convert(event)) is not None]
    records += [record for message in messages for record in gate.decode(message)]
    return [record for record in records if len(encode(record)) <= gate.limits.event_bytes]
