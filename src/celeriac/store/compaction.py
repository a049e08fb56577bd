"""Many small segments become few: the new one is written, and then those it stands for are removed.

A crash between the two leaves both, of which the old ones are never read; the next run removes them.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from celeriac.core.coverage import Span
from celeriac.core.retention import merges
from celeriac.errors import DiskError
from celeriac.store.catalogue import Catalogue, span_of
from celeriac.store.disk import FLAGS, MODE, failed
from celeriac.store.event_log import EventLog, Progress
from celeriac.store.segment import Damaged, Segment, read_segment, write_segment

__all__ = ["Merged", "alone", "merge_small", "sweep"]

#: On disk: more than half a million typical events, which take 200 MB in memory while they are merged.
_TARGET_BYTES: Final = 16 * 1024 * 1024


class Merged(NamedTuple):
    """What was done."""

    #: Segments that became part of larger ones, and the larger ones.
    merged: int
    made: int
    #: Segments that an earlier run left, though others stand for them.
    swept: int
    bytes_before: int
    bytes_after: int
    #: What could not be read, and was left as it is.
    damage: list[str]


def merge_small(
    log: EventLog, *, now: float, target_bytes: int = _TARGET_BYTES, progress: Progress | None = None
) -> Merged:
    """Make one of the small segments of each recorder and hour, of ``target_bytes`` at most.

    Hours that are not over wait. The same rows are in the log at every moment, for all who read
    meanwhile. ``progress`` counts segments.
    """
    with alone(log):
        swept, damage = sweep(log)
        catalogue = log.catalogue()
        known = {segment.path: segment for segment in catalogue.segments}
        runs = merges(catalogue.pieces(), target_bytes=target_bytes, now=now, gone=catalogue.marks["nothing"])
        before = after = merged = made = done = 0
        total = sum(map(len, runs))
        for run in runs:
            old = [known[piece.path] for piece in run]
            try:
                new = _merge(log, old)
            except Damaged as error:
                damage.append(f"{error}; the segment and its neighbours are not compacted")
            else:
                before += sum(segment.size for segment in old)
                after += new.size
                merged += len(old)
                made += 1
            done += len(run)
            if progress is not None:
                progress(done, total)
        return Merged(merged, made, swept, before, after, damage)


def sweep(log: EventLog) -> tuple[int, list[str]]:
    """Remove segments that others stand for; those of one that cannot be read are all there is, and stay."""
    catalogue = log.catalogue()
    damage: list[str] = []
    swept = 0
    for new, olds in _replaced(catalogue):
        try:
            read_segment(log.place, new, columns=["sequence"])
        except Damaged as error:
            damage.append(
                f"{error}. The original segments still exist, and are read again once the damaged one is "
                "moved to damaged/"
            )
            continue
        for old in olds:
            log.place.remove(old.path)
            swept += 1
    return swept, damage


def _replaced(catalogue: Catalogue) -> list[tuple[Segment, list[Segment]]]:
    """Return the segments that stand for others that are still there, with those."""
    found: dict[Segment, list[Segment]] = {}
    for old in catalogue.superseded:
        new = next(segment for segment in catalogue.segments if _covers(span_of(segment), span_of(old)))
        found.setdefault(new, []).append(old)
    return [*found.items()]


def _covers(span: Span, other: Span) -> bool:
    return span.recorder == other.recorder and span.first <= other.first and other.last <= span.last


def _merge(log: EventLog, old: list[Segment]) -> Segment:
    batches: list[pa.RecordBatch] = []
    for segment in old:
        batches += read_segment(log.place, segment, is_for_rewriting=True).to_batches()
    new = write_segment(
        log.place,
        batches,
        recorder=old[0].recorder,
        first=old[0].first,
        last=old[-1].last,
        generation=max(segment.generation for segment in old) + 1,
    )
    for segment in old:
        log.place.remove(segment.path)
    return new


@contextmanager
def alone(log: EventLog) -> Iterator[None]:
    """Be the only one who merges or removes segments of a log that is a folder; DiskError if another is.

    An object store has no such lock: there it is up to whoever runs this to run it once at a time.
    """
    folder = Path(log.place.url)
    if not log.place.is_local or not folder.is_dir():
        yield
        return
    path = folder / "upkeep.lock"
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | FLAGS, MODE)
    except OSError as error:
        raise failed(f"{path} cannot be created", error) from None
    try:
        _lock(number, path)
        yield
    finally:
        os.close(number)


def _lock(number: int, path: Path) -> None:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DiskError(
            f"{path} is locked: another process merges or removes segments of this log. Try again when it "
            "has finished"
        ) from None
    except OSError as error:
        raise failed(f"{path} cannot be locked", error) from None
