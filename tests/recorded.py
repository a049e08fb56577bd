"""Events with numbers, and which of them a log holds: read with nothing of what reads logs for users."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from celeriac.model.events import Event, Started
from celeriac.store.columns import to_events
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import Place, place_for
from celeriac.store.segment import live, read_segment, segments_in
from celeriac.store.write_ahead import scan_folder

NOON_AT = 1_700_049_600.0


def numbered(numbers: Iterable[int], *, run: str = "", received_at: float = NOON_AT) -> list[Event]:
    """Return one event for each number, whose ids tell them."""
    return [
        Started(
            timestamp=received_at,
            clock=number,
            hostname="w@x",
            uuid=f"{run}{number}",
            local_received=received_at,
        )
        for number in numbers
    ]


def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def writer_for(root: Path, place: Place | None = None, **given: Any) -> LogWriter:
    """Return a writer with large segments, unless others are asked for."""
    options: dict[str, Any] = {
        "spool": root / "spool",
        "segment_bytes": 1 << 30,
        "segment_age": 1e6,
        "now": lambda: NOON_AT,
        "retry_after": 0.0,
    }
    return LogWriter(
        place or place_for(root),
        name="one",
        redact=unchanged,
        **{**options, **given},
    )


def recorded_in(root: Path, place: Place | None = None) -> list[tuple[int, str]]:
    """Return the sequence number and the id of all events in a log, sealed or not, in their order."""
    place = place or place_for(root)
    segments = live(segments_in(place))
    batches = [batch for each in segments for batch in read_segment(place, each).to_batches()]
    for scanned in scan_folder(root / "spool" / "one"):
        if not any(
            each.recorder == scanned.recorder and each.first <= scanned.first <= each.last
            for each in segments
        ):
            batches += scanned.batches
    rows = [
        (number, event["uuid"])
        for batch in batches
        for number, event in zip(batch.column("sequence").to_pylist(), to_events(batch), strict=True)
    ]
    return sorted((number, str(uuid)) for number, uuid in rows)


def ids_in(root: Path, place: Place | None = None) -> list[str]:
    """Return the ids of all events in a log, in their order; no number may be there twice."""
    rows = recorded_in(root, place)
    assert len({number for number, _ in rows}) == len(rows)
    return [uuid for _, uuid in rows]


def write_ahead_in(root: Path) -> list[Path]:
    return sorted((root / "spool" / "one").glob("*.wal"))


def settle(writer: LogWriter) -> None:
    """Wait until nothing is being sealed."""
    while (thread := writer._sealer._thread) is not None:
        thread.join()
