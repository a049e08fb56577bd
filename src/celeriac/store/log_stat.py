"""How large a log is, and what is in it. By names: of events only those that are not sealed yet are read."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow.compute as pc

from celeriac.core.coverage import Span
from celeriac.errors import DiskError
from celeriac.store.catalogue import Catalogue, Unsealed
from celeriac.store.event_log import EventLog
from celeriac.store.local_place import DAMAGED
from celeriac.store.reading import scan_unsealed
from celeriac.store.segment import Segment
from celeriac.store.selection import moments
from celeriac.store.write_ahead_scan import Scanned

__all__ = ["LogStat", "RecorderStat", "stat"]


class RecorderStat(NamedTuple):
    """What is there of one recorder."""

    recorder: str
    segments: int
    #: Events in segments, and in files that are not sealed yet.
    rows: int
    unsealed_rows: int
    bytes: int
    unsealed_bytes: int
    #: The range of its numbers; 0 for none.
    first: int
    last: int
    #: When its events happened, sealed or not; None if there are none.
    begin_at: float | None
    end_at: float | None


class _Waiting(NamedTuple):
    """What is there of one write-ahead file."""

    first: int
    last: int
    rows: int
    bytes: int
    #: When its events happened; none if there are none.
    moments: tuple[float, ...]


class LogStat(NamedTuple):
    """What is there in all."""

    url: str
    recorders: list[RecorderStat]
    #: Files that others stand for, that are none of ours, and that were set aside.
    superseded: int
    foreign: int
    set_aside: int
    #: Numbers that retention removed, all of them or all but failures, and those that nothing explains.
    removed: int
    trimmed: int
    missing: int

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return sum(each.segments for each in self.recorders)

    @property
    def rows(self) -> int:
        """How many events there are, sealed or not."""
        return sum(each.rows + each.unsealed_rows for each in self.recorders)

    @property
    def bytes(self) -> int:
        """How much all of it takes."""
        return sum(each.bytes + each.unsealed_bytes for each in self.recorders)

    @property
    def bytes_per_event(self) -> float | None:
        """What a sealed event takes; None if there is none."""
        rows = sum(each.rows for each in self.recorders)
        return sum(each.bytes for each in self.recorders) / rows if rows else None

    @property
    def begin_at(self) -> float | None:
        """When the first event happened."""
        return min((each.begin_at for each in self.recorders if each.begin_at is not None), default=None)

    @property
    def end_at(self) -> float | None:
        """When the last event happened."""
        return max((each.end_at for each in self.recorders if each.end_at is not None), default=None)


def stat(log: EventLog) -> LogStat:
    """Return what a listing tells of a log, and how much is not sealed yet."""
    catalogue = log.catalogue()
    return LogStat(
        log.place.url,
        [_of_recorder(catalogue, recorder) for recorder in catalogue.recorders],
        len(catalogue.superseded),
        len(catalogue.foreign),
        len(log.place.names(DAMAGED)),
        _size(catalogue.marks["nothing"]),
        _size(catalogue.marks["trimmed"]),
        _size(catalogue.missing),
    )


def _size(spans: Sequence[Span]) -> int:
    return sum(span.size for span in spans)


def _of_recorder(catalogue: Catalogue, recorder: str) -> RecorderStat:
    segments = [each for each in catalogue.segments if each.recorder == recorder]
    waiting = [_of_file(each) for each in catalogue.unsealed if each.recorder == recorder]
    happened = [at for each in waiting for at in each.moments]
    return RecorderStat(
        recorder,
        len(segments),
        sum(each.rows for each in segments),
        sum(each.rows for each in waiting),
        sum(each.size for each in segments),
        sum(each.bytes for each in waiting),
        *_ends(segments, waiting),
        min([each.begin_at for each in segments] + happened, default=None),
        max([each.end_at for each in segments] + happened, default=None),
    )


def _of_file(unsealed: Unsealed) -> _Waiting:
    # One that is sealed at this moment is counted the next time.
    with suppress(DiskError, FileNotFoundError):
        scanned = scan_unsealed(unsealed)
        size = unsealed.path.stat().st_size
        return _Waiting(scanned.first, scanned.next - 1, scanned.rows, size, _moments(scanned))
    return _Waiting(unsealed.first, unsealed.first - 1, 0, 0, ())


def _moments(scanned: Scanned) -> tuple[float, ...]:
    """Return when the first and the last event of each batch happened."""
    found = [pc.min_max(moments(batch)).as_py() for batch in scanned.batches if batch.num_rows]
    return tuple(at for each in found for at in (each["min"], each["max"]))


def _ends(segments: Sequence[Segment], waiting: Sequence[_Waiting]) -> tuple[int, int]:
    firsts = [each.first for each in segments] + [each.first for each in waiting if each.rows]
    lasts = [each.last for each in segments] + [each.last for each in waiting if each.rows]
    return min(firsts, default=0), max(lasts, default=0)
