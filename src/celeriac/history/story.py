"""Questions about one task: its row, its attempts, and what the log still has of its payload."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from celeriac.errors import CallerError, CeleriacError
from celeriac.history.answer import Question
from celeriac.history.edition import Edition
from celeriac.history.source import quoted
from celeriac.model.answer import TaskStory
from celeriac.model.table import INNER_COLUMNS, TABLES

__all__ = ["read_payload", "task_story"]

#: A reference to an event of the log is the place of its recorder times this, and the number of the event.
ROW_BASE: Final = 1 << 48
#: What is read from the log by which reference.
_PAYLOADS: Final = {
    "description_row": ("args", "kwargs"),
    "result_row": ("result",),
    "error_row": ("exception", "traceback"),
}


def _text_for(table: str, order: str) -> str:
    names = [column.name for column in TABLES[table].columns if column.name not in INNER_COLUMNS]
    return f"SELECT {', '.join(map(quoted, names))} FROM {{{table}}} WHERE uuid = $uuid ORDER BY {order}"  # noqa: S608 - of our own names alone


_TASK: Final = _text_for("tasks", "day")
_ATTEMPTS: Final = _text_for("attempts", "counted_at, retries")
_FAILURES: Final = _text_for("failures", "raised_at")


def task_story(edition: Edition, uuid: str, log: str | Path | None) -> TaskStory:
    """Return all that is known of a task; CallerError if nothing is."""
    found = edition.run(_dicts, _TASK, {"uuid": uuid})
    if not found:
        raise CallerError(
            f"no task {uuid!r} is in the tables: mend the id, or run celeriac pipeline run if it is new"
        )
    task = found[-1]
    payload, notes = read_payload(edition, task, log)
    return TaskStory(
        task,
        edition.run(_dicts, _ATTEMPTS, {"uuid": uuid}),
        edition.run(_dicts, _FAILURES, {"uuid": uuid}),
        payload,
        notes,
    )


def _dicts(question: Question) -> list[dict[str, Any]]:
    cursor = question.executed()
    names = [each[0] for each in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def read_payload(
    edition: Edition, task: Mapping[str, Any], log: str | Path | None
) -> tuple[dict[str, str], list[str]]:
    """Return what the log has of a task, by name, and why the rest is missing."""
    wanted = [(name, task[name]) for name in _PAYLOADS if task.get(name) is not None]
    if not wanted:
        return {}, []
    place = edition.manifest.log if log is None else log
    payload: dict[str, str] = {}
    try:
        found, notes = _events_at(place, edition.manifest.recorders, [row for _, row in wanted])
    except (CeleriacError, OSError) as error:
        return {}, [f"the log cannot be read, which has what it was given and what became of it: {error}"]
    for name, row in wanted:
        event = found.get(row)
        if event is not None:
            payload |= {field: event[field] for field in _PAYLOADS[name] if event[field] is not None}
        else:
            said = " and ".join(_PAYLOADS[name])
            # Not where that is: a URL may hold a password, and viewers read this too.
            notes.append(f"the event that says {said} is not in the log any more")
    return payload, notes


def _events_at(
    log: str | Path, recorders: Sequence[str], rows: Iterable[int]
) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """Return events of a log by the references to them, and what was damaged on the way."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

    from celeriac.store.place import place_for  # noqa: PLC0415
    from celeriac.store.segment import Damaged, live, read_segment, segments_in  # noqa: PLC0415

    place = place_for(log)
    segments = live(segments_in(place))
    columns = ["sequence", *(field for fields in _PAYLOADS.values() for field in fields)]
    found: dict[int, dict[str, Any]] = {}
    notes: list[str] = []
    for code, group in groupby(sorted(set(rows)), lambda row: row // ROW_BASE):
        numbers = [row % ROW_BASE for row in group]
        recorder = recorders[code] if 0 <= code < len(recorders) else None
        for segment in segments:
            wanted = [number for number in numbers if segment.first <= number <= segment.last]
            if segment.recorder != recorder or not wanted:
                continue
            try:
                table = read_segment(place, segment, columns=columns)
            except Damaged as error:
                notes.append(str(error))
                continue
            for event in table.filter(pc.is_in(table["sequence"], value_set=_array(wanted))).to_pylist():
                found[code * ROW_BASE + event["sequence"]] = event
    return found, notes


def _array(numbers: list[int]) -> Any:
    import pyarrow as pa  # noqa: PLC0415  (slow to load)

    return pa.array(numbers, pa.int64())
