"""What a log consists of, by one listing: segments, files that are not sealed yet, and what went on purpose.

Retention leaves a mark of what it did to which numbers, as an empty file under ``retained/``: where a
number is missing without one, something was lost, and every reader says so.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby, pairwise
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from celeriac.core.coverage import Span, is_within, join, missing
from celeriac.core.retention import Piece
from celeriac.store.disk import failed
from celeriac.store.place import Place
from celeriac.store.segment import EVENTS, Segment, live
from celeriac.store.write_ahead_scan import scan, write_ahead_files

__all__ = [
    "FIRST",
    "Catalogue",
    "Outcome",
    "Unsealed",
    "catalogue_of",
    "hour_at",
    "mark",
    "marked",
    "span_of",
    "spool_of",
]

#: The number of a recorder's first event.
FIRST: Final = 1
#: What a mark says of events: nothing is left of them; no more than failures is promised; and it was seen to
#: that no more than failures is left.
Outcome = Literal["nothing", "failures", "trimmed"]

_RETAINED: Final = "retained"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_MARK: Final = re.compile(
    r"([A-Za-z0-9_-]{1,80})\.(\d{12,18})-(\d{12,18})\.(nothing|failures|trimmed)", re.ASCII
)
_HOUR: Final = re.compile(rf"{EVENTS}/date=(\d{{4}}-\d\d-\d\d)/hour=(\d\d)/[^/]+", re.ASCII)
_HOUR_SECONDS: Final = 3600.0
#: The year 2020. Nothing was recorded before it: a clock that says so had not been set yet.
_SANE_AT: Final = 1_577_836_800.0
#: Who merges or removes segments while we list can hide what is there; who looks again finds it.
_LISTINGS: Final = 4


class Unsealed(NamedTuple):
    """A write-ahead file."""

    recorder: str
    first: int
    path: Path


class Catalogue(NamedTuple):
    """What there is, at one moment."""

    #: Those that are read, sorted by recorder and number.
    segments: list[Segment]
    #: Those that others stand for: what a merge did not come to remove.
    superseded: list[Segment]
    #: What no segment has yet, sorted by recorder and number.
    unsealed: list[Unsealed]
    #: Names under ``events/`` that are of no segment.
    foreign: list[str]
    #: What retention did, joined.
    marks: dict[Outcome, list[Span]]
    #: Numbers that nothing explains.
    missing: list[Span]

    @property
    def recorders(self) -> list[str]:
        """Everybody of whom there is something."""
        known = {segment.recorder for segment in self.segments} | {each.recorder for each in self.unsealed}
        return sorted(known)

    def thinned(self) -> list[tuple[Segment, int]]:
        """Return the segments that lack rows which retention did not take, and how many."""
        touched = [*self.marks["failures"], *self.marks["trimmed"]]
        found: list[tuple[Segment, int]] = []
        for segment in self.segments:
            span = span_of(segment)
            # Most have all of them.
            if segment.rows == span.size or _shared(span, touched):
                continue
            rows = span.size - segment.rows - _shared(span, self.marks["nothing"])
            if rows > 0:
                found.append((segment, rows))
        return found

    def pieces(self) -> list[Piece]:
        """Return the segments that are read, as decisions are made about them.

        Where a clock was wrong beyond doubt, a segment counts as received when the one after it was, or as
        its senders say. If nothing tells, it is of no age, and stays.
        """
        pieces: list[Piece] = []
        for _, group in groupby(self.segments, attrgetter("recorder")):
            after = inf
            for segment in reversed(list(group)):
                received_at = hour_at(segment)
                if received_at < _SANE_AT:
                    sent_at = segment.end_at // _HOUR_SECONDS * _HOUR_SECONDS
                    received_at = sent_at if after == inf and sent_at >= _SANE_AT else after
                else:
                    after = received_at
                pieces.append(
                    Piece(received_at, span_of(segment), segment.size, segment.end_at, segment.path)
                )
        return sorted(pieces, key=attrgetter("span"))


def span_of(segment: Segment) -> Span:
    """Return the numbers that a segment stands for."""
    return Span(segment.recorder, segment.first, segment.last)


def _shared(span: Span, others: Iterable[Span]) -> int:
    """Return how many numbers of a span some others have, none of which overlap."""
    return sum(
        max(0, min(span.last, other.last) - max(span.first, other.first) + 1)
        for other in others
        if other.recorder == span.recorder
    )


def hour_at(segment: Segment) -> float:
    """Return when the hour began in which the first row of a segment was received."""
    found = _HOUR.fullmatch(segment.path)
    if found is not None:
        with suppress(ValueError):  # a folder may be named after a day that no month has
            return datetime.strptime(f"{found[1]} {found[2]}Z", "%Y-%m-%d %H%z").timestamp()
    return segment.begin_at


def spool_of(place: Place, spool: Path | None) -> Path | None:
    """Return where write-ahead files are: as given, else within a log that is a folder."""
    if spool is not None:
        return spool
    return Path(place.url) / "spool" if place.is_local else None


def catalogue_of(place: Place, spool: Path | None) -> Catalogue:
    """List a log; one that others change meanwhile is listed until nothing seems to be missing."""
    made = _listed(place, spool)
    for _ in range(_LISTINGS):
        if not made.missing:
            break
        before, made = made, _listed(place, spool)
        if made.missing == before.missing:
            break
    return made


def mark(place: Place, spans: Iterable[Span], outcome: Outcome) -> None:
    """Note what retention did to some numbers, and did before, in as few marks as can be."""
    known = {span: name for name, span, told in _marks_in(place) if told == outcome}
    joined = join([*known, *spans])
    # The new ones first, so that no number is without at any moment.
    for span in joined:
        if span not in known:
            place.write(_mark_name(span, outcome), b"")
    for span in sorted(known.keys() - set(joined)):
        place.remove(known[span])


def marked(place: Place) -> list[Span]:
    """Return the numbers that retention removed or thinned out."""
    return [span for _, span, _ in _marks_in(place)]


def _listed(place: Place, spool: Path | None) -> Catalogue:
    # In this order: what is sealed meanwhile is then in one of the two listings, or in both.
    unsealed = _unsealed(spool)
    found, foreign = _found(place)
    marks = _marks(place)
    segments = live(found)
    known = {segment.path for segment in segments}
    sealed = join(map(span_of, segments))
    waiting = [
        each for each in unsealed if not is_within(Span(each.recorder, each.first, each.first), sealed)
    ]
    return Catalogue(
        segments,
        [segment for segment in found if segment.path not in known],
        waiting,
        foreign,
        marks,
        missing([*sealed, *marks["nothing"], *_spans(waiting)], first=FIRST),
    )


def _found(place: Place) -> tuple[list[Segment], list[str]]:
    found: list[Segment] = []
    foreign: list[str] = []
    for name, size in place.sizes(EVENTS).items():
        segment = Segment.parse(name, size)
        if segment is None:
            foreign.append(name)
        else:
            found.append(segment)
    return found, foreign


def _unsealed(spool: Path | None) -> list[Unsealed]:
    if spool is None:
        return []
    try:
        folders = sorted(each for each in spool.iterdir() if each.is_dir() and not each.is_symlink())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failed(f"{spool} cannot be listed", error) from None
    return sorted(each for folder in folders for each in _unsealed_in(folder))


def _unsealed_in(folder: Path) -> list[Unsealed]:
    files = write_ahead_files(folder)
    recorder = _recorder_of(folder, files) if files else ""
    # Without an id there is a damaged file and nothing else that would tell whose it is.
    return [Unsealed(recorder or folder.name, int(path.stem), path) for path in files]


def _recorder_of(folder: Path, files: Sequence[Path]) -> str:
    """Return the id of the recorder whose folder it is: a file says it, and each of its files does."""
    try:
        told = (folder / "id").read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        told = ""
    except OSError as error:
        raise failed(f"{folder / 'id'} cannot be read", error) from None
    if _ID.fullmatch(told):
        return told
    return next(filter(None, (scan(path, has_batches=False).recorder for path in files)), "")


def _spans(unsealed: Iterable[Unsealed]) -> list[Span]:
    """Return the numbers of write-ahead files as far as names tell: each goes on to where the next begins."""
    spans: list[Span] = []
    for recorder, group in groupby(unsealed, attrgetter("recorder")):
        firsts = [each.first for each in group]
        spans += [Span(recorder, first, after - 1) for first, after in pairwise(firsts) if after > first]
        spans.append(Span(recorder, firsts[-1], firsts[-1]))
    return spans


def _marks(place: Place) -> dict[Outcome, list[Span]]:
    found = _marks_in(place)
    return {
        outcome: join(span for _, span, told in found if told == outcome) for outcome in get_args(Outcome)
    }


def _marks_in(place: Place) -> list[tuple[str, Span, str]]:
    """Return the name of each mark, and what it says."""
    marks: list[tuple[str, Span, str]] = []
    for name in place.names(_RETAINED):
        found = _MARK.fullmatch(name.removeprefix(f"{_RETAINED}/"))
        if found is not None:
            marks.append((name, Span(found[1], int(found[2]), int(found[3])), found[4]))
    return marks


def _mark_name(span: Span, outcome: Outcome) -> str:
    return f"{_RETAINED}/{span.recorder}.{span.first:012d}-{span.last:012d}.{outcome}"
