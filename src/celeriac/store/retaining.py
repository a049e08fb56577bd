"""Has a log keep what is to be kept, and no more: by age, by outcome and by size."""

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from celeriac.core.coverage import Span
from celeriac.core.retention import Piece, Plan, beyond_size, plan
from celeriac.store.catalogue import Catalogue, mark, span_of
from celeriac.store.compaction import alone, sweep
from celeriac.store.event_log import EventLog, Progress
from celeriac.store.reading import lost, thinned
from celeriac.store.segment import Damaged, Segment, read_segment, write_segment

__all__ = ["Retained", "apply_retention"]

#: Segments after which it is noted what was done; what a crash costs is to do them again.
_GROUP: Final = 64


class Retained(NamedTuple):
    """What was done."""

    #: Segments that are gone, and those of which only failures are left.
    dropped: int
    trimmed: int
    rows_removed: int
    bytes_removed: int
    #: What could not be read, and was left as it is.
    damage: list[str]


def apply_retention(
    log: EventLog,
    *,
    keep: float | None,
    keep_failures: float | None = None,
    max_bytes: int | None = None,
    now: float,
    progress: Progress | None = None,
) -> Retained:
    """Remove what is older than ``keep`` seconds, and then the oldest of what is more than ``max_bytes``.

    Events of tasks that failed, anywhere in the log, are kept for ``keep_failures`` seconds. A segment
    counts as old as its youngest row. While some of the log cannot be read, what failed is not known
    for sure, and nothing is trimmed. ``progress`` counts rows.
    """
    with alone(log):
        work = _Work(log, progress)
        catalogue = log.catalogue()
        found = plan(
            catalogue.pieces(),
            keep=keep,
            keep_failures=keep_failures,
            now=now,
            trimmed=catalogue.marks["trimmed"],
        )
        work.begin(catalogue, found)
        # Before any of it is removed: a task failed, also if that was long ago.
        failed = work.failed() if found.trim else None
        work.drop(found.drop)
        if failed is not None:
            work.trim(found.trim, failed)
        catalogue = log.catalogue()
        work.begin(catalogue, Plan(beyond_size(catalogue.pieces(), max_bytes=max_bytes), []))
        work.drop(work.plan.drop)
        return work.report()


class _Work:
    """What is done to the segments of a log, and how far it is."""

    def __init__(self, log: EventLog, progress: Progress | None) -> None:
        self._log = log
        self._progress = progress
        self._done = self._total = 0
        self._segments: dict[str, Segment] = {}
        self._dropped = self._trimmed = self._rows = self._bytes = 0
        _, self._damage = sweep(log)
        self.plan = Plan([], [])

    def begin(self, catalogue: Catalogue, found: Plan) -> None:
        """Take up what was decided about the segments of a listing."""
        self.plan = found
        self._segments = {segment.path: segment for segment in catalogue.segments}
        self._total = self._done + self._rows_in([*found.drop, *found.trim])
        if found.trim:
            self._total += sum(segment.rows for segment in catalogue.segments)

    def drop(self, pieces: Sequence[Piece]) -> None:
        """Remove segments. That they are to go is noted before, so that nobody takes them for lost."""
        if not pieces:
            return
        segments = [self._segments[piece.path] for piece in pieces]
        mark(self._log.place, map(span_of, segments), "nothing")
        for segment in segments:
            self._remove(segment)
            self._dropped += 1
            self._rows += segment.rows
            self._tell(segment.rows)

    def trim(self, pieces: Sequence[Piece], failed: pa.Array) -> None:
        """Leave only the rows of tasks that failed."""
        waiting = iter(pieces)
        while group := list(islice(waiting, _GROUP)):
            # Before any of it: rows that are missing are then not taken for lost, also after a crash.
            mark(self._log.place, [piece.span for piece in group], "failures")
            done: list[Span] = []
            emptied: list[Piece] = []
            replaced: list[Segment] = []
            for piece in group:
                segment = self._segments[piece.path]
                try:
                    rows = read_segment(self._log.place, segment, is_for_rewriting=True)
                except Damaged as error:
                    self._damage.append(f"{error}; the segment is not trimmed")
                    continue
                kept = rows.filter(pc.is_in(rows["uuid"], value_set=failed))
                if not kept.num_rows:
                    emptied.append(piece)
                    continue
                done.append(piece.span)
                self._tell(segment.rows)
                if kept.num_rows < segment.rows:
                    self._rewrite(segment, kept)
                    replaced.append(segment)
            mark(self._log.place, done, "trimmed")
            for segment in replaced:
                self._remove(segment)
            self.drop(emptied)

    def report(self) -> Retained:
        """Return what was done."""
        return Retained(self._dropped, self._trimmed, self._rows, self._bytes, self._damage)

    def _rewrite(self, segment: Segment, kept: pa.Table) -> None:
        made = write_segment(
            self._log.place,
            kept.to_batches(),
            recorder=segment.recorder,
            first=segment.first,
            last=segment.last,
            generation=segment.generation + 1,
        )
        self._trimmed += 1
        self._rows += segment.rows - made.rows
        self._bytes -= made.size

    def failed(self) -> pa.Array | None:
        """Return the ids of all tasks that failed; None if that cannot be known."""
        begun = self._done
        batches = self._log.batches(
            types=("task-failed",), columns=["uuid"], progress=lambda done, _: self._tell_at(begun + done)
        )
        found = [batch.column("uuid").unique().drop_null() for batch in batches]
        # What is nowhere will not be known tomorrow either.
        catalogue = self._log.catalogue()
        known = {lost(hole) for hole in catalogue.missing}
        known |= {thinned(segment, rows) for segment, rows in catalogue.thinned()}
        unread = [each for each in self._log.damage if each not in known]
        if unread:
            self._damage += unread
            self._damage.append(
                "the log has damage, so retention removed nothing: run celeriac log verify first"
            )
            return None
        return pa.chunked_array(found, pa.string()).unique()

    def _remove(self, segment: Segment) -> None:
        self._log.place.remove(segment.path)
        self._bytes += segment.size

    def _rows_in(self, pieces: Sequence[Piece]) -> int:
        return sum(self._segments[piece.path].rows for piece in pieces)

    def _tell(self, rows: int) -> None:
        self._tell_at(self._done + rows)

    def _tell_at(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, max(done, self._total))
