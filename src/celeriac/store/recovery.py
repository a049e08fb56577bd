"""What an earlier run of a recorder left in its spool: mended, and where to go on."""

from typing import Final, NamedTuple

from celeriac.store.catalogue import marked
from celeriac.store.place import Place
from celeriac.store.sealing import Task, cut_tail, set_damage_aside
from celeriac.store.segment import segments_in
from celeriac.store.spool import Spool
from celeriac.store.write_ahead_scan import Scanned, scan_folder

__all__ = ["Recovered", "recover"]

#: The number of a recorder's first event.
_FIRST: Final = 1


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


def recover(spool: Spool, place: Place) -> Recovered:
    """Look at all write-ahead files of a spool that is ours; what is damaged is set aside, the rest is kept.

    It can be ended at any moment and begun again. Raises DiskError if the disk cannot be used, or the
    place where something has to be set aside.
    """
    left = scan_folder(spool.folder, has_batches=False)
    recorder = spool.recorder_id(known=left[-1].recorder if left else "")
    damage = tuple(sentence for scanned in left for sentence in _mended(scanned, spool, place))
    first = left[-1].next if left else _after_all_segments(place, recorder)
    times = [scanned.last_received_at for scanned in left if scanned.last_received_at is not None]
    lasts = [scanned.first - 1 for scanned in left[1:]] + [first - 1]
    tasks = [Task(scanned.path, last, is_left=True) for scanned, last in zip(left, lasts, strict=False)]
    return Recovered(
        recorder, first, times[-1] if times else None, damage, tuple(tasks), left[0].first if left else first
    )


def _mended(scanned: Scanned, spool: Spool, place: Place) -> tuple[str, ...]:
    told = set_damage_aside(place, spool.folder.name, scanned)
    cut_tail(scanned)
    return told


def _after_all_segments(place: Place, recorder: str) -> int:
    """Return the first number that was never given: somebody removed the write-ahead files."""
    sealed = [each.last + 1 for each in segments_in(place) if each.recorder == recorder]
    # Retention may have removed the last of them.
    removed = [span.last + 1 for span in marked(place) if span.recorder == recorder]
    return max([*sealed, *removed], default=_FIRST)
