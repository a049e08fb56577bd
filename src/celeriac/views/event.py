"""One event as people read it, and as programs do."""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Final, NamedTuple

from celeriac.model.events import (
    Custom,
    Event,
    Failed,
    Gap,
    Other,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Succeeded,
    TaskEvent,
    WorkerEvent,
)
from celeriac.views.format import format_duration, format_time
from celeriac.views.text import number_text, visible

__all__ = ["EventLine", "event_dict", "event_line", "gap_text"]

#: As wide as a time, so that the columns of lines stay in line.
_NO_TIME: Final = "--:--:--.---"
#: Results and exceptions in a line; whole ones are in the JSON.
_OUTCOME_CHARS: Final = 100
#: Fields of an unknown type that a line shows.
_MOST_FIELDS: Final = 8
_FIELD_CHARS: Final = 40


class EventLine(NamedTuple):
    """What one line tells of an event; every part is safe to show."""

    time: str
    type: str
    node: str
    #: The task's name and id, or what is known of them; empty for events of workers.
    task: str
    #: What matters for this type.
    detail: str

    def __str__(self) -> str:
        return "  ".join(part for part in (self.time, f"{self.type:<16}", *self[2:]) if part)


def event_line(event: Event, name: str | None = None, *, zone: tzinfo | None = None) -> EventLine:
    """Return the parts of the line for an event; ``name`` is that of its task, where known."""
    return EventLine(
        time=format_time(event.timestamp or event.local_received or None, zone, unknown=_NO_TIME),
        type=visible(event.type, 60),
        node=visible(event.hostname, 80),
        task=_task_text(event, name) if isinstance(event, TaskEvent) else "",
        detail=gap_text(event, zone=zone) if isinstance(event, Gap) else _detail(event),
    )


def event_dict(event: Event) -> dict[str, object]:
    """Return all that an event says, for JSON: its type first, then what identifies it."""
    fields = dict(event)
    order = ("type", "timestamp", "hostname", "uuid")
    return {name: fields.pop(name) for name in order if name in fields} | fields


def gap_text(gap: Gap, *, zone: tzinfo | None = None) -> str:
    """Return what a gap in the reception means."""
    begin, end = format_time(gap.since, zone), format_time(gap.until, zone)
    return f"events from {begin} to {end} may be missing: {visible(gap.reason)}"


def _task_text(event: TaskEvent, name: str | None) -> str:
    name = name or (event.name if isinstance(event, Sent | Received) else None)
    uuid = visible(event.uuid, 64)
    return f"{visible(name, 80)}[{uuid}]" if name else uuid


def _detail(event: Event) -> str:
    match event:
        case Sent() | Received():
            return _plan(event)
        case Custom() | Other():
            return _fields(event.extra or {})
        case WorkerEvent():
            return _health(event)
        case _:
            return _outcome(event)


def _outcome(event: Event) -> str:
    match event:
        case Succeeded():
            took = "" if event.runtime is None else f"in {format_duration(event.runtime)}"
            return _joined(took, visible(event.result or "", _OUTCOME_CHARS))
        case Failed() | Retried():
            return visible(event.exception or "", _OUTCOME_CHARS)
        case Rejected():
            return "given back to the broker" if event.requeue else "dropped"
        case Revoked():
            signal = "" if event.signum is None else f" by signal {visible(event.signum, 20)}"
            return _joined(
                "expired" if event.expired else "", f"terminated{signal}" if event.terminated else ""
            )
        case _:
            return ""


def _plan(event: Sent | Received) -> str:
    queue = event.queue if isinstance(event, Sent) else None
    return _joined(
        f"to {visible(queue, 60)}" if queue else "",
        f"retry {event.retries}" if event.retries else "",
        f"not before {visible(event.eta, 40)}" if event.eta else "",
    )


def _health(event: WorkerEvent) -> str:
    load = "" if event.loadavg is None else f"load {number_text(event.loadavg[0])}"
    return _joined(
        "" if event.active is None else f"{event.active} active",
        "" if event.processed is None else f"{event.processed} processed",
        load,
        visible(f"{event.sw_ident or ''} {event.sw_ver or ''}".strip(), 40),
    )


def _fields(fields: Mapping[str, object]) -> str:
    shown = [
        f"{visible(name, _FIELD_CHARS)}={visible(value, _FIELD_CHARS)}"
        for name, value in list(fields.items())[:_MOST_FIELDS]
    ]
    return _joined(*shown, "…" if len(fields) > _MOST_FIELDS else "")


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
