"""Events as columns: what a log holds, and back to the very events that were recorded.

Each field of a record that Celery's events are known to have is a column of its own, and what else an
event said is JSON in ``rest``. Rows are of all types, so most columns of a row are null; a null costs
nothing on disk. The table below is the whole schema, and :data:`VERSION` is its number.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from celeriac.errors import CallerError
from celeriac.model.events import EVENT_CLASSES, Custom, Event, Extra, Gap, Other

__all__ = ["SCHEMA", "TEXTS", "VERSION", "event_moment", "to_batch", "to_events"]

#: Goes up when a column changes its meaning or goes away. One that is added keeps it.
VERSION: Final = 1

_TEXT, _NUMBER, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_COLUMNS: Final[dict[str, pa.DataType]] = {
    # What the recorder knows.
    "recorder": _TEXT,
    "sequence": _NUMBER,
    "received_at": _REAL,
    # What every event says.
    "type": _TEXT,
    "timestamp": _REAL,
    "clock": _NUMBER,
    "hostname": _TEXT,
    "pid": _NUMBER,
    "utcoffset": _REAL,
    # What a task is.
    "uuid": _TEXT,
    "name": _TEXT,
    "args": _TEXT,
    "kwargs": _TEXT,
    "root_id": _TEXT,
    "parent_id": _TEXT,
    "retries": _NUMBER,
    "eta": _TEXT,
    "expires": _TEXT,
    "queue": _TEXT,
    "exchange": _TEXT,
    "routing_key": _TEXT,
    "client_clock": _NUMBER,
    # What became of it.
    "result": _TEXT,
    "runtime": _REAL,
    "exception": _TEXT,
    "traceback": _TEXT,
    "requeue": _FLAG,
    "terminated": _FLAG,
    "signum": _TEXT,
    "expired": _FLAG,
    # How a worker is.
    "freq": _REAL,
    "active": _NUMBER,
    "processed": _NUMBER,
    "loadavg": pa.list_(_REAL, 3),
    "sw_ident": _TEXT,
    "sw_ver": _TEXT,
    "sw_sys": _TEXT,
    # When nobody listened.
    "since": _REAL,
    "until": _REAL,
    "reason": _TEXT,
    "attempts": _NUMBER,
    # All else.
    "rest": _TEXT,
}
SCHEMA: Final = pa.schema(
    [pa.field(name, kind) for name, kind in _COLUMNS.items()],
    metadata={"celeriac.schema": str(VERSION)},
)
#: The columns that hold what users wrote, and so may hold their secrets.
TEXTS: Final = ("args", "kwargs", "result", "exception", "traceback", "rest")

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def _fields_of(kind: type[Event]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name in _COLUMNS)


_KINDS: Final[tuple[type[Event], ...]] = (*EVENT_CLASSES.values(), Custom, Other, Gap)
_FIELDS: Final = {kind: _fields_of(kind) for kind in _KINDS}
_GETTERS: Final[dict[str, Callable[[Event], Any]]] = {name: attrgetter(name) for name in _COLUMNS}


def event_moment(event: Event) -> float:
    """Return when an event happened: by its sender's clock, or by ours where that cannot be read."""
    return event.timestamp or event.local_received or 0.0


def to_batch(events: Sequence[Event], *, recorder: str, first: int) -> pa.RecordBatch:
    """Return events as rows in the same order, the first of them number ``first`` of its recorder."""
    groups: dict[type[Event], list[Event]] = {}
    places: dict[type[Event], list[int]] = {}
    for number, event in enumerate(events, first):
        kind = type(event)
        if kind not in groups:
            groups[kind], places[kind] = [], []
        groups[kind].append(event)
        places[kind].append(number)
    parts = [_part(kind, groups[kind], numbers, recorder) for kind, numbers in places.items()]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts, SCHEMA).combine_chunks()
    ordered = table.take(pc.sort_indices(table["sequence"]))
    return ordered.combine_chunks().to_batches()[0]


def _part(kind: type[Event], events: list[Event], numbers: list[int], recorder: str) -> pa.RecordBatch:
    """Return events of one kind as rows."""
    if kind not in _FIELDS:
        raise CallerError(
            f"{kind.__name__} is not an event type that can be recorded: use the types of celeriac.events"
        )
    size = len(events)
    if kind is Custom or kind is Other:
        types = pa.array([event.type for event in events], _TEXT)
    else:
        types = pa.repeat(pa.scalar(events[0].type, _TEXT), size)
    columns: dict[str, pa.Array] = {
        "recorder": pa.repeat(pa.scalar(recorder, _TEXT), size),
        "sequence": pa.array(numbers, _NUMBER),
        "received_at": pa.array([event.local_received for event in events], _REAL),
        "type": types,
    }
    for name in _FIELDS[kind]:
        values: list[Any] = list(map(_GETTERS[name], events))
        if name == "signum":
            values = [None if value is None else _encode(value).decode() for value in values]
        columns[name] = pa.array(values, _COLUMNS[name])
    rest = [None if event.extra is None else _encode(event.extra).decode() for event in events]
    columns["rest"] = pa.array(rest, _TEXT)
    return pa.RecordBatch.from_arrays(
        [columns[name] if name in columns else pa.nulls(size, kind) for name, kind in _COLUMNS.items()],
        schema=SCHEMA,
    )


def to_events(batch: pa.RecordBatch) -> list[Event]:
    """Return the events of rows, in the same order, each as it was recorded."""
    events: list[Event] = [None] * batch.num_rows  # type: ignore[list-item]  # all are filled below
    if not events:
        return events
    types = batch.column("type")
    if not pa.types.is_dictionary(types.type):
        types = types.dictionary_encode()
    codes = types.indices
    for code, type_ in enumerate(types.dictionary.to_pylist()):
        is_of_type = pc.equal(codes, code)
        places = pc.indices_nonzero(is_of_type)
        if not len(places):
            continue
        rows = batch.select(_columns_of(type_))
        made = _made(type_, rows if len(places) == len(events) else rows.take(places))
        for place, event in zip(_values(places), made, strict=True):
            events[place] = event
    return events


def _columns_of(type_: str) -> list[str]:
    """Return the columns that rows of a type can have."""
    kind = EVENT_CLASSES.get(type_)
    names = _FIELDS[kind] if kind is not None else {*_FIELDS[Gap], *_FIELDS[Custom]}
    return [*names, *_COLUMN_OF.values()]


def _made(type_: str, rows: pa.RecordBatch) -> list[Event]:
    """Return the events of rows of one type."""
    kind = EVENT_CLASSES.get(type_)
    if kind is not None:
        return _records(kind, rows)
    if type_ == f"{Gap.group}-{Gap.subject}":
        return _gaps(rows)
    group, _, subject = type_.partition("-")
    if group == "task" and subject:
        return _records(Custom, rows, subject=subject)
    return _records(Other, rows, group=group, subject=subject)


def _gaps(rows: pa.RecordBatch) -> list[Event]:
    """Return the gaps that our receivers told of, and what peers sent under the same type."""
    is_ours = rows.column("since").is_valid()
    ours = iter(_records(Gap, rows.filter(is_ours)))
    others = iter(_records(Other, rows.filter(pc.invert(is_ours)), group=Gap.group, subject=Gap.subject))
    return [next(ours) if flag else next(others) for flag in is_ours.to_pylist()]


def _records(kind: type[Event], rows: pa.RecordBatch, **given: str) -> list[Event]:
    columns = [_field(name, rows, given) for name in _select_logged_fields(kind)]
    return _BUILDERS[kind](zip(*columns, strict=True))


def _select_logged_fields(kind: type[Event]) -> list[str]:
    """Return the fields of a record that a log holds: a clock that a receiver gave is not among them."""
    return [name for name in kind.__struct_fields__ if name != "local_clock"]


def _field(name: str, rows: pa.RecordBatch, given: dict[str, str]) -> Iterable[Any]:
    """Return the values of a field of all rows."""
    if name in given:
        return repeat(given[name], rows.num_rows)
    column = rows.column(_COLUMN_OF.get(name, name))
    if column.null_count == rows.num_rows:
        return repeat(None, rows.num_rows)
    values = _values(column)
    spell = _SPELLED.get(name)
    return values if spell is None else [None if value is None else spell(value) for value in values]


def _builder(kind: type[Event]) -> Callable[[Iterable[tuple[Any, ...]]], list[Event]]:
    """Return a function that makes records of rows of all their fields.

    It is written out with the names of the fields, as a dataclass writes its own: to hand each
    record a dict takes six times as long, and this is what the speed of a replay comes down to.
    """
    names = _select_logged_fields(kind)
    given = ", ".join(f"{name}={name}" for name in names)
    source = f"lambda rows: [kind({given}) for {', '.join(names)} in rows]"
    builder: Callable[[Iterable[tuple[Any, ...]]], list[Event]] = eval(source, {"kind": kind})  # noqa: S307 - of our own names alone
    return builder


_BUILDERS: Final = {kind: _builder(kind) for kind in _KINDS}
#: Fields whose column has another name, and those that are spelled otherwise in it.
_COLUMN_OF: Final = {"local_received": "received_at", "extra": "rest"}
_SPELLED: Final[dict[str, Callable[[Any], object]]] = {
    "extra": lambda text: Extra(_decode(text)),
    "signum": _decode,
    "loadavg": tuple,
}


#: How the bytes of numbers are read.
_LAYOUTS: Final[dict[Any, Any]] = {pa.float64(): "d", pa.int64(): "q", pa.int32(): "i", pa.uint64(): "Q"}


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; plain numbers as the bytes they are, which is several times as quick."""
    if pa.types.is_dictionary(column.type):
        values = [*column.dictionary.to_pylist(), None]
        codes = column.indices.fill_null(len(values) - 1) if column.null_count else column.indices
        return [values[code] for code in _values(codes)]
    layout = None if column.null_count else _LAYOUTS.get(column.type)
    if layout is not None:
        numbers: memoryview[Any] = memoryview(column.buffers()[1]).cast("B").cast(layout)
        return list(numbers[column.offset : column.offset + len(column)])
    made: list[Any] = column.to_pylist()
    return made
