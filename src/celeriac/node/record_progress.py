"""How a recorder is, for whoever asks."""

from typing import NamedTuple

__all__ = ["Progress"]


class Progress(NamedTuple):
    """How a recorder is. Times are moments; what is not known is None."""

    #: ``starting`` (the log is not open yet), ``recording``, ``disk`` (the disk takes nothing), ``dropping``
    #: (the buffer is full too), ``link`` (disconnected from the broker), ``stopping``, or ``stopped``.
    state: str
    #: Events on the disk, gaps among them.
    recorded: int = 0
    #: Events that wait to be written.
    pending: int = 0
    #: Events for which there was no room, and messages or events that no one could read.
    dropped: int = 0
    refused: int = 0
    #: Times that events may be missing for, as written into the log.
    gaps: int = 0
    segments: int = 0
    pending_seals: int = 0
    #: When the last recorded event came, and by how much it was late when it was on the disk.
    last_event_at: float | None = None
    lag: float | None = None
    #: What is wrong now; empty if nothing is.
    last_error: str = ""
