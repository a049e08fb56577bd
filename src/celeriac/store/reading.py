"""The rows of one recorder, from all its files, whatever becomes of those meanwhile."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from celeriac.core.coverage import Span
from celeriac.errors import DiskError
from celeriac.store.catalogue import FIRST, Catalogue, Unsealed, hour_at
from celeriac.store.columns import SCHEMA
from celeriac.store.place import Place
from celeriac.store.segment import Damaged, Segment, read_segment
from celeriac.store.selection import Selection
from celeriac.store.stream import Stream
from celeriac.store.write_ahead_scan import Scanned, scan, write_ahead_files

__all__ = ["Reading", "Source", "is_admitted", "left_out", "lost", "scan_unsealed", "sources_of", "thinned"]

#: A file with rows.
Source = Segment | Unsealed

#: Rows that are looked at together.
_BATCH_ROWS: Final = 65_536
#: Files are merged, sealed and removed while we read; one that is gone each time we look is at fault.
_TRIES: Final = 5


class Reading(Stream):
    """The rows of one recorder, each of them once.

    A file that is gone when its turn comes was sealed, merged or trimmed: ``look_again`` then tells which
    has its rows now. What cannot be read is told of in ``damage``, and ``count`` is told of rows read.
    """

    def __init__(
        self,
        place: Place,
        sources: Sequence[Source],
        selection: Selection,
        *,
        columns: Sequence[str],
        dictionaries: Sequence[str],
        look_again: Callable[[], Catalogue],
        count: Callable[[int], object],
        damage: list[str],
    ) -> None:
        super().__init__()
        self._place = place
        self._sources = deque(sources)
        self._selection = selection
        self._columns = columns
        self._dictionaries = [name for name in dictionaries if name in columns]
        self._look_again = look_again
        self._count = count
        self._damage = damage
        #: The highest number that was read, or that is not to be had.
        self._passed = FIRST - 1
        self._scanned: set[Unsealed] = set()
        self._batches: deque[pa.RecordBatch] = deque()
        self._tries = 0

    def next_at(self) -> float:
        """Return when the hour of the next segment began, if it is its turn: no row of it came earlier."""
        if self._batches:
            return -inf
        while self._sources and self._is_passed(self._sources[0]):
            self._sources.popleft()
        source = self._sources[0] if self._sources else None
        return hour_at(source) if isinstance(source, Segment) else -inf

    def next_rows(self) -> tuple[pa.RecordBatch, pa.BooleanArray | None] | None:
        """Return the next batch of what is at hand, or of the next file that can have wanted rows."""
        while not self._batches:
            if not self._sources:
                return None
            self._open(self._sources.popleft())
        batch = self._batches.popleft()
        self._count(batch.num_rows)
        return batch, None if self._selection.has_memory else self._selection.mask(batch)

    def _open(self, source: Source) -> None:
        """Have the rows of a file at hand."""
        if self._is_passed(source):
            return
        batches = self._rows_of(source)
        if batches is not None:
            self._batches.extend(self._unread(source, batches))

    def _is_passed(self, source: Source) -> bool:
        if isinstance(source, Unsealed):
            return source in self._scanned
        if not is_admitted(source, self._selection):
            self._pass(source)
            return True
        return source.last <= self._passed

    def _pass(self, source: Segment) -> None:
        """Take note that a segment is done. What is not in it is nowhere, or in another that overlaps."""
        others = [each.first - 1 for each in islice(self._sources, 2) if each.first > source.first]
        self._passed = max(self._passed, min([source.last, *others]))

    def _rows_of(self, source: Source) -> Iterable[pa.RecordBatch] | None:
        """Return the rows of a file, as far as they can be read; None if it is gone, and others took over."""
        try:
            if isinstance(source, Segment):
                table = read_segment(
                    self._place, source, columns=self._columns, dictionaries=self._dictionaries
                )
                batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=_BATCH_ROWS)
                return batches
            scanned = scan_unsealed(source)
        except Damaged as error:
            self._damage.append(left_out(error, source))
            return ()
        except DiskError as error:
            return None if self._has_moved(source) else self._cannot_be_read(error)
        self._scanned.add(source)
        self._damage += [f"{source.path.parent}: {each}" for each in scanned.damage]
        return [_encoded(batch.select(self._columns), self._dictionaries) for batch in scanned.batches]

    def _unread(self, source: Source, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows that were not read before: files overlap where one took the place of others."""
        for batch in batches:
            numbers = pc.min_max(batch.column("sequence")).as_py()
            fresh = batch
            if numbers["min"] is not None and numbers["min"] <= self._passed:
                fresh = batch.filter(pc.greater(batch.column("sequence"), self._passed))
            self._passed = max(self._passed, numbers["max"] or 0)
            if fresh.num_rows:
                yield fresh
        if isinstance(source, Segment):
            self._pass(source)

    def _has_moved(self, source: Source) -> bool:
        """Look where the rows of a file are that cannot be read; False if it is still where it was."""
        catalogue = self._look_again()
        sources = sources_of(catalogue, source.recorder)
        self._tries += 1
        if source in sources or self._tries > _TRIES * (len(sources) + 1):
            return False
        self._sources = deque(sources)
        end = source.last if isinstance(source, Segment) else source.first
        self._damage += [
            lost(hole)
            for hole in catalogue.missing
            if hole.recorder == source.recorder and hole.first <= end and hole.last >= source.first
        ]
        return True

    def _cannot_be_read(self, error: DiskError) -> tuple[()]:
        self._damage.append(f"{error}; its content is skipped")
        return ()


def sources_of(catalogue: Catalogue, recorder: str) -> list[Source]:
    """Return the files of a recorder, in the order of their numbers."""
    everybody: list[Source] = [*catalogue.segments, *catalogue.unsealed]
    mine = [source for source in everybody if source.recorder == recorder]
    return sorted(mine, key=lambda source: source.first)


def scan_unsealed(unsealed: Unsealed, *, has_batches: bool = True) -> Scanned:
    """Return what counts of a write-ahead file: it ends where the next one begins."""
    # In this order: it goes on until there is a next one, and not any more when there is.
    numbers = [int(path.stem) for path in write_ahead_files(unsealed.path.parent)]
    scanned = scan(unsealed.path, has_batches=has_batches)
    later = [number for number in numbers if number > unsealed.first]
    return scanned.until(later[0] - 1) if later else scanned


def is_admitted(segment: Segment, selection: Selection) -> bool:
    """Return whether a segment can hold what is selected, by its name."""
    return selection.admits(begin_at=segment.begin_at, end_at=segment.end_at)


def left_out(error: Damaged, source: Source) -> str:
    """Say what a damaged segment costs."""
    rows = f"{source.rows:,} events" if isinstance(source, Segment) else "events"
    return f"{error}; {rows} are skipped"


def lost(hole: Span) -> str:
    """Say that numbers are missing."""
    return (
        f"events {hole} are missing ({hole.size:,}), and retention did not remove them: restore their "
        "segments from a backup, or from damaged/"
    )


def thinned(segment: Segment, rows: int) -> str:
    """Say that a segment has fewer events than it stands for."""
    return (
        f"{rows:,} events of {segment.first}-{segment.last} of {segment.recorder} are missing in "
        f"{segment.path}: they were damaged before the segment was sealed, and the rest of their bytes is "
        "in damaged/"
    )


def _encoded(batch: pa.RecordBatch, dictionaries: Sequence[str]) -> pa.RecordBatch:
    """Return rows with some columns dictionary-encoded, as those of a segment are."""
    columns = {
        name: column.dictionary_encode() if name in dictionaries else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays([*columns.values()], schema=pa.schema(fields, metadata=SCHEMA.metadata))
