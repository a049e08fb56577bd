"""From a write-ahead file to a segment: what is damaged is set aside first, and the file goes last."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from celeriac.core.coverage import Span, is_within, join
from celeriac.errors import DiskError
from celeriac.store.catalogue import span_of
from celeriac.store.columns import SCHEMA
from celeriac.store.disk import FLAGS, At, failed
from celeriac.store.place import Place
from celeriac.store.segment import Damaged, Segment, TooNew, read_segment, segments_in, write_segment
from celeriac.store.write_ahead_scan import Region, Scanned, read_whole, scan

__all__ = ["Sealing", "Task", "cut_tail", "set_damage_aside"]

_DAMAGED: Final = "damaged"
#: Which event a row is of: what two that have the same number differ in.
_IDENTITY: Final = ("sequence", "received_at", "type", "clock", "hostname", "uuid")
#: Of an id, so that more can follow.
_ID_CHARS: Final = 73


class Task(NamedTuple):
    """A write-ahead file that is whole: another one has taken over."""

    path: Path
    #: The last number that it stands for. What is behind it was taken back.
    last: int
    #: Another run of the recorder left it, and may have sealed it.
    is_left: bool = False


class Sealing:
    """Makes segments of one recorder's write-ahead files, each exactly once whatever happens."""

    def __init__(self, place: Place, *, name: str, report: Callable[[str], None], at: At) -> None:
        self._place = place
        self._name = name
        self._report = report
        self._at = at
        #: Those that were there when we last looked, from earlier runs: nobody else adds to them.
        self._earlier: list[Segment] | None = None
        self._oldest = 0
        self._told: set[str] = set()
        #: Somebody else may have the spool: nothing in it is ours any more.
        self._is_over = False
        #: How many segments were written.
        self.sealed = 0

    def begin(self, *, oldest: int) -> None:
        """Get ready for a run; ``oldest`` is the first number that an earlier one may have left unsealed."""
        self._earlier, self._oldest, self._is_over = None, oldest, False

    def end(self) -> None:
        """Remove nothing from the spool any more: another one may have it."""
        self._is_over = True

    def seal(self, task: Task) -> None:
        """Make a segment of a file, and remove the file. Raises DiskError; it can then be tried again."""
        try:
            scanned = scan(task.path).until(task.last)
        except DiskError as error:
            if error.errno != errno.ENOENT:
                raise
            self._tell(f"{task.path} was removed, and the events up to number {task.last:,} are lost")
            return
        if not task.is_left:
            # What another run left was looked at when this one began.
            for sentence in set_damage_aside(self._place, self._name, scanned):
                self._tell(sentence)
        if scanned.rows:
            having, parts = self._compare(scanned)
            span = Span(scanned.recorder, scanned.first, scanned.next - 1)
            if not is_within(span, join(map(span_of, having))):
                self._write(scanned, parts)
        self._at("seal-before-remove")
        if self._is_over:
            raise DiskError(f"{task.path} is sealed, but another process took over the spool")
        try:
            task.path.unlink(missing_ok=True)
        except OSError as error:
            raise failed(f"{task.path} is sealed, but cannot be removed", error) from None

    def _shared(self, scanned: Scanned) -> list[Segment]:
        """Return the segments that have numbers of a file."""
        if self._earlier is None:
            # Of years of segments, those that matter are a few.
            self._earlier = [each for each in segments_in(self._place) if each.last >= self._oldest]
        return [
            each
            for each in self._earlier
            if each.recorder == scanned.recorder and each.first < scanned.next and each.last >= scanned.first
        ]

    def _compare(self, scanned: Scanned) -> tuple[list[Segment], list[Segment]]:
        """Return the segments that have the events of a file, and those of them that the file has all of.

        One that is damaged is set aside.
        """
        having: list[Segment] = []
        parts: list[Segment] = []
        for segment in self._shared(scanned):
            try:
                is_same = _has_rows(self._place, segment, scanned)
            except TooNew:
                having.append(segment)  # it is as it was written, by a later Celeriac
                continue
            except Damaged as error:
                # Here are the same events once more.
                self._place.set_aside(segment.path)
                self._earlier = None
                self._tell(f"{error}; moved to damaged/ and sealed again")
                continue
            except DiskError:
                # It may have become part of another one since we looked.
                self._earlier = None
                raise
            if is_same:
                having.append(segment)
                if not segment.generation and scanned.first <= segment.first and segment.last < scanned.next:
                    parts.append(segment)
        return having, parts

    def _write(self, scanned: Scanned, parts: Sequence[Segment]) -> None:
        """Make a segment of what is in a file, for the numbers that are in it and no others.

        What another file or segment has is never hidden then, and what is nowhere is seen to be missing.
        ``parts`` are segments with some of its events: a copy of the file was sealed before it was whole.
        """
        if all(segment in parts for segment in self._shared(scanned)):
            write_segment(
                self._place,
                scanned.batches,
                recorder=scanned.recorder,
                first=scanned.first,
                last=scanned.next - 1,
                generation=0,
            )
        else:
            # The same file gets the same id, so that to try again is fine.
            recorder = f"{scanned.recorder[:_ID_CHARS]}-{crc32(read_whole(scanned.path)) & 0xFFFFFF:06x}"
            batch = _renumbered(scanned.batches, recorder)
            write_segment(self._place, [batch], recorder=recorder, first=1, last=batch.num_rows, generation=0)
            self._tell(
                f"{scanned.path.name} has numbers {scanned.first}-{scanned.next - 1} of "
                f"{scanned.recorder}, but the log has other events with these numbers: the spool is older "
                f"than the log, or is a copy. Its {scanned.rows:,} events are stored as those of {recorder}"
            )
        self.sealed += 1

    def _tell(self, sentence: str) -> None:
        """Report something, once however often it is tried."""
        if sentence not in self._told:
            self._told.add(sentence)
            self._report(sentence)


def _has_rows(place: Place, segment: Segment, scanned: Scanned) -> bool:
    """Say whether a segment has the events of a file with its numbers, and not others.

    What was sealed has them all; of what was made of it since, retention may have removed some.
    """
    theirs = read_segment(place, segment, columns=_IDENTITY)
    ours = pa.Table.from_batches(scanned.batches).select(_IDENTITY)
    numbers = ours["sequence"]
    ours = ours.filter(
        pc.and_(pc.greater_equal(numbers, segment.first), pc.less_equal(numbers, segment.last))
    )
    theirs = theirs.filter(pc.is_in(theirs["sequence"], value_set=ours["sequence"].combine_chunks()))
    if segment.generation:
        ours = ours.filter(pc.is_in(ours["sequence"], value_set=theirs["sequence"].combine_chunks()))
    is_same: bool = theirs.equals(ours)
    return is_same


def _renumbered(batches: Sequence[pa.RecordBatch], recorder: str) -> pa.RecordBatch:
    """Return the same events as those of another recorder, numbered from 1 on."""
    table = pa.Table.from_batches(batches, SCHEMA)
    columns = {
        "recorder": pa.array([recorder] * table.num_rows, pa.string()),
        "sequence": pa.array(range(1, table.num_rows + 1), pa.int64()),
    }
    arrays = [columns.get(name, table[name]) for name in SCHEMA.names]
    return pa.Table.from_arrays(arrays, schema=SCHEMA).combine_chunks().to_batches()[0]


def set_damage_aside(place: Place, name: str, scanned: Scanned) -> tuple[str, ...]:
    """Copy the damaged bytes of a file to ``damaged/``, and return what there is to tell."""
    sentences = list(scanned.damage)
    regions = [*scanned.bad, *([scanned.tail] if scanned.tail else [])]
    content = read_whole(scanned.path) if regions else b""
    for region in regions:
        # The same damage has the same name: to find it again adds nothing.
        aside = f"{_DAMAGED}/spool/{name}/{scanned.path.name}.{region.start}-{region.end}"
        place.write(aside, content[region.start : region.end])
    if scanned.tail:
        sentences.append(_tail_sentence(scanned.path, scanned.tail))
    if regions:
        sentences[-1] += f"; a copy of the damaged bytes is in {place.url}/{_DAMAGED}/spool/{name}"
    return tuple(sentences)


def cut_tail(scanned: Scanned) -> None:
    """Cut off what is behind the last whole frame of a file, once it was set aside."""
    if scanned.tail is None:
        return
    try:
        number = os.open(scanned.path, os.O_RDWR | FLAGS)
        try:
            os.ftruncate(number, scanned.tail.start)
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        raise failed(f"{scanned.path} cannot be repaired", error) from None


def _tail_sentence(path: Path, tail: Region) -> str:
    if tail.is_whole:
        return (
            f"{path.name} is damaged at its end: {tail.lost:,} events are lost, which may have been "
            "recorded; their numbers are not reused"
        )
    events = "" if tail.lost is None else f", {tail.lost:,} events"
    return (
        f"{path.name} ends in the middle of a write: removed {tail.end - tail.start:,} bytes{events} that "
        "were not recorded yet, as after a crash"
    )
