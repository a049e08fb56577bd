"""How large a log is, and what is in it, by its names: nothing sealed is read."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from celeriac.core.coverage import Span
from celeriac.errors import DiskError
from celeriac.store.catalogue import Catalogue, Unsealed
from celeriac.store.event_log import EventLog
from celeriac.store.local_place import DAMAGED
from celeriac.store.reading import scan_unsealed
from celeriac.store.segment import Segment

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
    #: When its sealed events happened; None if there are none.
    begin_at: float | None
    end_at: float | None


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
        """When the first sealed event happened."""
        return min((each.begin_at for each in self.recorders if each.begin_at is not None), default=None)

    @property
    def end_at(self) -> float | None:
        """When the last sealed event happened."""
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
    ends = _ends(segments, waiting)
    return RecorderStat(
        recorder,
        len(segments),
        sum(each.rows for each in segments),
        sum(rows for _, _, rows, _ in waiting),
        sum(each.size for each in segments),
        sum(size for _, _, _, size in waiting),
        *ends,
        min((each.begin_at for each in segments), default=None),
        max((each.end_at for each in segments), default=None),
    )


def _of_file(unsealed: Unsealed) -> tuple[int, int, int, int]:
    """Return the first and last number of a write-ahead file, its rows and its bytes."""
    # One that is sealed at this moment is counted the next time.
    with suppress(DiskError, FileNotFoundError):
        scanned = scan_unsealed(unsealed, has_batches=False)
        return scanned.first, scanned.next - 1, scanned.rows, unsealed.path.stat().st_size
    return unsealed.first, unsealed.first - 1, 0, 0


def _ends(segments: Sequence[Segment], waiting: Sequence[tuple[int, int, int, int]]) -> tuple[int, int]:
    firsts = [each.first for each in segments] + [first for first, _, rows, _ in waiting if rows]
    lasts = [each.last for each in segments] + [last for _, last, rows, _ in waiting if rows]
    return min(firsts, default=0), max(lasts, default=0)
