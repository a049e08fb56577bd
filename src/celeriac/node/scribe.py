"""The thread of a recorder that waits for the disk, so that the one that receives never does."""

import logging
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import Final, NamedTuple, Protocol

from celeriac.errors import DiskError
from celeriac.model.events import Event

__all__ = ["Opened", "Scribe", "Writer"]

logger = logging.getLogger(__name__)

#: How often the log is asked whether something is to be sealed, when nothing else happens.
_TICK: Final = 0.5


class Opened(Protocol):
    """What was found when a log was opened."""

    @property
    def recorder(self) -> str:
        """Who records, as the log has it."""

    @property
    def last_received_at(self) -> float | None:
        """When the last event came that is in the log."""

    @property
    def damage(self) -> tuple[str, ...]:
        """What was damaged, and what became of it."""


class Writer(Protocol):
    """A log to be written, by one thread at a time."""

    @property
    def recorded(self) -> int:
        """How many events are recorded, since it was opened."""

    @property
    def sealed(self) -> int:
        """How many segments were sealed."""

    @property
    def pending_seals(self) -> int:
        """How many are to be sealed."""

    def open(self) -> Opened:
        """Mend what a crash left, and be ready to append."""

    def append(self, events: Sequence[Event]) -> None:
        """Add events; if it raises DiskError the same may be added again."""

    def sync(self) -> None:
        """Have all that was added on the disk."""

    def take_lost(self) -> float | None:
        """Return since when recorded events may be lost, once; None if none are."""

    def tick(self) -> None:
        """Seal what is to be sealed by now."""

    def close(self) -> None:
        """Have everything on the disk and sealed."""


class _Outcome(NamedTuple):
    error: BaseException | None
    #: The state of the log that was opened.
    opened: Opened | None


class Scribe:
    """Opens a log and writes groups of events; ``on_done`` is called, in its thread, after each step.

    The result of each step is returned once, by :meth:`outcome`. The first is that of opening the log.
    """

    def __init__(self, writer: Writer, on_done: Callable[[], object]) -> None:
        #: Why segments cannot be sealed, while they cannot; their events are recorded all the same.
        self.seal_trouble = ""
        self._writer = writer
        self._on_done = on_done
        self._groups: SimpleQueue[list[Event] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        self._done = Flag()
        self._is_open = False
        self._tick_at = 0.0
        self._sealed = 0
        # A disk that hangs must not keep the program from ending.
        self._thread = Thread(target=self._run, name="celeriac-scribe", daemon=True)

    def start(self) -> None:
        """Open the log; returns at once."""
        self._thread.start()

    def write(self, events: list[Event]) -> None:
        """Have a group recorded; returns at once."""
        self._done.clear()
        self._groups.put(events)

    def close(self) -> None:
        """Have everything sealed and the log closed, and end; returns at once: see :meth:`has_ended`."""
        self._groups.put(None)

    def outcome(self) -> _Outcome | None:
        """Return what became of the next that was asked for, once; None if that is not known yet."""
        try:
            return self._outcomes.get_nowait()
        except Empty:
            return None

    def wait(self, timeout: float) -> bool:
        """Wait until there is an outcome; say whether there is."""
        return self._done.wait(timeout)

    def has_ended(self, timeout: float) -> bool:
        """Wait until the log is closed; say whether it is. Its outcome is then the last."""
        if self._thread.ident is not None:  # else it was never opened
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._report(self._open)
        while self._is_open:
            self._report(self._turn)

    def _report(self, step: Callable[[], Opened | None]) -> None:
        opened: Opened | None = None
        error: BaseException | None = None
        try:
            opened = step()
        except Empty:
            return
        except BaseException as raised:  # noqa: BLE001 - returned by outcome()
            error = raised
        self._outcomes.put(_Outcome(error, opened))
        self._done.set()
        self._on_done()

    def _open(self) -> Opened:
        opened = self._writer.open()
        self._is_open = True
        return opened

    def _turn(self) -> None:
        """Do what is asked for; raises Empty if nothing was for a while."""
        if monotonic() >= self._tick_at:
            self._tick()
            self._tick_at = monotonic() + _TICK
        events = self._groups.get(timeout=_TICK)
        if events is None:
            self._is_open = False
            self._writer.close()
        else:
            self._writer.append(events)
            self._writer.sync()

    def _tick(self) -> None:
        """Seal what is to be sealed: what fails there harms nothing that is recorded."""
        try:
            self._writer.tick()
        except DiskError as error:
            if not self.seal_trouble:
                logger.warning("recorder: cannot seal a segment, retrying: %s", error)
            self.seal_trouble, self._sealed = str(error), self._writer.sealed
        else:
            if not self._writer.pending_seals or self._writer.sealed > self._sealed:
                self.seal_trouble = ""
