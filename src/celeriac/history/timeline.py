"""The events of a task as the tables keep them, each with the place in the log that has all of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from celeriac.model.events import EVENT_CLASSES, Custom, Described, Rejected, Sent, Succeeded, TaskEvent

__all__ = ["kept_events"]

#: The ends that a course can have, and when they were.
_ENDS: Final = {"succeeded": "succeeded_at", "failed": "failed_at", "revoked": "revoked_at"}


def kept_events(task: Mapping[str, Any]) -> list[tuple[int | None, TaskEvent]]:
    """Return what is kept of each event of a task, after the reference to the event in the log.

    A row of ``tasks`` has its events in ``course`` or in ``history``. They say what, when, where and by which
    clock; arguments, results and exceptions are in the log alone.
    """
    kept = _course(task) if task["course"] is not None else iter(task["history"] or ())
    return [(each["row"], _event(str(task["uuid"]), each)) for each in kept]


def _course(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a task of which each thing happened once, as a history has them."""
    course = task["course"]
    worker = {"host": task["worker"], "pid": course["pid"]}
    client = {"host": task["client"], "pid": course["sent_pid"], "queue": task["queue"]}
    described = {name: task[name] for name in ("name", "retries", "root_id", "parent_id")}
    ends = {kind: ("ended", task[at], worker) for kind, at in _ENDS.items()}
    slots: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "sent": ("sent", task["sent_at"], client | described),
        "received": ("received", task["received_at"], worker | described),
        "started": ("started", task["started_at"], worker),
        **ends,
    }
    for kind, (slot, at, told) in slots.items():
        if at is not None:
            clock, row = course[f"{slot}_clock"], course[f"{slot}_row"]
            yield {"type": kind, "at": at, "clock": clock, "row": row, "runtime": task["runtime"], **told}


def _event(uuid: str, kept: Mapping[str, Any]) -> TaskEvent:
    subject = str(kept["type"])
    kind = EVENT_CLASSES.get(f"task-{subject}")
    fields: dict[str, Any] = {
        "uuid": uuid,
        "timestamp": kept["at"] or 0.0,
        "clock": kept["clock"] or 0,
        "hostname": kept["host"] or "",
        "pid": kept["pid"] or 0,
    }
    if kind is None or not issubclass(kind, TaskEvent):
        return Custom(subject=subject, **fields)
    if issubclass(kind, Described):
        fields |= {name: kept[name] for name in ("name", "root_id", "parent_id")}
        fields["retries"] = kept["retries"] or 0
    if issubclass(kind, Sent):
        fields["queue"] = kept["queue"]
    elif issubclass(kind, Succeeded):
        fields["runtime"] = kept["runtime"]
    elif issubclass(kind, Rejected):
        fields["requeue"] = kept["requeue"]
    return kind(**fields)
