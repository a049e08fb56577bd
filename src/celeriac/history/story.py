"""Questions about one task: its row, its attempts, and what the log still has of its events."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celeriac.errors import CallerError, CeleriacError
from celeriac.history.answer import Question
from celeriac.history.edition import Edition
from celeriac.history.source import quoted
from celeriac.history.timeline import kept_events
from celeriac.model.answer import TaskStory
from celeriac.model.events import TaskEvent
from celeriac.model.table import INNER_COLUMNS, TABLES

if TYPE_CHECKING:
    from celeriac.store.place import Place
    from celeriac.store.segment import Segment

__all__ = ["task_story"]

#: A reference to an event of the log is the place of its recorder times this, and the number of the event.
ROW_BASE: Final = 1 << 48
#: What is read from the log by which reference.
_PAYLOADS: Final = {
    "description_row": ("args", "kwargs"),
    "result_row": ("result",),
    "error_row": ("exception", "traceback"),
}
#: The most events of a task that are looked for in the log, and the most files of it that are read: one that
#: was tried for a week is in hundreds of them.
_MOST_ROWS: Final = 200
_MOST_FILES: Final = 10


def _text_for(table: str, order: str) -> str:
    names = [column.name for column in TABLES[table].columns]
    return f"SELECT {', '.join(map(quoted, names))} FROM {{{table}}} WHERE uuid = $uuid ORDER BY {order}"  # noqa: S608 - of our own names alone


_TASK: Final = _text_for("tasks", "day")
_ATTEMPTS: Final = _text_for("attempts", "counted_at, retries")
_FAILURES: Final = _text_for("failures", "raised_at")


def task_story(edition: Edition, uuid: str, log: str | Path | None) -> TaskStory:
    """Return all that is known of a task; CallerError if nothing is."""
    found = edition.run(_dicts, _TASK, {"uuid": uuid})
    if not found:
        raise CallerError(
            f"no task {uuid!r} in the tables: check the id, or run celeriac pipeline run if the task is new"
        )
    task = found[-1]
    kept = kept_events(task)
    shown = {name: value for name, value in task.items() if name not in INNER_COLUMNS}
    place = edition.manifest.log if log is None else log
    payload_rows = [row for name in _PAYLOADS if (row := task[name]) is not None]
    # What happened last matters most.
    rows = [*payload_rows, *(row for row, _ in reversed(kept) if row is not None)]
    events, notes = _events_at(place, edition.manifest.recorders, list(dict.fromkeys(rows))[:_MOST_ROWS])
    mine = {row: event for row, event in events.items() if event.uuid == uuid}
    payload, missing = _payload(task, mine)
    return TaskStory(
        shown,
        edition.run(_dicts, _ATTEMPTS, {"uuid": uuid}),
        edition.run(_dicts, _FAILURES, {"uuid": uuid}),
        payload,
        # Where the log cannot be read at all, that says it.
        notes + (missing if events or not notes else []),
        [mine.get(row, event) if row is not None else event for row, event in kept],
        sum(row not in mine for row, _ in kept),
    )


def _dicts(question: Question) -> list[dict[str, Any]]:
    cursor = question.executed()
    names = [each[0] for each in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _payload(task: Mapping[str, Any], events: Mapping[int, TaskEvent]) -> tuple[dict[str, str], list[str]]:
    """Return what events of the log say of a task, by name, and what is missing."""
    payload: dict[str, str] = {}
    notes: list[str] = []
    for name, fields in _PAYLOADS.items():
        event = events.get(task[name])
        if event is not None:
            told = {field: getattr(event, field, None) for field in fields}
            payload |= {field: text for field, text in told.items() if text is not None}
        elif task[name] is not None:
            # Not where that is: a URL may hold a password, and viewers read this too.
            notes.append(f"the event with {' and '.join(fields)} was removed from the log")
    return payload, notes


def _events_at(
    log: str | Path, recorders: Sequence[str], rows: Sequence[int]
) -> tuple[dict[int, TaskEvent], list[str]]:
    """Return events of a log by the references to them, and why some cannot be read."""
    from celeriac.store.place import place_for  # noqa: PLC0415  (slow to load)
    from celeriac.store.segment import Damaged  # noqa: PLC0415

    found: dict[int, TaskEvent] = {}
    notes: list[str] = []
    if not rows:
        return found, notes
    try:
        place = place_for(log)
        for segment, wanted in _files_of(place, recorders, rows)[:_MOST_FILES]:
            try:
                found |= _read(place, segment, wanted)
            except Damaged as error:
                notes.append(str(error))
    except (CeleriacError, OSError) as error:
        return {}, [f"cannot read the log, which has the arguments and the result: {error}"]
    return found, notes


def _files_of(
    place: "Place", recorders: Sequence[str], rows: Sequence[int]
) -> "list[tuple[Segment, dict[int, int]]]":
    """Return the files that have events, and the references to these by number, in the order of ``rows``."""
    from celeriac.store.segment import live, segments_in  # noqa: PLC0415  (slow to load)

    of_recorder = defaultdict(list)
    for segment in live(segments_in(place)):
        of_recorder[segment.recorder].append(segment)
    files: dict[Segment, dict[int, int]] = defaultdict(dict)
    for row in rows:
        code, number = divmod(row, ROW_BASE)
        if 0 <= code < len(recorders):
            for segment in of_recorder[recorders[code]]:
                if segment.first <= number <= segment.last:
                    files[segment][number] = row
    return list(files.items())


def _read(place: "Place", segment: "Segment", wanted: Mapping[int, int]) -> dict[int, TaskEvent]:
    """Return events of one file by the references to them."""
    import pyarrow as pa  # noqa: PLC0415  (slow to load)
    import pyarrow.compute as pc  # noqa: PLC0415

    from celeriac.store.columns import to_events  # noqa: PLC0415
    from celeriac.store.segment import read_segment  # noqa: PLC0415

    table = read_segment(place, segment)
    chosen = table.filter(pc.is_in(table["sequence"], value_set=pa.array(list(wanted), pa.int64())))
    found: dict[int, TaskEvent] = {}
    for batch in chosen.combine_chunks().to_batches():
        for number, event in zip(batch.column("sequence").to_pylist(), to_events(batch), strict=True):
            if isinstance(event, TaskEvent):
                found[wanted[number]] = event
    return found
