"""From a write-ahead file to a segment: what is damaged is set aside first, and the file goes last."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from celeriac.errors import DiskError
from celeriac.store.disk import FLAGS, At, failed
from celeriac.store.place import Place
from celeriac.store.segment import Damaged, Segment, TooNew, read_segment, segments_in, write_segment
from celeriac.store.write_ahead_scan import Region, Scanned, read_whole, scan

__all__ = ["Sealing", "Task", "cut_tail", "set_damage_aside"]

_DAMAGED: Final = "damaged"


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
        #: Those of earlier runs, as they were when one was first asked for: nobody else adds to them.
        self._earlier: list[Segment] | None = None
        self._oldest = 0
        #: How many segments were written.
        self.sealed = 0

    def begin(self, *, oldest: int) -> None:
        """Get ready for a run; ``oldest`` is the first number that an earlier one may have left unsealed."""
        self._earlier, self._oldest = None, oldest

    def seal(self, task: Task) -> None:
        """Make a segment of a file, and remove the file. Raises DiskError; it can then be tried again."""
        try:
            scanned = scan(task.path).until(task.last)
        except DiskError as error:
            if error.errno != errno.ENOENT:
                raise
            self._report(f"{task.path} is gone, and with it the events up to number {task.last:,}")
            return
        if not task.is_left:
            # What another run left was looked at when this one began.
            for sentence in set_damage_aside(self._place, self._name, scanned):
                self._report(sentence)
        if scanned.rows and not (task.is_left and self._is_sealed(scanned, task.last)):
            write_segment(
                self._place,
                scanned.batches,
                recorder=scanned.recorder,
                first=scanned.first,
                last=task.last,
                generation=0,
            )
            self.sealed += 1
        self._at("seal-before-remove")
        try:
            task.path.unlink(missing_ok=True)
        except OSError as error:
            raise failed(f"{task.path}, which is sealed, cannot be removed", error) from None

    def _is_sealed(self, scanned: Scanned, last: int) -> bool:
        """Say whether a segment has these events. One that is damaged is set aside."""
        if self._earlier is None:
            # Of years of segments, those that matter are a few.
            self._earlier = [each for each in segments_in(self._place) if each.last >= self._oldest]
        for segment in self._earlier:
            if (
                segment.recorder != scanned.recorder
                or not segment.first <= scanned.first <= last <= segment.last
            ):
                continue
            try:
                read_segment(self._place, segment)
            except TooNew:
                return True  # it is as it was written, by a later Celeriac
            except Damaged as error:
                # Here are the same events once more.
                self._place.set_aside(segment.path)
                self._report(f"{error}; it was set aside, and is sealed again")
            else:
                return True
        return False


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
        sentences[-1] += f"; what was there is in {place.url}/{_DAMAGED}/spool/{name}"
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
        raise failed(f"{scanned.path} cannot be mended", error) from None


def _tail_sentence(path: Path, tail: Region) -> str:
    events = "" if tail.lost is None else f", {tail.lost:,} events,"
    return (
        f"{path.name} ends in the middle of a write: {tail.end - tail.start:,} bytes{events} were cut off, "
        "as a crash leaves what was not recorded yet"
    )
