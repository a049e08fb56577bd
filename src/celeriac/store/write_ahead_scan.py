"""What a write-ahead file holds, however damaged it is: whole frames are kept, all else is told of."""

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS, failed
from celeriac.store.frame import Frame, Header, NewerFormat, decode_rows, find_frames, frame_at, read_header

__all__ = [
    "SUFFIX",
    "Region",
    "Scanned",
    "end_before",
    "ended",
    "read_whole",
    "scan",
    "scan_folder",
    "write_ahead_files",
]

SUFFIX: Final = ".wal"
#: Small groups are put together into rows by the thousand, as each has a cost of its own.
_GROUP_ROWS: Final = 10_000


class Region(NamedTuple):
    """Bytes of a file that are no frame."""

    start: int
    end: int
    #: Events that were there: a number if it is known.
    lost: int | None
    #: It is a frame to its very end, so perhaps it was recorded, and was damaged since.
    is_whole: bool = False


class Scanned(NamedTuple):
    """What is in one write-ahead file."""

    path: Path
    #: Empty if nothing in the file tells.
    recorder: str
    first: int
    #: The first number and the length of each run of events.
    spans: tuple[tuple[int, int], ...]
    #: In order of their sequence numbers. Empty if they were not asked for.
    batches: Sequence[pa.RecordBatch]
    #: When it was made, before any of its events was received; None if its header is damaged.
    made_at: float | None
    #: When the last event was received, be it in this file or before it.
    last_received_at: float | None
    #: Damage with whole frames behind it, or where a file that was closed should go on. One sentence each.
    damage: tuple[str, ...]
    #: The bytes that are damaged, without those of the tail.
    bad: tuple[Region, ...]
    #: What comes behind the last whole frame: a write that did not end, or one that is still going on.
    tail: Region | None

    @property
    def rows(self) -> int:
        """How many events are there."""
        return sum(rows for _, rows in self.spans)

    @property
    def next(self) -> int:
        """The sequence number after the last that is there."""
        return sum(self.spans[-1]) if self.spans else self.first

    def until(self, last: int) -> "Scanned":
        """Return the same without the events after number ``last``, and with what is missing up to there.

        Another file begins behind that number: what is beyond was taken back, or never acknowledged.
        """
        if self.next <= last:
            early = f"{self.path.name} ends {last + 1 - self.next:,} events too early"
            return self._replace(damage=(*self.damage, early))
        # A file is ended between two frames.
        spans = tuple(span for span in self.spans if sum(span) <= last + 1)
        batches = [part for part in (_clipped(batch, last) for batch in self.batches) if part.num_rows]
        return self._replace(batches=batches, spans=spans)


def write_ahead_files(folder: Path) -> list[Path]:
    """Return the write-ahead files of one recorder, in the order of their events."""
    try:
        numbers = {path: _number_of(path.name) for path in folder.iterdir()}
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failed(f"{folder} cannot be read", error) from None
    return sorted((path for path, number in numbers.items() if number is not None), key=_first_of)


def scan_folder(folder: Path, *, has_batches: bool = True) -> list[Scanned]:
    """Return what each write-ahead file of one recorder holds; no event is in two of them."""
    return ended([scan(path, has_batches=has_batches) for path in write_ahead_files(folder)])


def ended(files: Sequence[Scanned], sealed: Sequence[int] = ()) -> list[Scanned]:
    """Return what counts of each file, given all of one recorder in their order.

    ``sealed`` are the numbers that segments begin with: files between two of these may be sealed and gone.
    """
    lasts = [end_before(before.first, after.first - 1, sealed) for before, after in pairwise(files)]
    return [before.until(last) for before, last in zip(files, lasts, strict=False)] + list(files[-1:])


def end_before(first: int, last: int, sealed: Iterable[int]) -> int:
    """Return the last number that a file can stand for: none that a segment begins with, nor any behind."""
    return min((number for number in sealed if first < number <= last), default=last + 1) - 1


def scan(path: Path, *, has_batches: bool = True) -> Scanned:
    """Return what one write-ahead file holds. Damage is no error: it is told of, and the rest is kept.

    Without batches it is some twenty times as quick, and takes no more memory than the file is long.

    Raises DiskError for a file that the system does not let us read, and for one that a later version
    of Celeriac wrote.
    """
    content = read_whole(path)
    view = memoryview(content)
    try:
        head = read_header(view)
        header, start = head or (None, 0)
        frames, bad, tail = _survey(content, start, _first_of(path, header))
        batches, bad = _decoded(view, frames, bad, has_batches=has_batches)
    except NewerFormat as error:
        raise DiskError(f"{path} was written by a newer Celeriac: {error}; upgrade Celeriac") from None
    scanned = _told(path, header, frames, batches, (bad, tail))
    return scanned if has_batches else scanned._replace(batches=())


def _survey(content: bytes, start: int, first: int) -> tuple[list[Frame], list[Region], Region | None]:
    """Return the whole frames of a file, what is between them, and what is behind the last."""
    view = memoryview(content)
    frames: list[Frame] = []
    bad: list[Region] = []
    offset, expected = start, first
    is_headless = start == 0
    while offset < len(content):
        frame = None if is_headless else frame_at(view, offset)
        is_headless = False
        if frame is not None and frame.is_whole(view) and frame.first >= expected:
            if frame.first > expected:
                bad.append(Region(offset, offset, frame.first - expected))
            frames.append(frame)
            offset, expected = frame.end, frame.first + frame.rows
            continue
        following = _next_whole(content, offset, frame, expected)
        if following is None:
            lost = frame.rows if frame is not None and frame.end >= len(content) else None
            is_whole = frame is not None and frame.is_ended(view)
            return frames, bad, Region(offset, len(content), lost, is_whole)
        bad.append(Region(offset, following.offset, following.first - expected))
        offset = following.offset
        expected = following.first
    return frames, bad, None


def _next_whole(content: bytes, offset: int, broken: Frame | None, expected: int) -> Frame | None:
    """Return the first whole frame behind a place where there is none."""
    view = memoryview(content)
    # Where the broken one says that it ends, if it can be believed: what is within it is none of ours.
    starts = [broken.end] if broken is not None else []
    for start in (*starts, *find_frames(content, offset + 1)):
        frame = frame_at(view, start)
        if frame is not None and frame.first >= expected and frame.is_whole(view):
            return frame
    return None


def _decoded(
    content: memoryview, frames: list[Frame], bad: list[Region], *, has_batches: bool
) -> tuple[list[pa.RecordBatch], list[Region]]:
    """Return the rows of frames, or of the last one alone; a frame that holds none goes to the bad ones."""
    batches: list[pa.RecordBatch] = []
    for frame in list(frames) if has_batches else frames[-1:]:
        batch = decode_rows(content, frame)
        if batch is None:
            frames.remove(frame)
            bad = sorted([*bad, Region(frame.offset, frame.end, frame.rows)])
        else:
            batches.append(batch)
    return batches, bad


def _told(
    path: Path,
    header: Header | None,
    frames: list[Frame],
    batches: list[pa.RecordBatch],
    damage: tuple[list[Region], Region | None],
) -> Scanned:
    """Return all of it together."""
    bad, tail = damage
    first = _first_of(path, header)
    recorder = header.recorder if header else ""
    if not recorder and batches:
        recorder = batches[-1].column("recorder")[0].as_py()
    received_at = header.last_received_at if header else None
    for batch in reversed(batches):
        times = batch.column("received_at").drop_null()
        if len(times):
            received_at = times[-1].as_py()
            break
    return Scanned(
        path,
        recorder,
        first,
        tuple((frame.first, frame.rows) for frame in frames),
        _grouped(batches),
        header.made_at if header else None,
        received_at,
        tuple(_sentence(path, region) for region in bad),
        tuple(region for region in bad if region.end > region.start),
        tail,
    )


def _sentence(path: Path, region: Region) -> str:
    lost = "an unknown number of" if region.lost is None else f"{region.lost:,}"
    if region.start == region.end:
        return f"{path.name} lacks {lost} events at byte {region.start:,}"
    where = "the header of " if region.start == 0 else ""
    return (
        f"{where}{path.name} is damaged at bytes {region.start:,} to {region.end:,}: {lost} events are lost"
    )


def _grouped(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Put small batches together."""
    groups: list[list[pa.RecordBatch]] = []
    room = 0
    for batch in batches:
        if batch.num_rows > room:
            groups.append([])
            room = _GROUP_ROWS
        groups[-1].append(batch)
        room -= batch.num_rows
    return [
        group[0] if len(group) == 1 else pa.Table.from_batches(group).combine_chunks().to_batches()[0]
        for group in groups
    ]


def _clipped(batch: pa.RecordBatch, last: int) -> pa.RecordBatch:
    """Return the rows up to a number. Within a batch they are in order, but some may be missing."""
    numbers = batch.column("sequence").to_pylist() if batch.num_rows else []
    if not numbers or numbers[-1] <= last:
        return batch
    return batch.slice(0, sum(number <= last for number in numbers))


def _number_of(name: str) -> int | None:
    digits = name.removesuffix(SUFFIX)
    return int(digits) if name.endswith(SUFFIX) and digits.isascii() and digits.isdigit() else None


def _first_of(path: Path, header: Header | None = None) -> int:
    """Return the number that a file begins with: its name says it too."""
    number = _number_of(path.name)
    return number if number is not None else header.first if header else 0


def read_whole(path: Path) -> bytes:
    """Return all bytes of a file. Raises DiskError, with ENOENT if there is none."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | FLAGS), "rb") as file:
            return file.read()
    except OSError as error:
        raise failed(f"{path} cannot be read", error) from None
