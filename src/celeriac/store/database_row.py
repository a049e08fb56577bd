"""Rows of a snapshot: from what is remembered of a task or a worker, joined with what is stored already.

Both joins do not care who comes first, nor how often: a task's is the union of its events, a worker's is
the later of two rows in an order that knows no ties.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from celeriac.core import facts, history
from celeriac.core.history import History
from celeriac.core.redaction import Redactor
from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.core.worker import Worker
from celeriac.model.events import AnyTaskEvent, Custom, Extra, TaskEvent
from celeriac.store.database_table import TASK_FIELDS, WORKER_FIELDS

__all__ = [
    "Row",
    "TaskNews",
    "clean_text",
    "decode_events",
    "joined_task",
    "joined_worker",
    "task_news",
    "worker_row",
]

Row = dict[str, Any]

#: Stands for the character 0, which PostgreSQL refuses in any text.
_NULL_SIGN: Final = "\N{SYMBOL FOR NULL}"
#: How JSON spells it.
_NULL_IN_JSON: Final = b"\\u0000"
#: A row that is new begins to count here or later: one that was deleted and made anew must not be taken
#: for the one that somebody has read.
_FIRST_VERSION_BITS: Final = 48


#: The type that all custom events are stored under, with their own beside it.
_CUSTOM: Final = "task-custom"


class _StoredCustom(Custom, frozen=True, kw_only=True, gc=False, tag=_CUSTOM):
    """A custom event with a mark to know it by."""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(
    tuple[AnyTaskEvent | _StoredCustom, ...], dec_hook=lambda _, value: Extra(value)
).decode
#: Where tasks are that nobody asks for their workers.
_NOWHERE: Final = ClusterState(now=float)


class TaskNews(NamedTuple):
    """What is to be stored of a task: safe for any database."""

    history: History
    #: When a receiver last heard of it; None where it did not write that in.
    seen_at: float | None


def clean_text(text: str) -> str:
    """Return a text that every database takes: no character 0 in it, and no half of a surrogate pair."""
    if text.isascii():
        return text.replace("\0", _NULL_SIGN) if "\0" in text else text
    return text.replace("\0", _NULL_SIGN).encode("utf-8", "replace").decode()


# -- tasks


def task_news(past: History, redactor: Redactor | None) -> TaskNews:
    """Return what is to be stored of the events of a task, without what is secret in them."""
    told = [event.local_received for event in past if event.local_received is not None]
    # The receipt of an event differs from one receiver to the next. Its time is kept once, for all events.
    bare = (replace(event, local_received=None, local_clock=None) for event in past)
    kept = tuple(bare if redactor is None else _redacted(bare, redactor, facts.read(past).name))
    if not _is_clean(kept):
        kept = history.merge((), tuple(_clean(event) for event in kept))
    return TaskNews(kept, max(told, default=None))


def _redacted(events: Iterable[TaskEvent], redactor: Redactor, name: str | None) -> Iterator[TaskEvent]:
    for event in events:
        redacted = redactor.event(event, name)
        assert isinstance(redacted, TaskEvent)  # noqa: S101 - as what it was given is; for the type alone
        yield redacted


def _is_clean(events: History) -> bool:
    try:
        return _NULL_IN_JSON not in _encode(events)
    except UnicodeEncodeError:
        return False


def _clean(event: TaskEvent) -> TaskEvent:
    cleaned = {name: _clean_value(value) for name, value in asdict(event).items()}
    return type(event)(**cleaned)


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        pairs = {clean_text(str(name)): _clean_value(item) for name, item in value.items()}
        return Extra(pairs) if isinstance(value, Extra) else pairs
    return [_clean_value(item) for item in value] if isinstance(value, list | tuple) else value


def joined_task(uuid: str, news: TaskNews, stored: Mapping[str, Any] | None, now: float) -> Row | None:
    """Return the row of a task with what is stored and what is new; None if nothing is new.

    Raises ValueError if what is stored cannot be read.
    """
    known: History = () if stored is None else decode_events(stored["history"])
    merged = history.merge(known, news.history)
    if merged == known and stored is not None:
        return None
    seen_at = now if news.seen_at is None else news.seen_at
    return {
        "uuid": uuid,
        **_task_fields(uuid, merged),
        "seen_at": seen_at if stored is None else max(seen_at, stored["seen_at"]),
        "history": _encode_events(merged),
        "version": _next_version(stored),
    }


def _task_fields(uuid: str, past: History) -> Row:
    task = Task.restored(uuid, _NOWHERE, past=past, latest=None)
    fields = {name: getattr(task, name) for name in TASK_FIELDS if name != "worker"}
    return fields | {"worker": task.host}


def _encode_events(events: History) -> str:
    return _encode([_said(event) for event in events]).decode()


def _said(event: TaskEvent) -> Row:
    """Return what an event says, without what it leaves open."""
    said = {name: value for name, value in asdict(event).items() if value is not None}
    return {"type": _CUSTOM if type(event) is Custom else event.type, **said}


def decode_events(text: str | bytes) -> History:
    """Return the events of a task that is stored; raises ValueError if they cannot be read."""
    return tuple(
        Custom(**asdict(event)) if type(event) is _StoredCustom else event for event in _decode(text)
    )


# -- workers


def worker_row(worker: Worker) -> Row:
    """Return what is to be stored of a worker."""
    load = worker.loadavg or (None, None, None)
    row = {
        "pid": worker.pid,
        "timestamp": worker.timestamp,
        "clock": worker.clock,
        "utcoffset": worker.utcoffset,
        "freq": worker.freq,
        "active": worker.active,
        "processed": worker.processed,
        **dict(zip(("load_1", "load_5", "load_15"), load, strict=True)),
        "sw_ident": worker.sw_ident,
        "sw_ver": worker.sw_ver,
        "sw_sys": worker.sw_sys,
        "has_left": worker.has_left,
        "seen_at": worker.seen_at or None,
        "alive_until": worker.heartbeat_expires,
    }
    return {
        "hostname": clean_text(worker.hostname),
        **{name: clean_text(value) if isinstance(value, str) else value for name, value in row.items()},
    }


def joined_worker(row: Row, stored: Mapping[str, Any] | None) -> Row | None:
    """Return the row of a worker if it is later than what is stored, else None."""
    if stored is not None and _worker_key(row) <= _worker_key(stored):
        return None
    return {**row, "version": _next_version(stored)}


def _worker_key(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Order what is told of a worker: by its own time, then by all else, so that there are no ties."""
    first = ("timestamp", "clock", "pid", "has_left", "seen_at")
    rest = (name for name in WORKER_FIELDS if name not in first)
    return tuple(_comparable(row[name]) for name in (*first, *rest))


def _comparable(value: object) -> tuple[float, str]:
    if isinstance(value, str):
        return (0.0, value)
    return (-inf if value is None else float(value), "")  # type: ignore[arg-type]  # a number or a flag


def _next_version(stored: Mapping[str, Any] | None) -> int:
    return secrets.randbits(_FIRST_VERSION_BITS) if stored is None else int(stored["version"]) + 1
