"""Events as Celery's workers and clients send them, to be changed field by field."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kombu.utils import json as kombu_json

from celeriac import Gate
from celeriac.model.events import Event

__all__ = [
    "AT",
    "CLIENT",
    "DOORS",
    "WIRE_EVENTS",
    "WORKER",
    "Door",
    "Fields",
    "as_kombu_reads",
    "body",
    "by_bytes",
    "by_dict",
    "nested",
    "only",
    "task",
    "without",
    "worker",
]

Fields = dict[str, Any]
#: A way into the gate: the record it made of an event, or None if it took none.
Door = Callable[[Gate, Mapping[str, Any]], Event | None]

#: The moment the events tell of.
AT: Final = 1_794_703_817.25
WORKER: Final = "celery@web1"
CLIENT: Final = "gen77@web1"


def task(subject: str, uuid: str = "t1", /, **fields: Any) -> Fields:
    """Return a task event with the fields every event has, and those given."""
    return {"type": f"task-{subject}", "uuid": uuid, **_common(), **fields}


def worker(subject: str, **fields: Any) -> Fields:
    """Return a worker event with all the fields that a worker sends, and those given."""
    about = {
        "freq": 2.0, "active": 1, "processed": 7, "loadavg": [2.55, 1.6, 0.73],
        "sw_ident": "py-celery", "sw_ver": "5.7.0", "sw_sys": "Linux",
    }  # fmt: skip
    return {"type": f"worker-{subject}", **_common(), **about, **fields}


def _common() -> Fields:
    return {"hostname": WORKER, "utcoffset": 0, "pid": 19036, "clock": 25, "timestamp": AT}


_DESCRIPTION: Final[Fields] = {
    "name": "shop.pay", "args": "(1, 'é')", "kwargs": "{'fast': True}", "root_id": "t0", "parent_id": "t0",
    "retries": 2, "eta": "2026-11-15T01:30:00+00:00", "expires": "2026-11-15T02:30:00+00:00",
}  # fmt: skip

#: One event of each type we know, with every field that Celery sends in it.
WIRE_EVENTS: Final[dict[str, Fields]] = {
    event["type"]: event
    for event in (
        task("sent", hostname=CLIENT, **_DESCRIPTION, queue="fast", exchange="shop", routing_key="shop.fast"),
        task("received", **_DESCRIPTION),
        task("started"),
        task("succeeded", result="42", runtime=0.125),
        task("failed", exception="ValueError('x')", traceback="Traceback: …"),
        task("retried", exception="OSError('y')", traceback="Traceback: …"),
        task("rejected", requeue=True),
        task("revoked", terminated=True, signum=15, expired=False),
        worker("online"),
        worker("heartbeat"),
        worker("offline"),
    )
}


def body(event: object) -> bytes:
    """Return an event, or a list of them, as Celery writes it: by Python's own JSON."""
    return json.dumps(event).encode()


def as_kombu_reads(event: object) -> Fields:
    """Return an event as Celery's receiver hands it out: kombu's JSON brings types of its own back."""
    loads: Callable[[str], Fields] = kombu_json.loads
    return loads(json.dumps(event))


def nested(levels: int) -> object:
    """Return lists inside lists, so many of them."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def without(event: Mapping[str, Any], *names: str) -> Fields:
    """Return an event that lacks some of its fields."""
    return {name: value for name, value in event.items() if name not in names}


def by_bytes(gate: Gate, event: Mapping[str, Any]) -> Event | None:
    """Bring an event through the gate as a message body."""
    events = gate.decode(body(event))
    return events[0] if events else None


def by_dict(gate: Gate, event: Mapping[str, Any]) -> Event | None:
    """Bring an event through the gate as a dict that another library decoded."""
    converted = gate.convert(dict(event))
    return None if converted is None else converted[0]


#: Both ways in: what holds for one holds for the other.
DOORS: Final[dict[str, Door]] = {"bytes": by_bytes, "dict": by_dict}


def only(event: Event | None) -> Event:
    """Return the event that the gate took; that it took one is part of the claim."""
    assert event is not None, "the gate took no event"
    return event
