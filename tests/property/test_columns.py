"""Events that become columns, and come back."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from celeriac.model.events import (
    Custom,
    Event,
    Extra,
    Failed,
    Gap,
    Other,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    WorkerHeartbeat,
    WorkerOffline,
    WorkerOnline,
)
from celeriac.store.columns import SCHEMA, to_batch, to_events
from celeriac.wire.event import Gate, encode
from tests.property.effort import COSTLY

_TEXT = st.one_of(st.none(), st.text(max_size=20))
_NAME = st.text(min_size=1, max_size=10)
_WHOLE = st.integers(0, 2**53 - 1)
_TIME = st.floats(0, 4_102_444_799.0)
_ANY_NUMBER = st.one_of(st.none(), _WHOLE)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_EXTRA = st.one_of(st.none(), st.dictionaries(st.text(), _JSON, max_size=4).map(Extra))
_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": _TIME,
    "clock": _WHOLE,
    "hostname": _NAME,
    "pid": _WHOLE,
    "utcoffset": st.floats(-48, 48),
    "local_received": st.one_of(st.none(), _TIME),
    "extra": _EXTRA,
}
_TASK = _COMMON | {"uuid": _NAME}
_DESCRIBED = _TASK | {
    **dict.fromkeys(("name", "args", "kwargs", "eta", "expires"), _TEXT),
    **dict.fromkeys(("root_id", "parent_id"), st.one_of(st.none(), _NAME)),
    "retries": _WHOLE,
}
_RAISED = _TASK | {"exception": _TEXT, "traceback": _TEXT}
_FLAG = st.one_of(st.none(), st.booleans())
_WORKER = _COMMON | {
    "freq": st.one_of(st.none(), st.floats(0.1, 86_400)),
    "active": _ANY_NUMBER,
    "processed": _ANY_NUMBER,
    "loadavg": st.one_of(st.none(), st.tuples(*[st.floats(0, 1e12)] * 3)),
    **dict.fromkeys(("sw_ident", "sw_ver", "sw_sys"), _TEXT),
}
_SIGNUM = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), _NAME)
_FIELDS: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
    Sent: _DESCRIBED
    | {**dict.fromkeys(("queue", "exchange", "routing_key"), _TEXT), "client_clock": _ANY_NUMBER},
    Received: _DESCRIBED,
    Started: _TASK,
    Succeeded: _TASK | {"result": _TEXT, "runtime": st.one_of(st.none(), st.floats(0, 1e12))},
    Failed: _RAISED,
    Retried: _RAISED,
    Rejected: _TASK | {"requeue": _FLAG},
    Revoked: _TASK | {"terminated": _FLAG, "expired": _FLAG, "signum": _SIGNUM},
    Custom: _TASK | {"subject": st.sampled_from(("progress", "größe", "a-b"))},
    Other: _COMMON
    | {"group": st.sampled_from(("worker", "shop", "ü")), "subject": st.sampled_from(("", "x", "x-y"))},
    Gap: _COMMON | {"since": _TIME, "until": _TIME, "reason": st.text(max_size=20), "attempts": _WHOLE},
    WorkerOnline: _WORKER,
    WorkerHeartbeat: _WORKER,
    WorkerOffline: _WORKER,
}
any_event: st.SearchStrategy[Event] = st.one_of(
    *(st.builds(kind, **fields) for kind, fields in _FIELDS.items())
)
any_events = st.lists(any_event, max_size=12)


@COSTLY
@given(any_events, st.integers(0, 2**50))
def test_events_come_back_from_columns_as_they_were(events: list[Event], first: int) -> None:
    batch = to_batch(events, recorder="ann-1", first=first)

    assert to_events(batch) == events
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert batch.column("sequence").to_pylist() == list(range(first, first + len(events)))
    assert batch.column("type").to_pylist() == [event.type for event in events]


@COSTLY
@given(any_events)
def test_events_come_back_from_columns_that_a_reader_took_apart_or_encoded(events: list[Event]) -> None:
    batch = to_batch(events, recorder="ann-1", first=1)

    halves = [batch.slice(0, len(events) // 2), batch.slice(len(events) // 2)]
    encoded = pa.RecordBatch.from_arrays(
        [
            column.dictionary_encode() if pa.types.is_string(column.type) else column
            for column in batch.columns
        ],
        batch.schema.names,
    )

    assert [event for half in halves for event in to_events(half)] == events
    assert to_events(encoded) == events
    assert to_events(encoded.slice(1)) == events[1:]


@COSTLY
@given(any_events)
def test_what_a_peer_sent_is_the_same_after_the_log_as_before_it(events: list[Event]) -> None:
    gate = Gate()
    sent = [encode(replace(event, local_received=None)) for event in events if type(event) is not Gap]
    received = [event for body in sent for event in gate.decode(body)]

    back = to_events(to_batch(received, recorder="ann-1", first=1))

    assert [encode(event) for event in back] == [encode(event) for event in received]
