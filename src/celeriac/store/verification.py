"""Looks at every byte of a log, and says what is wrong with it, and what to do."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Literal, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from celeriac.core.coverage import Span, is_within, join, overlapping
from celeriac.errors import DiskError
from celeriac.store.catalogue import Catalogue, Unsealed, span_of
from celeriac.store.event_log import EventLog, Progress
from celeriac.store.reading import Source, scan_unsealed
from celeriac.store.segment import Damaged, Segment, TooNew, read_segment
from celeriac.store.selection import moments

__all__ = ["Finding", "Verified", "verify"]

Kind = Literal[
    "altered",  # bytes are not those that were written
    "truncated",  # the end is missing
    "zeroed",  # nothing but zeros, or zeros at the end, as some file systems leave it after a crash
    "unreadable",  # the system or a later version does not let us
    "inconsistent",  # it was written like that
    "missing",  # numbers that nobody has
    "overlapping",  # numbers that two segments have
    "superseded",  # a merge that did not come to its end
    "torn",  # a write that did not come to its end
    "foreign",  # none of ours
]
#: The last bytes of every Parquet file.
_END: Final = b"PAR1"
#: Seconds after which a write that has not ended is not going on.
_WRITING: Final = 60.0
_BRING_BACK: Final = "restore it from a backup, or move it away and lose its content"


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    kind: Kind
    #: The file, or the recorder.
    where: str
    what: str
    #: What to do about it.
    fix: str
    #: Whether events are lost by it, or may be. Else it is a matter of order.
    is_harmful: bool = True


class Verified(NamedTuple):
    """What was looked at, and what was found."""

    segments: int
    unsealed: int
    rows: int
    bytes: int
    findings: list[Finding]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that costs events."""
        return not any(finding.is_harmful for finding in self.findings)


def verify(log: EventLog, *, set_aside: bool = False, progress: Progress | None = None) -> Verified:
    """Read all of a log: checksums, rows, and whether each number of each recorder is there once.

    ``set_aside`` moves segments that are damaged to ``damaged/``, so that they are not read, and not told
    of, any more. ``progress`` counts files.
    """
    catalogue = log.catalogue()
    work = _Work(log, catalogue, set_aside=set_aside)
    sources: list[Source] = [*catalogue.segments, *catalogue.unsealed]
    for done, source in enumerate(sources, 1):
        if isinstance(source, Segment):
            work.look_at_segment(source)
        else:
            work.look_at_file(source)
        if progress is not None:
            progress(done, len(sources))
    work.findings += _numbers(catalogue)
    return Verified(work.segments, work.unsealed, work.rows, work.bytes, work.findings)


class _Work:
    def __init__(self, log: EventLog, catalogue: Catalogue, *, set_aside: bool) -> None:
        self._log = log
        self._set_aside = set_aside
        #: Numbers that are gone on purpose.
        self._removed = join([*catalogue.marks["nothing"], *catalogue.marks["failures"]])
        self.findings: list[Finding] = []
        self.segments = self.unsealed = self.rows = self.bytes = 0

    def look_at_segment(self, segment: Segment) -> None:
        try:
            table = read_segment(self._log.place, segment)
        except Damaged as error:
            self.segments += 1
            self.bytes += segment.size
            self._tell_damage(segment, error)
        except DiskError as error:
            # Merged or removed since it was listed.
            if segment in self._log.catalogue().segments:
                self.findings.append(Finding("unreadable", segment.path, str(error), "grant read permission"))
        else:
            self.segments += 1
            self.bytes += segment.size
            self.rows += table.num_rows
            self.findings += _contents(segment, table, self._removed)

    def look_at_file(self, unsealed: Unsealed) -> None:
        where = str(unsealed.path)
        try:
            scanned = scan_unsealed(unsealed)
            status = unsealed.path.stat()
        except OSError as error:
            # Sealed since it was listed.
            if unsealed in self._log.catalogue().unsealed:
                self.findings.append(Finding("unreadable", where, str(error), "grant read permission"))
            return
        self.unsealed += 1
        self.rows += scanned.rows
        self.bytes += status.st_size
        self.findings += [
            Finding("altered", where, each, "nothing: its recorder moves it to damaged/, and keeps the rest")
            for each in scanned.damage
        ]
        # What is being written at this moment is not whole yet, and nobody was promised it.
        if scanned.tail is not None and time.time() - status.st_mtime > _WRITING:
            size = scanned.tail.end - scanned.tail.start
            self.findings.append(
                Finding("torn", where, f"its last {size:,} bytes are an unfinished write",
                        "start its recorder, which repairs it")
            )  # fmt: skip

    def _tell_damage(self, segment: Segment, error: Damaged) -> None:
        kind: Kind = "unreadable"
        what, fix = str(error), _BRING_BACK
        if isinstance(error, TooNew):
            fix = "upgrade Celeriac"
        else:
            with suppress(DiskError):
                kind, what = _kind_of(segment, self._log.place.read(segment.path), str(error))
        if self._set_aside and not isinstance(error, TooNew):
            aside = self._log.place.set_aside(segment.path)
            fix = f"moved to {aside}: restore it from a backup, if any"
        self.findings.append(Finding(kind, segment.path, f"{what}; {segment.rows:,} events affected", fix))


def _kind_of(segment: Segment, content: bytes, error: str) -> tuple[Kind, str]:
    """Tell by the bytes of a damaged segment what happened to it."""
    if not content.strip(b"\0"):
        return "zeroed", f"empty, or only zeros ({len(content):,} bytes)"
    if content.endswith(bytes(8)):
        zeros = len(content) - len(content.rstrip(b"\0"))
        return "zeroed", f"its last {zeros:,} bytes are zeros"
    if not content.endswith(_END):
        return "truncated", f"truncated at {len(content):,} bytes"
    if crc32(content) != segment.crc:
        return "altered", f"wrong checksum: its name says {segment.crc:08x}"
    return "unreadable", error


def _contents(segment: Segment, table: pa.Table, removed: list[Span]) -> Iterator[Finding]:
    """Compare the rows of a segment with its name."""
    numbers = table["sequence"].combine_chunks()
    steps = pc.subtract(numbers[1:], numbers[:-1])
    recorders = table["recorder"].unique().to_pylist()
    fix = "report a bug: the file was written incorrectly"
    if recorders != [segment.recorder]:
        yield Finding("inconsistent", segment.path, f"its rows belong to {recorders[:3]}", fix)
    if pc.any(pc.less_equal(steps, 0)).as_py():
        yield Finding("inconsistent", segment.path, "its rows are unordered or duplicated", fix)
        return
    low, high = numbers[0].as_py(), numbers[-1].as_py()
    if low < segment.first or high > segment.last:
        yield Finding(
            "inconsistent", segment.path, f"its numbers {low}-{high} are outside the range of its name", fix
        )
    at = pc.min_max(pa.chunked_array([moments(batch) for batch in table.to_batches()])).as_py()
    if at["min"] < segment.begin_at or at["max"] > segment.end_at:
        yield Finding("inconsistent", segment.path, "its events are outside the time range of its name", fix)
    for hole in _holes(segment, numbers, steps):
        if not is_within(hole, removed):
            yield Finding(
                "missing",
                segment.path,
                f"events {hole} are missing in it ({hole.size:,}): they were damaged before it was sealed",
                "check damaged/ for the rest of their bytes",
            )


def _holes(segment: Segment, numbers: pa.Int64Array, steps: pa.Int64Array) -> Iterator[Span]:
    """Yield the numbers that a segment stands for and does not have."""
    low, high = numbers[0].as_py(), numbers[-1].as_py()
    if low > segment.first:
        yield Span(segment.recorder, segment.first, low - 1)
    for place in pc.indices_nonzero(pc.greater(steps, 1)).to_pylist():
        yield Span(segment.recorder, numbers[place].as_py() + 1, numbers[place + 1].as_py() - 1)
    if high < segment.last:
        yield Span(segment.recorder, high + 1, segment.last)


def _numbers(catalogue: Catalogue) -> Iterator[Finding]:
    """Tell what names say: numbers that are missing or there twice, and files that should not be there."""
    for hole in catalogue.missing:
        yield Finding(
            "missing",
            hole.recorder,
            f"events {hole} are missing ({hole.size:,}), and retention did not remove them",
            "restore their segments from a backup, or from damaged/",
        )
    for one, other in overlapping(map(span_of, catalogue.segments)):
        yield Finding(
            "overlapping",
            one.recorder,
            f"events {max(one.first, other.first)}-{min(one.last, other.last)} are in two segments, "
            f"{one.first}-{one.last} and {other.first}-{other.last}",
            (
                "each event is read once. If two processes merged at the same time, move away the segment "
                "with fewer rows"
            ),
            is_harmful=False,
        )
    for segment in catalogue.superseded:
        yield Finding(
            "superseded",
            segment.path,
            "superseded by another segment, and not read",
            "run celeriac log compact, which removes it",
            is_harmful=False,
        )
    for name in catalogue.foreign:
        yield Finding("foreign", name, "not a Celeriac segment", "move it away", is_harmful=False)
