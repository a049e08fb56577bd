"""What an earlier run of a recorder left in its spool: mended, and where to go on."""

from threading import Thread
from typing import Final, NamedTuple

from celeriac.core.coverage import Span
from celeriac.errors import DiskError
from celeriac.store.catalogue import FIRST, marked, span_of
from celeriac.store.place import Place
from celeriac.store.sealing import Task, cut_tail, set_damage_aside
from celeriac.store.segment import segments_in
from celeriac.store.spool import Spool
from celeriac.store.write_ahead_scan import Scanned, ended, scan, write_ahead_files

__all__ = ["Recovered", "recover"]

#: Seconds to wait for a place to list its segments, which can be many. To record is more urgent.
_PATIENCE: Final = 30.0


class Recovered(NamedTuple):
    """What there is."""

    recorder: str
    #: The first number that no event has.
    first: int
    #: When the last event was received; None if there is none.
    last_received_at: float | None
    #: What was damaged, one sentence each.
    damage: tuple[str, ...]
    #: The files that wait to be sealed. An empty one is among them if it is where to go on.
    left: tuple[Task, ...]
    #: The first number in those files.
    oldest: int
    #: When the first of them was made; None if there is none, or its header is damaged.
    left_since: float | None
    #: The last number that the log has of the recorder, if the spool does not know of it: the spool is older.
    #: Somebody else may be giving those numbers at this moment.
    beyond: int | None
    #: Whether the segments of the log could be listed.
    is_listed: bool


def recover(spool: Spool, place: Place) -> Recovered:
    """Look at all write-ahead files of a spool that is ours; what is damaged is set aside, the rest is kept.

    It can be ended at any moment and begun again. Raises DiskError if the disk cannot be used, or the
    place where something has to be set aside.
    """
    files = [scan(path, has_batches=False) for path in write_ahead_files(spool.folder)]
    recorder = spool.recorder_id(known=next(filter(None, (each.recorder for each in reversed(files))), ""))
    sealed = _sealed(place, recorder, is_needed=not files)
    is_listed, sealed = sealed is not None, sealed or []
    left = ended(files, [span.first for span in sealed])
    damage = tuple(sentence for scanned in left for sentence in _mended(scanned, spool, place))
    last = max((span.last for span in sealed), default=FIRST - 1)
    first = left[-1].next + _perhaps_recorded(left[-1]) if left else last + 1
    times = [scanned.last_received_at for scanned in left if scanned.last_received_at is not None]
    lasts = [scanned.first - 1 for scanned in left[1:]] + [first - 1]
    return Recovered(
        recorder,
        first,
        times[-1] if times else None,
        damage,
        tuple(Task(scanned.path, end, is_left=True) for scanned, end in zip(left, lasts, strict=False)),
        left[0].first if left else first,
        left[0].made_at if left else None,
        last if last >= first else None,
        is_listed,
    )


def _mended(scanned: Scanned, spool: Spool, place: Place) -> tuple[str, ...]:
    told = set_damage_aside(place, spool.folder.name, scanned)
    cut_tail(scanned)
    return told


def _perhaps_recorded(scanned: Scanned) -> int:
    """Return how many numbers at the end of the last file may have been given for good."""
    tail = scanned.tail
    return tail.lost or 0 if tail is not None and tail.is_whole else 0


def _sealed(place: Place, recorder: str, *, is_needed: bool) -> list[Span] | None:
    """Return the numbers of which segments are there, or were until retention removed them.

    None if the place is away, or does not answer: what waits is compared with them before it is sealed. If
    they are needed, since nothing else tells where to go on, it raises DiskError.
    """
    found: list[Span] = []
    errors: list[DiskError] = [DiskError(f"{place.url} is unreachable, so the end of its log is unknown")]

    def look() -> None:
        try:
            found.extend(map(span_of, segments_in(place)))
            found.extend(marked(place))
            errors.clear()
        except DiskError as error:
            errors[:] = [error]

    thread = Thread(target=look, name="celeriac-recovery", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if errors and is_needed:
        raise errors[0]
    return None if errors else [span for span in found if span.recorder == recorder]
