"""A sealed part of a log: one Parquet file that never changes, and whose name says what is in it.

So a listing tells everything there is to know before reading, in an object store too, and a checksum
that stands outside of the file finds all damage within.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from math import ceil, floor, isnan
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from celeriac.errors import CallerError, DiskError
from celeriac.store.columns import SCHEMA, VERSION
from celeriac.store.place import Place

__all__ = [
    "EVENTS",
    "PARQUET",
    "Damaged",
    "Segment",
    "TooNew",
    "check_segment",
    "live",
    "read_segment",
    "segments_in",
    "write_segment",
]

#: The folder of all segments.
EVENTS: Final = "events"
_RECORDER: Final = r"[A-Za-z0-9_-]{1,80}"
_NAME: Final = re.compile(
    rf"(?P<recorder>{_RECORDER})\.(?P<first>\d{{12,18}})-(?P<last>\d{{12,18}})\.g(?P<generation>\d{{1,9}})"
    r"\.(?P<rows>\d{1,12})\.(?P<begin>\d{1,15})-(?P<end>\d{1,15})\.(?P<crc>[0-9a-f]{8})\.parquet",
    re.ASCII,
)
#: The last millisecond that has a date.
_MAX_MS: Final = 253_402_300_799_999
#: Rows that a reader has in memory at once.
_GROUP_ROWS: Final = 100_000

_TEXTS: Final = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
_ENCODINGS: Final = {
    **dict.fromkeys(("timestamp", "received_at", "runtime"), "BYTE_STREAM_SPLIT"),
    **dict.fromkeys(("sequence", "clock", "processed"), "DELTA_BINARY_PACKED"),
}
#: How rows are written: without these a file is several times as large.
PARQUET: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": _TEXTS,
    "column_encoding": _ENCODINGS,
    "write_page_checksum": True,
}


class Damaged(DiskError):
    """A segment is not what was written; the message says what is wrong with it."""


class TooNew(Damaged):
    """A segment is of a later version. It cannot be read here, but it must not be set aside either."""


class Segment(NamedTuple):
    """What a name tells of a segment."""

    recorder: str
    #: The numbers of its recorder that it stands for. Of those some rows may be gone, by retention.
    first: int
    last: int
    #: 0 as it was sealed; what replaces others has one more than the highest of them.
    generation: int
    rows: int
    #: All its events happened between the two. Years before 1970 and after 9999 count as those.
    begin_at: float
    end_at: float
    #: Of the whole file.
    crc: int
    path: str
    size: int

    @classmethod
    def parse(cls, path: str, size: int) -> "Segment | None":
        """Return what a path tells; None if it is that of no segment."""
        name = path.rpartition("/")[2]
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        first, last, generation, rows, begin, end = map(
            int, found.group("first", "last", "generation", "rows", "begin", "end")
        )
        is_possible = first <= last and begin <= end <= _MAX_MS and 0 < rows <= last - first + 1
        crc = int(found["crc"], 16)
        made = cls(
            found["recorder"], first, last, generation, rows, begin / 1000, end / 1000, crc, path, size
        )
        # Of each segment there is one name.
        return made if is_possible and made.name == name else None

    @property
    def name(self) -> str:
        """Return the name of its file, which tells all of this but the path and the size."""
        begin, end = round(self.begin_at * 1000), round(self.end_at * 1000)
        numbers = f"{self.first:012d}-{self.last:012d}.g{self.generation}.{self.rows}"
        return f"{self.recorder}.{numbers}.{begin}-{end}.{self.crc:08x}.parquet"


def segments_in(place: Place) -> list[Segment]:
    """Return all segments of a log, also those that others supersede, by one listing."""
    found = (Segment.parse(path, size) for path, size in place.sizes(EVENTS).items())
    return [segment for segment in found if segment is not None]


def live(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments that are read, sorted by recorder and number.

    One is superseded, and is never read, where another of its recorder stands for all its numbers and is
    of a higher generation; of the same one, if it stands for more and has no fewer rows; else the
    checksum decides. Where two share numbers and neither is known to have all of the other, both are read.
    """
    kept: list[Segment] = []
    # What can supersede a segment comes before it: it begins no later, and of those that begin with it
    # ends no earlier, and of the very same numbers it has the higher rank.
    ordered = sorted(segments, key=lambda each: (each.recorder, each.first, -each.last, *_lowered(each)))
    for _, group in groupby(ordered, attrgetter("recorder")):
        reaching: list[Segment] = []
        for segment in group:
            reaching = [other for other in reaching if other.last >= segment.first]
            if any(_stands_for(other, segment) for other in reaching):
                continue
            reaching.append(segment)
            kept.append(segment)
    return kept


def _stands_for(segment: Segment, other: Segment) -> bool:
    """Say whether a segment that begins no later than another has all of it."""
    has_less = segment.generation == other.generation and segment.rows < other.rows
    return segment.last >= other.last and not has_less and _rank(segment) >= _rank(other)


def _rank(segment: Segment) -> tuple[int, int, int]:
    return segment.generation, segment.last - segment.first, segment.crc


def _lowered(segment: Segment) -> tuple[int, int, str]:
    return -segment.generation, -segment.crc, segment.path


def write_segment(
    place: Place, batches: Sequence[pa.RecordBatch], *, recorder: str, first: int, last: int, generation: int
) -> Segment:
    """Write rows, in their order, as the segment that stands for the numbers from first to last.

    On return it is there to stay. The same rows make the same file, so that to try again is fine.
    """
    table = pa.Table.from_batches(batches, SCHEMA)
    _check(table, recorder, first, last)
    content = _encoded(table, {"recorder": recorder, "first": first, "last": last, "generation": generation})
    begin_at, end_at = _extent(table)
    made = Segment(
        recorder, first, last, generation, table.num_rows, begin_at, end_at, crc32(content), "", content.size
    )
    received_at = table["received_at"][0].as_py()
    made = made._replace(path=f"{_folder(begin_at if received_at is None else received_at)}/{made.name}")
    if Segment.parse(made.path, made.size) != made:
        raise CallerError(f"invalid segment name {made.name}: a number is too large")
    place.write(made.path, content)
    return made


def _check(table: pa.Table, recorder: str, first: int, last: int) -> None:
    if not re.fullmatch(_RECORDER, recorder):
        raise CallerError(f"invalid recorder id {recorder!r}: use at most 80 letters, digits, _ and -")
    if not table.num_rows:
        raise CallerError("a segment needs at least one row: remove an empty one")
    numbers = pc.min_max(table["sequence"]).as_py()
    if not 0 <= first <= numbers["min"] <= numbers["max"] <= last:
        raise CallerError(
            f"rows {numbers['min']} to {numbers['max']} are outside of {first} to {last}, the range of the "
            "segment"
        )


def _encoded(table: pa.Table, told: dict[str, object]) -> pa.Buffer:
    metadata = {**SCHEMA.metadata, **{f"celeriac.{name}".encode(): str(told[name]).encode() for name in told}}
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata),
        sink,
        row_group_size=_GROUP_ROWS,
        **PARQUET,
    )
    return sink.getvalue()


def _extent(table: pa.Table) -> tuple[float, float]:
    """Return when the first and the last event happened, by columns.event_moment, rounded outwards to ms."""
    stamped = pc.if_else(pc.equal(table["timestamp"], 0.0), None, table["timestamp"])
    extremes = pc.min_max(pc.coalesce(stamped, table["received_at"], 0.0)).as_py()
    begin_at, end_at = _bounded(extremes["min"]), _bounded(extremes["max"])
    begin, end = floor(begin_at * 1000), ceil(end_at * 1000)
    # A product is rounded, and may have been so inwards.
    begin -= begin / 1000 > begin_at
    end += end / 1000 < end_at
    return begin / 1000, end / 1000


def _bounded(moment: float) -> float:
    """Return a moment that has a date: no other makes rows that cannot be written."""
    return 0.0 if isnan(moment) else min(max(moment, 0.0), _MAX_MS / 1000)


def _folder(received_at: float) -> str:
    return datetime.fromtimestamp(_bounded(received_at), UTC).strftime(f"{EVENTS}/date=%Y-%m-%d/hour=%H")


def read_segment(
    place: Place,
    segment: Segment,
    *,
    columns: Sequence[str] | None = None,
    dictionaries: Sequence[str] = (),
    is_for_rewriting: bool = False,
) -> pa.Table:
    """Return the rows of a segment, in their order, as columns of SCHEMA.

    ``columns`` are those to read, if not all; those in ``dictionaries`` come dictionary-encoded. Columns
    that the file lacks are null, and those that a later Celeriac added are left out; who is going to write
    the rows anew would lose these, and gets TooNew. Raises Damaged if anything is wrong with the file, and
    DiskError if it cannot be read, with ENOENT for one that is gone.
    """
    with _opened(place, segment, dictionaries) as (where, file):
        names = SCHEMA.names if columns is None else list(columns)
        known = file.schema_arrow.names
        unknown = sorted(set(known) - set(SCHEMA.names))
        if is_for_rewriting and unknown:
            raise TooNew(
                f"{where} has a newer version, with {', '.join(unknown)}, which would be lost: upgrade "
                "Celeriac"
            )
        table = file.read([name for name in names if name in known])
        return _completed(table, names, dictionaries)


def check_segment(place: Place, segment: Segment) -> None:
    """Check that a segment can be read by others as it is: by Spark, which casts and completes nothing.

    Raises what :func:`read_segment` does; Damaged too if a column is of another type than SCHEMA has it, or
    if rows are of another recorder, or have other numbers, than the name of the file says.
    """
    with _opened(place, segment, ["recorder"]) as (where, file):
        types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
        for field in SCHEMA:
            told = types.get(field.name, field.type)
            if told != field.type and getattr(told, "value_type", None) != field.type:
                raise Damaged(f"{where} is damaged: {field.name} has type {told}, not {field.type}")
        rows = file.read(["recorder", "sequence"])
        recorders = set(pc.unique(rows["recorder"]).to_pylist())
        numbers = pc.min_max(rows["sequence"]).as_py()
        is_off = rows.num_rows and (numbers["min"] < segment.first or numbers["max"] > segment.last)
        if not recorders <= {segment.recorder} or rows["sequence"].null_count or is_off:
            raise Damaged(f"{where} is damaged: its rows do not match its name")


@contextmanager
def _opened(
    place: Place, segment: Segment, dictionaries: Sequence[str]
) -> Iterator[tuple[str, pq.ParquetFile]]:
    """Have the file of a segment, and what it is called, once all is checked but its rows."""
    content = place.read(segment.path)
    where = f"{place.url.rstrip('/')}/{segment.path}"
    if crc32(content) != segment.crc:
        raise Damaged(f"{where} is damaged: wrong checksum; restore it from a backup, or move it away")
    try:
        file = pq.ParquetFile(
            pa.BufferReader(content), read_dictionary=list(dictionaries), page_checksum_verification=True
        )
        _check_told(where, segment, file)
        yield where, file
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"{where} is damaged: {error}") from None


def _check_told(where: str, segment: Segment, file: pq.ParquetFile) -> None:
    """Compare what a file says of itself with its name: a right file under a wrong name is no better."""
    told = file.schema_arrow.metadata or {}
    version = told.get(b"celeriac.schema", b"")
    if not version.isdigit():
        raise Damaged(f"{where} is damaged: not a Celeriac segment; move it away")
    if int(version) > VERSION:
        raise TooNew(f"{where} has version {int(version)}, newer than {VERSION}: upgrade Celeriac")
    inside = tuple(
        told.get(f"celeriac.{name}".encode(), b"").decode() for name in ("recorder", "first", "last")
    )
    named = segment.recorder, str(segment.first), str(segment.last)
    if inside != named or file.metadata.num_rows != segment.rows:
        raise Damaged(f"{where} is damaged: its name does not match its content; restore its name")


def _completed(table: pa.Table, names: Sequence[str], dictionaries: Sequence[str]) -> pa.Table:
    """Return a table with just these columns, as SCHEMA has them."""
    fields = [SCHEMA.field(name) for name in names]
    fields = [
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in dictionaries else field
        for field in fields
    ]
    present = set(table.column_names)
    arrays = [
        table[field.name].cast(field.type) if field.name in present else pa.nulls(table.num_rows, field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=SCHEMA.metadata))
