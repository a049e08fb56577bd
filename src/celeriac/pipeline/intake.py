"""What a log has that the tables have not: segments, checked one by one, and their rows."""

import errno
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celeriac.core.coverage import Span, is_within, join, overlapping
from celeriac.errors import DiskError
from celeriac.pipeline.fault import MAX_TEXT_BYTES, TEXT_COLUMNS
from celeriac.pipeline.schema import LOG
from celeriac.pipeline.warehouse import escaped, spark_path
from celeriac.store.catalogue import catalogue_of, hour_at, span_of
from celeriac.store.manifest import Manifest
from celeriac.store.place import place_for
from celeriac.store.segment import EVENTS, Damaged, Segment, TooNew, check_segment

__all__ = ["Chunk", "Gone", "Intake", "UnusedSegment", "covered_spans", "partly"]

#: Segments that are checked at once: one is read while others are added up.
_CHECKS: Final = 4


class Gone(Exception):
    """A segment is not there any more: what it had is in another."""


class UnusedSegment(NamedTuple):
    """A segment that could not be used."""

    kind: str
    path: str
    rows: int
    text: str
    #: The UTC date of its first row.
    day: str


class Chunk(NamedTuple):
    """Segments that are taken together."""

    segments: list[Segment]
    unused: list[UnusedSegment]

    @property
    def rows(self) -> int:
        """How many events they hold."""
        return sum(segment.rows for segment in self.segments)


def covered_spans(manifest: Manifest | None) -> list[Span]:
    """Return the numbers that are in the tables, joined."""
    if manifest is None:
        return []
    told = manifest.covered.items()
    return join(Span(recorder, first, last) for recorder, spans in told for first, last in spans)


class Intake:
    """A log, as a job reads it."""

    def __init__(self, spark: SparkSession, url: str | Path) -> None:
        self._spark = spark
        self.place = place_for(url)
        self.root = spark_path(self.place, str(url))
        #: Where segments are, as Spark calls it.
        self.events = f"{self.root}/{EVENTS}"

    def segments(self) -> list[Segment]:
        """Return the segments that count, sorted by recorder and number."""
        return catalogue_of(self.place, None).segments

    def new(self, covered: Sequence[Span]) -> list[Segment]:
        """Return the segments that hold what is not covered, those that were recorded first before others."""
        found = [segment for segment in self.segments() if not is_within(span_of(segment), covered)]
        return sorted(found, key=lambda each: (hour_at(each), each.recorder, each.first))

    def within(self, since: float | None, until: float | None) -> list[Segment]:
        """Return the segments that can hold events of a time, in the same order."""
        found = [
            segment
            for segment in self.segments()
            if (since is None or segment.end_at >= since) and (until is None or segment.begin_at <= until)
        ]
        return sorted(found, key=lambda each: (hour_at(each), each.recorder, each.first))

    def checked(self, segments: Sequence[Segment]) -> Chunk:
        """Read all bytes of segments, and part those that are as they were written from those that are not.

        Raises Gone if one is not there any more, and DiskError if one cannot be read at all.
        """
        with ThreadPoolExecutor(_CHECKS) as pool:
            told = list(pool.map(self._check, segments))
        return Chunk(
            [segment for segment, unused in zip(segments, told, strict=True) if unused is None],
            [unused for unused in told if unused is not None],
        )

    def _check(self, segment: Segment) -> UnusedSegment | None:
        try:
            check_segment(self.place, segment)
        except Damaged as error:
            kind = "too_new" if isinstance(error, TooNew) else "damaged"
            day = datetime.fromtimestamp(hour_at(segment), UTC).strftime("%Y-%m-%d")
            return UnusedSegment(kind, segment.path, segment.rows, f"{error}; skipped", day)
        except DiskError as error:
            if error.errno == errno.ENOENT:
                raise Gone(segment.path) from None
            raise
        return None

    def long_texts(self, segments: Sequence[Segment]) -> list[str]:
        """Return the columns in which a text may be too long for the tables; the others need not be read."""
        if not self.place.is_local:
            return list(TEXT_COLUMNS)
        sizes = dict.fromkeys(TEXT_COLUMNS, 0)
        for segment in segments:
            told = pq.read_metadata(Path(self.place.url, segment.path))
            for group in range(told.num_row_groups):
                for number in range(told.num_columns):
                    column = told.row_group(group).column(number)
                    if column.path_in_schema in sizes:
                        larger = max(sizes[column.path_in_schema], column.total_uncompressed_size)
                        sizes[column.path_in_schema] = larger
        return [name for name, size in sizes.items() if size > MAX_TEXT_BYTES]

    def is_gone(self, segments: Iterable[Segment]) -> bool:
        """Say whether one of some segments is not there any more."""
        known = set(self.place.names(EVENTS))
        return any(segment.path not in known for segment in segments)

    def raw(self, segments: Sequence[Segment]) -> DataFrame:
        """Return the rows of segments, each once."""
        found = self._spark.read.schema(LOG).parquet(
            *(escaped(f"{self.root}/{segment.path}") for segment in segments)
        )
        # Two segments may have a row both, where it is not known that one has all of the other.
        return (
            found.dropDuplicates(["recorder", "sequence"]) if overlapping(map(span_of, segments)) else found
        )

    def fresh(self, raw: DataFrame, segments: Sequence[Segment], covered: Sequence[Span]) -> DataFrame:
        """Return the rows that are not covered: a merged segment may have some that are."""
        conditions = [
            (F.col("recorder") == each.recorder) & F.col("sequence").between(each.first, each.last)
            for each in partly(segments, covered)
        ]
        return raw.where(~reduce(Column.__or__, conditions)) if conditions else raw


def partly(segments: Iterable[Segment], covered: Sequence[Span]) -> list[Span]:
    """Return the covered spans that share numbers with segments."""
    mine: Mapping[str, list[Segment]] = _by_recorder(segments)
    return [
        span
        for span in covered
        if any(each.first <= span.last and span.first <= each.last for each in mine.get(span.recorder, ()))
    ]


def _by_recorder(segments: Iterable[Segment]) -> dict[str, list[Segment]]:
    made: dict[str, list[Segment]] = {}
    for segment in segments:
        made.setdefault(segment.recorder, []).append(segment)
    return made
