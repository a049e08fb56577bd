"""A log of events, read: in the order of receipt, from all recorders, sealed or not."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from celeriac.core.coverage import Span
from celeriac.errors import CallerError, DiskError
from celeriac.model.events import Event
from celeriac.store.catalogue import Catalogue, Unsealed, catalogue_of, spool_of
from celeriac.store.columns import SCHEMA, to_events
from celeriac.store.place import place_for
from celeriac.store.reading import (
    Reading,
    Source,
    is_admitted,
    left_out,
    lost,
    scan_unsealed,
    sources_of,
    thinned,
)
from celeriac.store.segment import Damaged, Segment, read_segment
from celeriac.store.selection import Selection
from celeriac.store.stream import merged

__all__ = ["EventLog", "Progress"]

#: Is told how much is done, and of how much; rows, or files.
Progress = Callable[[int, int], object]

#: Events that are built together: as many as the caches of a processor hold, about.
_EVENT_ROWS: Final = 16_384
#: Texts that are the same in many rows, of which events then share one.
_REPEATED: Final = (
    "type", "hostname", "name", "queue", "exchange", "routing_key", "sw_ident", "sw_ver", "sw_sys",
)  # fmt: skip
#: What we listed may have become part of something else since.
_TRIES: Final = 5


class EventLog:
    """A log at a folder or URL.

    Rows come in the order in which they were received: those of one recorder by their numbers, those of
    several by our time of receipt. What cannot be read is left out, and told of in ``damage``, which is
    of the last reading alone. A recorder may write meanwhile, and segments may be merged: every row that
    was recorded when the reading began is read once, unless retention removes it first.

    ``spool`` is where a recorder of this machine keeps what is not sealed yet, for a log that is elsewhere.
    """

    def __init__(self, url: str | Path, *, spool: Path | None = None) -> None:
        self.place = place_for(url)
        self.spool = spool_of(self.place, spool)
        self.damage: list[str] = []

    def segments(self, since: float | None = None, until: float | None = None) -> list[Segment]:
        """Return the segments that can hold events of a time, sorted by recorder and number."""
        selection = Selection(since=since, until=until)
        return [segment for segment in self.catalogue().segments if is_admitted(segment, selection)]

    def catalogue(self) -> Catalogue:
        """Return all that the log consists of."""
        return catalogue_of(self.place, self.spool)

    def recorders(self) -> list[str]:
        """Return the ids of all who recorded something that is there."""
        return self.catalogue().recorders

    def last_received_at(self, recorder: str | None = None) -> float | None:
        """Return when the last event that a recorder has, or that anybody has, was received."""
        self.damage = []
        for tries_left in reversed(range(_TRIES)):
            catalogue = self.catalogue()
            recorders = catalogue.recorders if recorder is None else [recorder]
            try:
                moments = [self._last_of(sources_of(catalogue, each)) for each in recorders]
            except DiskError:
                if not tries_left:
                    raise
            else:
                return max((moment for moment in moments if moment is not None), default=None)
        return None

    def _last_of(self, sources: Sequence[Source]) -> float | None:
        for source in reversed(sources):
            try:
                if isinstance(source, Unsealed):
                    scanned = scan_unsealed(source, has_batches=False)
                    latest = scanned.last_received_at if scanned.rows else None
                else:
                    table = read_segment(self.place, source, columns=["received_at"])
                    latest = pc.max(table["received_at"]).as_py()
            except Damaged as error:
                self.damage.append(left_out(error, source))
                continue
            if latest is not None:
                found: float = latest
                return found
        return None

    def batches(
        self,
        since: float | None = None,
        until: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        dictionaries: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of :data:`~celeriac.store.columns.SCHEMA`.

        Of those that happened from ``since`` to ``until``, both included. ``types`` are globs of types of
        events, ``worker`` is one of hostnames, and ``task`` is the id of a task or a glob of names: of
        such a task, what comes from where its name was heard. ``columns`` are those to read, if not all,
        and those in ``dictionaries`` come dictionary-encoded. ``progress`` counts rows.
        """
        selection = Selection(since=since, until=until, types=types, task=task, worker=worker)
        unknown = sorted(set(columns or ()) - set(SCHEMA.names))
        if unknown:
            raise CallerError(f"unknown column {', '.join(unknown)}: use the columns of SCHEMA")
        return self._batches(selection, progress, columns or SCHEMA.names, dictionaries)

    def read(
        self,
        since: float | None = None,
        until: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Iterator[Event]:
        """Yield events as they were recorded; the same selection as of :meth:`batches`."""
        selection = Selection(since=since, until=until, types=types, task=task, worker=worker)
        return self._read(selection, progress)

    def _read(self, selection: Selection, progress: Progress | None) -> Iterator[Event]:
        for batch in self._batches(selection, progress, SCHEMA.names, _REPEATED):
            for start in range(0, batch.num_rows, _EVENT_ROWS):
                yield from to_events(batch.slice(start, _EVENT_ROWS))

    def _batches(
        self,
        selection: Selection,
        progress: Progress | None,
        columns: Sequence[str],
        dictionaries: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        self.damage = []
        catalogue = self.catalogue()
        self.damage += _losses(catalogue, selection)
        needed = {*columns, "sequence", "received_at", *selection.columns}
        count = _counting(progress, catalogue, selection)
        streams = [
            Reading(
                self.place,
                sources_of(catalogue, recorder),
                selection,
                columns=[name for name in SCHEMA.names if name in needed],
                dictionaries=dictionaries,
                look_again=self.catalogue,
                count=count,
                damage=self.damage,
            )
            for recorder in catalogue.recorders
        ]
        for batch in merged(streams):
            # What rows tell of each other depends on their order, and that is known only here.
            mask = selection.mask(batch) if selection.has_memory else None
            chosen = batch if mask is None else batch.filter(mask)
            if chosen.num_rows:
                yield chosen if list(columns) == chosen.schema.names else chosen.select(list(columns))


def _losses(catalogue: Catalogue, selection: Selection) -> list[str]:
    """Say which numbers are missing, unless all around them is of another time."""
    holes = [lost(hole) for hole in catalogue.missing if _is_near(hole, catalogue.segments, selection)]
    return holes + [
        thinned(segment, rows) for segment, rows in catalogue.thinned() if is_admitted(segment, selection)
    ]


def _is_near(hole: Span, segments: Sequence[Segment], selection: Selection) -> bool:
    mine = [segment for segment in segments if segment.recorder == hole.recorder]
    before = [segment for segment in mine if segment.last < hole.first][-1:]
    after = [segment for segment in mine if segment.first > hole.last][:1]
    around = before + after
    is_earlier = bool(after) and all(segment.end_at < selection.since for segment in around)
    is_later = bool(before) and all(segment.begin_at > selection.until for segment in around)
    return not (is_earlier or is_later)


def _counting(
    progress: Progress | None, catalogue: Catalogue, selection: Selection
) -> Callable[[int], object]:
    """Return what to tell of each row that is read; those of files that are not sealed cannot be foretold."""
    if progress is None:
        return lambda _rows: None
    total = sum(segment.rows for segment in catalogue.segments if is_admitted(segment, selection))
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, max(total, done))

    return count
