"""Logs of events, made file by file, as recorders, merges and crashes leave them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from celeriac.model.events import Event, Failed, Received, Started, Succeeded, WorkerHeartbeat
from celeriac.store.columns import to_batch
from celeriac.store.place import place_for
from celeriac.store.segment import Segment, write_segment
from celeriac.store.write_ahead import WriteAhead

__all__ = [
    "HOUR_AT",
    "damage_at",
    "failed",
    "heartbeat",
    "received",
    "seal",
    "started",
    "succeeded",
    "times",
    "unsealed",
]

#: The beginning of an hour.
HOUR_AT: Final = 1_790_002_800.0


def started(uuid: str = "t1", at: float = 0.0, **fields: Any) -> Started:
    """Return an event so many seconds after the hour."""
    return Started(uuid=uuid, **_common(at), **fields)


def received(uuid: str = "t1", at: float = 0.0, *, name: str | None = "shop.pay", **fields: Any) -> Received:
    """Return an event that says what the task is."""
    return Received(uuid=uuid, name=name, **_common(at), **fields)


def succeeded(uuid: str = "t1", at: float = 0.0, **fields: Any) -> Succeeded:
    """Return the good end of a task."""
    return Succeeded(uuid=uuid, **_common(at), **fields)


def failed(uuid: str = "t1", at: float = 0.0, **fields: Any) -> Failed:
    """Return the bad end of a task."""
    return Failed(uuid=uuid, **_common(at), **fields)


def heartbeat(at: float = 0.0, *, hostname: str = "celery@web1", **fields: Any) -> WorkerHeartbeat:
    """Return an event of no task."""
    return WorkerHeartbeat(**(_common(at) | {"hostname": hostname}), **fields)


def _common(at: float) -> dict[str, Any]:
    moment = HOUR_AT + at
    return {"timestamp": moment, "clock": 1, "hostname": "celery@web1", "local_received": moment}


def seal(
    root: Path | str,
    events: Sequence[Event],
    *,
    recorder: str = "a",
    first: int = 1,
    last: int | None = None,
    generation: int = 0,
) -> Segment:
    """Write events as one segment, numbered from ``first`` on; it can stand for more numbers than it has."""
    return write_segment(
        place_for(root),
        [to_batch(events, recorder=recorder, first=first)],
        recorder=recorder,
        first=first,
        last=first + len(events) - 1 if last is None else last,
        generation=generation,
    )


def unsealed(root: Path, groups: Sequence[Sequence[Event]], *, recorder: str = "a", first: int = 1) -> Path:
    """Write groups of events as a write-ahead file of a recorder, and return its path."""
    folder = root / "spool" / recorder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "id").write_text(f"{recorder}\n")
    file = WriteAhead.create(folder, recorder, first)
    for group in groups:
        file.append(to_batch(group, recorder=recorder, first=file.next))
    file.sync()
    file.close()
    return file.path


def damage_at(path: Path, place: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def times(events: Sequence[Event]) -> list[float]:
    """Return when events were received, in seconds after the hour."""
    return [round((event.local_received or 0.0) - HOUR_AT, 3) for event in events]
