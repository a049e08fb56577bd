"""A log writer that is made when it is opened."""

from collections.abc import Callable, Sequence

from celeriac.errors import CallerError
from celeriac.model.events import Event
from celeriac.node.scribe import Opened, Writer

__all__ = ["DeferredWriter"]


class DeferredWriter:
    """Makes a log writer when it is opened, in the thread that opens it.

    To make one loads Arrow, which takes longer than a recorder needs to subscribe. On Redis that is the time
    for which events are lost at a restart.
    """

    def __init__(self, make: Callable[[], Writer]) -> None:
        self._make = make
        self._writer: Writer | None = None

    @property
    def recorded(self) -> int:
        """How many events are recorded, since it was opened."""
        return 0 if self._writer is None else self._writer.recorded

    @property
    def sealed(self) -> int:
        """How many segments were sealed."""
        return 0 if self._writer is None else self._writer.sealed

    @property
    def pending_seals(self) -> int:
        """How many files are to be sealed."""
        return 0 if self._writer is None else self._writer.pending_seals

    def open(self) -> Opened:
        """Make the writer, and open it."""
        self._writer = self._make()
        return self._writer.open()

    def append(self, events: Sequence[Event]) -> None:
        """Add events; if it raises DiskError the same may be added again."""
        self._made().append(events)

    def sync(self) -> None:
        """Have all that was added on the disk."""
        self._made().sync()

    def take_lost(self) -> float | None:
        """Return since when recorded events may be lost, once; None if none are."""
        return self._made().take_lost()

    def tick(self) -> None:
        """Seal what is to be sealed by now."""
        self._made().tick()

    def close(self) -> None:
        """Have everything on the disk and sealed."""
        self._made().close()

    def _made(self) -> Writer:
        if self._writer is None:
            raise CallerError("the writer is not open: call open()")
        return self._writer
