"""The state of a cluster in a file of JSON lines, to go on from.

The first line says what it is, and of which version. Then comes one line for each worker, task and gap,
each in the order in which they would be forgotten, and last one with their numbers and a checksum of all
before it. Arguments and results are redacted before they get here. Nothing in a file is ever run or
looked up by name.
"""

from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import DecodeError, Meta, Raw, Struct, ValidationError

from celeriac.config import Limits
from celeriac.core.snapshot import MAX_HISTORY, Snapshot, TaskRecord, WorkerRecord
from celeriac.errors import CallerError, CeleriacError, DiskError, ImproperlyConfigured, PeerError
from celeriac.model.events import AnyTaskEvent, Count, Custom, Extra, Gap, Name, TaskEvent, Timestamp
from celeriac.store.place import place_for
from celeriac.wire.text import clean_value

if TYPE_CHECKING:
    from celeriac.store.place import Place

__all__ = ["DamagedState", "decode_state", "encode_state", "read_state", "shown", "write_state"]

#: Version 2 has the receiver's clock of each event. Version 1 is read too.
_VERSION: Final = 2
_FORMAT: Final = "celeriac-state"
#: What each file of ours begins with, of whatever version.
_MARK: Final = f'{{"format":"{_FORMAT}",'.encode()
#: What a task and a worker take in a file at the most, on average: a task with its tracebacks takes a few
#: kilobytes. A file that is larger than all there is room for is refused before it is read.
_TASK_BYTES: Final = 16 * 1024
_WORKER_BYTES: Final = 8 * 1024
_OTHER_BYTES: Final = 16 * 1024 * 1024
#: One line, which is a task with up to a few thousand events. What is decoded takes more room than its text.
_LINE_BYTES: Final = 64 * 1024 * 1024
#: A line of a hundred bytes.
_END_BYTES: Final = 1024


class _Header(Struct, kw_only=True):
    format: str
    version: Annotated[int, Meta(ge=1)]
    taken_at: Timestamp = 0.0
    event_count: Count = 0
    task_count: Count = 0


class _WorkerLine(Struct, tag="worker", tag_field="line", forbid_unknown_fields=True):
    worker: WorkerRecord


class _TaskLine(Struct, tag="task", tag_field="line", forbid_unknown_fields=True):
    uuid: Name
    events: Annotated[list[Raw], Meta(min_length=1, max_length=MAX_HISTORY)]
    #: Which of the events is the latest in display order.
    latest: Annotated[int, Meta(ge=0)] | None = None
    #: That one, if it is no more among them.
    gone: Annotated[list[Raw], Meta(max_length=1)] = []


class _GapLine(Struct, tag="gap", tag_field="line", forbid_unknown_fields=True):
    gap: Gap


class _End(Struct, tag="end", tag_field="line", forbid_unknown_fields=True):
    workers: Count
    tasks: Count
    gaps: Count
    sha256: str


class DamagedState(CeleriacError):
    """Says what is wrong with a file of ours."""


def _made_extra(kind: type, value: object) -> object:
    """Make the fields that no record has a place for, within the bounds that they had when they came."""
    if kind is not Extra or not isinstance(value, dict):
        raise ValidationError(f"unexpected {type(value).__name__} in the place of fields")
    return Extra(clean_value(value, Limits()))  # type: ignore[call-overload]  # a dict gives a dict


_encode: Final = msgspec.json.Encoder().encode
_decode_header: Final = msgspec.json.Decoder(_Header).decode
_decode_line: Final = msgspec.json.Decoder(_WorkerLine | _TaskLine | _GapLine, dec_hook=_made_extra).decode
_decode_end: Final = msgspec.json.Decoder(_End).decode
_decode_known: Final = msgspec.json.Decoder(AnyTaskEvent, dec_hook=_made_extra).decode
_decode_custom: Final = msgspec.json.Decoder(Custom, dec_hook=_made_extra).decode
#: A custom event has no type: it could be that of another.
_TYPED: Final = b'{"type":'
_UNREADABLE: Final = (DecodeError, ValidationError, UnicodeError, RecursionError, PeerError, CallerError)


# -- writing


def write_state(url: str | Path, snapshot: Snapshot) -> None:
    """Write a snapshot to a file, whole or not at all; on return it outlives a crash of the machine.

    Raises DiskError if that cannot be; what was there before is then still there.
    """
    place, name = _placed(url)
    place.write(name, encode_state(snapshot))


def encode_state(snapshot: Snapshot) -> memoryview:
    """Return the content of a file; raises CallerError for a snapshot of events that no peer can send."""
    content = BytesIO()
    digest = sha256()
    for line in _lines(snapshot):
        digest.update(line)
        content.write(line)
    end = _End(len(snapshot.workers), len(snapshot.tasks), len(snapshot.gaps), digest.hexdigest())
    content.write(_line(end))
    return content.getbuffer()


def _lines(snapshot: Snapshot) -> Iterator[bytes]:
    yield _line(
        _Header(
            format=_FORMAT,
            version=_VERSION,
            taken_at=snapshot.taken_at,
            event_count=snapshot.event_count,
            task_count=snapshot.task_count,
        )
    )
    for worker in snapshot.workers:
        yield _line(_WorkerLine(worker))
    for task in snapshot.tasks:
        yield _line(_task_line(task))
    for gap in snapshot.gaps:
        yield _line(_GapLine(gap))


def _line(record: Struct) -> bytes:
    line = _encoded(record) + b"\n"
    if len(line) > _LINE_BYTES:
        raise CallerError(f"a task has {len(line)} bytes, more than the limit of {_LINE_BYTES}")
    return line


def _encoded(record: Struct) -> bytes:
    try:
        if isinstance(record, TaskEvent) and record.extra is not None:
            clean_value(record.extra, Limits())  # as it will be when it is read
        return _encode(record)
    except (UnicodeError, TypeError, OverflowError, RecursionError, PeerError) as error:
        raise CallerError(
            f"the state has an event that cannot be saved, {error}: pass events through a Gate first"
        ) from None


def _task_line(task: TaskRecord) -> _TaskLine:
    place = next((place for place, event in enumerate(task.history) if event is task.latest), None)
    gone = [] if place is not None or task.latest is None else [Raw(_encoded(task.latest))]
    return _TaskLine(task.uuid, [Raw(_encoded(event)) for event in task.history], place, gone)


# -- reading


def read_state(
    url: str | Path, *, max_workers: int, max_tasks: int, max_bytes: int | None = None
) -> Snapshot:
    """Read a snapshot; of more workers and tasks than wanted, the last.

    Raises DiskError for a file that is damaged, too large or cannot be read, and ImproperlyConfigured for
    one that is none of ours, or of a later version.
    """
    place, name = _placed(url)
    room = _OTHER_BYTES + max_tasks * _TASK_BYTES + max_workers * _WORKER_BYTES
    allowed = room if max_bytes is None else max_bytes
    content = _content(place, name, allowed)
    try:
        return decode_state(content, max_workers=max_workers, max_tasks=max_tasks)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"cannot restore {_shown(place, name)}: {error}") from None
    except DamagedState as error:
        raise DiskError(
            f"{_shown(place, name)} is damaged: {error}; nothing was restored, use another snapshot"
        ) from None


def _content(place: "Place", name: str, allowed: int) -> bytes:
    size = place.size(name)
    content = b"" if size > allowed else place.read(name)
    size = max(size, len(content))
    if size > allowed:
        raise DiskError(
            f"{_shown(place, name)} has {size} bytes, more than the limit of {allowed}: if you trust it, "
            "give restore() a larger max_bytes"
        )
    return content


def decode_state(content: bytes, *, max_workers: int, max_tasks: int) -> Snapshot:
    """Read the content of a file; raises DamagedState or ImproperlyConfigured, which say what is wrong."""
    if not content.strip(b"\0"):
        raise DamagedState("the file is empty")
    if not content.startswith(_MARK):
        raise ImproperlyConfigured("not a file of State.save: give one that State.save wrote")
    lines = BytesIO(content)
    try:
        header = _decode_header(lines.readline(_LINE_BYTES))
        if header.version > _VERSION:
            raise ImproperlyConfigured(f"newer version {header.version}: upgrade Celeriac")
        end, until = _checked_end(content)
        workers: deque[WorkerRecord] = deque(maxlen=max_workers)
        tasks: deque[TaskRecord] = deque(maxlen=max_tasks)
        gaps: list[Gap] = []
        counts = [0, 0, 0]
        while lines.tell() < until:
            line: _WorkerLine | _TaskLine | _GapLine = _decode_line(lines.readline(_LINE_BYTES))
            match line:
                case _WorkerLine():
                    counts[0] += 1
                    workers.append(line.worker)
                case _TaskLine():
                    counts[1] += 1
                    if counts[1] > end.tasks - max_tasks:
                        tasks.append(_task_record(line))
                case _GapLine():
                    counts[2] += 1
                    gaps.append(line.gap)
    except _UNREADABLE as error:
        raise DamagedState(str(error)) from None
    if counts != [end.workers, end.tasks, end.gaps]:
        raise DamagedState("the numbers of workers, tasks and gaps do not match its end")
    return Snapshot(header.taken_at, header.event_count, header.task_count, workers, tasks, gaps)


def _checked_end(content: bytes) -> tuple[_End, int]:
    """Return the last line and where it begins; raises DamagedState unless all before it is as written."""
    begin = content.rfind(b"\n", 0, -1) + 1
    line = content[begin : begin + _END_BYTES]
    if not line.startswith(b'{"line":"end",') or not content.endswith(b"}\n"):
        raise DamagedState("truncated")
    end = _decode_end(line)
    if sha256(memoryview(content)[:begin]).hexdigest() != end.sha256:
        raise DamagedState("wrong checksum")
    return end, begin


def _task_record(line: _TaskLine) -> TaskRecord:
    history = tuple(_event(raw) for raw in line.events)
    if line.gone:
        return TaskRecord(line.uuid, history, _event(line.gone[0]))
    if line.latest is not None and line.latest >= len(history):
        raise DamagedState(f"the latest event of task {line.uuid!r} is missing")
    return TaskRecord(line.uuid, history, None if line.latest is None else history[line.latest])


def _event(raw: Raw) -> TaskEvent:
    is_typed = bytes(memoryview(raw)[: len(_TYPED)]) == _TYPED
    event: TaskEvent = _decode_known(raw) if is_typed else _decode_custom(raw)
    return event


def _placed(url: str | Path) -> "tuple[Place, str]":
    """Return the place that a file is in, and its name there."""
    if isinstance(url, Path):
        return place_for(url.parent), url.name
    folder, slash, name = url.rpartition("/")
    if not name or name in {".", ".."}:
        raise CallerError(f"{url!r} has no file name: add a name, such as cluster.state")
    if not slash:
        return place_for("."), name
    return place_for(folder or "/"), name


def shown(url: str | Path) -> str:
    """Return where a file is, for people: no secret is in it."""
    return _shown(*_placed(url))


def _shown(place: "Place", name: str) -> str:
    return f"{place.url.rstrip('/')}/{name}"
