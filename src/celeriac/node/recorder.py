"""Records the events of a cluster, for ever: across restarts of the broker, and disks that are full."""

import logging
from collections.abc import Callable
from math import inf
from time import monotonic, sleep, time
from types import FrameType
from typing import Final

from celeriac.config import Settings
from celeriac.core.clock import LamportClock
from celeriac.core.recording import Dropped, Effect, Pause, Recording, Resume, Write
from celeriac.errors import ConnectionLost, DiskError, ImproperlyConfigured, NetworkError
from celeriac.model.events import Event
from celeriac.model.message import Delivery, Message
from celeriac.node.identity import anonymous_name
from celeriac.node.reception import Reception
from celeriac.node.record_gap import GapWriter
from celeriac.node.record_progress import Progress
from celeriac.node.record_source import NameTaken, RecordSource
from celeriac.node.scribe import Opened, Scribe, Writer
from celeriac.node.stop_signals import stop_signals
from celeriac.transport.base import Connection
from celeriac.wire.event import Gate
from celeriac.wire.names import ALL_EVENTS

__all__ = ["Progress", "Recorder"]

logger = logging.getLogger(__name__)

#: How long one wait lasts, so that a request to stop is heeded soon.
_SLICE: Final = 0.5
#: The same where there is no link that could be waited for.
_NAP: Final = 0.05
#: How often it is told how things are.
_TELL_EVERY: Final = 0.25
#: A disk that takes longer for one group is not well.
_LONG_WRITE: Final = 10.0
#: At the end: how long what was sent to us before is still taken.
_LAST_LOOK: Final = 0.5


class Recorder:
    """Receives the events of a cluster, and writes them into a log.

    On RabbitMQ a durable queue keeps events for the recorder of this ``name``, and removes them only
    after they are recorded; events during a downtime of the recorder are recorded later. On other brokers
    only connected receivers get events, and downtimes of the recorder are recorded as gaps.

    While the disk is full, no more events are requested from RabbitMQ. On other brokers up to
    ``log_pending_limit`` events are buffered, also while the log is opened, and events beyond it are dropped,
    counted, and recorded as a gap.

    A recorder runs once. With ``is_passing`` no queue outlives it. ``on_turn`` is called with the
    :class:`Progress` several times a second, once the log is open; its errors are logged once.
    """

    def __init__(
        self,
        connection: Connection,
        writer: Writer,
        *,
        settings: Settings,
        clock: LamportClock,
        name: str,
        hostname: str | None = None,
        is_passing: bool = False,
        on_turn: Callable[[Progress], object] | None = None,
    ) -> None:
        self.name = name
        self.gate = Gate()
        #: What the log was like, once it is opened.
        self.opened: Opened | None = None
        self._writer = writer
        self._on_turn = on_turn
        self._source = RecordSource(
            connection, self._take, settings=settings, name=name, is_passing=is_passing
        )
        self._recording: Recording[Delivery] = Recording(
            limit=settings.log_pending_limit,
            interval=settings.log_sync_interval,
            is_kept=self._source.is_kept,
            most_tickets=max(1, self._source.prefetch // 2),
        )
        self._reception = Reception(
            settings=settings,
            clock=clock,
            hostname=hostname or anonymous_name(),
            gate=self.gate,
            state=None,
            routing_key=ALL_EVENTS,
            node_id=None,
        )
        self._gaps = GapWriter(
            self._recording, self._reception, self._source, longest_lag=settings.log_queue_expires
        )
        self._scribe = Scribe(writer, self._source.wake)
        self._received = 0
        # A plain flag: a signal handler that set an Event could wait for the very thread it interrupts.
        self._is_stopping = False
        self._has_ended = False
        self._last: Event | None = None
        self._last_event_at: float | None = None
        self._link_trouble = ""
        self._is_display_lost = False
        self._retry_at = self._tell_at = self._write_at = 0.0

    def run(self, *, limit: int | None = None, timeout: float | None = None) -> None:
        """Record until :meth:`stop` is called, or ``limit`` events or ``timeout`` seconds have passed.

        Messages are recorded as a whole, so there may be a few more events. At the end all received events
        are recorded and sealed. In the main thread SIGINT and SIGTERM stop it; the second signal
        raises KeyboardInterrupt immediately. Raises ConnectionLost if the broker is unreachable
        at the start, ImproperlyConfigured if another recorder has the same name there, and DiskError
        if received events could not be recorded.
        """
        end_at = inf if timeout is None else monotonic() + timeout
        try:
            with stop_signals(self._on_signal):
                self._begin(end_at)
                try:
                    self._turns(limit or inf, end_at)
                except NetworkError:  # not one that is tried again; what came before it is recorded
                    self._finish()
                    raise
                self._finish()
        except KeyboardInterrupt:
            raise  # at once: what is recorded is safe, and the next start seals it
        except BaseException:
            self._source.close()
            self._close_log()
            raise

    def stop(self) -> None:
        """Let :meth:`run` return soon; from any thread, and from a handler of signals."""
        self._is_stopping = True

    @property
    def progress(self) -> Progress:
        """How it is now."""
        recording = self._recording
        return Progress(
            state=self._state(),
            recorded=recording.recorded,
            pending=recording.pending,
            dropped=recording.dropped,
            refused=self.gate.refused.total(),
            gaps=self._gaps.count,
            segments=self._writer.sealed,
            pending_seals=self._writer.pending_seals,
            last_event_at=self._last_event_at,
            lag=self._gaps.lag,
            last_error=recording.trouble or self._hang() or self._link_trouble or self._scribe.seal_trouble,
        )

    def _state(self) -> str:
        recording = self._recording
        if self._has_ended:
            return "stopped"
        if recording.is_dropping:
            return "dropping"
        if recording.trouble or self._hang():
            return "disk"
        if self._is_stopping:
            return "stopping"
        if self._source.link is None:
            return "link"
        return "starting" if self.opened is None else "recording"

    def _hang(self) -> str:
        """Return for how long the disk has not answered, if it is long."""
        span = monotonic() - self._write_at if self._recording.is_writing else 0.0
        return f"the disk has not responded for {span:.0f} seconds" if span > _LONG_WRITE else ""

    # -- one turn

    def _turns(self, limit: float, end_at: float) -> None:
        while not self._is_stopping and self._received < limit:
            now = monotonic()
            if now >= end_at:
                break
            self._settle(now)
            self._tick(now)
            self._tell(now)
            self._look(now)
            if self._recording.is_ahead(now):
                # Who waits here takes nothing off the link, and the broker sees that.
                self._scribe.wait(_SLICE)
            self._receive(min(self._patience(now), max(0.0, end_at - now)), now)

    def _patience(self, now: float) -> float:
        due = self._recording.due_in(now)
        return _SLICE if due is None else min(due, _SLICE)

    def _receive(self, patience: float, now: float) -> None:
        """Take what is there, waiting for it; make the link again if it is lost."""
        try:
            if self._source.link is not None:
                self._source.drain(patience)
            elif now >= self._retry_at:
                self._connect()
            else:
                sleep(min(patience, _NAP))
        except ConnectionLost as error:
            self._lose(error)

    def _take(self, message: Message, delivery: Delivery | None) -> None:
        events = self._reception.read(message)
        self._received += len(events)
        self._recording.receive(
            events,
            received_at=self._reception.heard_at,
            now=monotonic(),
            size=self._reception.body_bytes,
            ticket=delivery,
        )

    def _settle(self, now: float) -> None:
        """See what became of a group, or of the log that was to be opened."""
        outcome = self._scribe.outcome()
        if outcome is None:
            return
        error = outcome.error
        if self.opened is None and error is not None:
            raise error
        if outcome.opened is not None:
            self._note_opened(outcome.opened)
        elif error is None:
            self._accept(self._recording.written())
            last = self._last
            if last is not None:
                self._last_event_at = last.local_received
                self._gaps.lag = max(0.0, time() - (last.timestamp or last.local_received or 0.0))
            self._gaps.put_removed(self._writer.take_lost())
        elif isinstance(error, DiskError):
            if not self._recording.trouble:
                logger.warning("recorder: cannot record events, retrying: %s", error)
            self._recording.failed(str(error), now=now)
        else:
            raise error

    def _note_opened(self, opened: Opened) -> None:
        self.opened = opened
        for damage in opened.damage:
            logger.warning("recorder: %s", damage)
        self._gaps.open(opened.last_received_at)
        self._recording.written()

    def _tick(self, now: float) -> None:
        for effect in self._recording.tick(now):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Write(events=[]):  # nothing in those messages could be taken
                self._accept(self._recording.written())
            case Write(events=events):
                self._last = events[-1]
                self._write_at = monotonic()
                self._scribe.write(events)
            case Dropped(events=count, since=since, until=until, reason=reason):
                self._gaps.put_dropped(count, since=since, until=until, reason=reason)
            case Pause() | Resume():
                try:
                    if isinstance(effect, Pause):
                        self._source.pause()
                    else:
                        self._gaps.put_overrun(self._source.resume())
                except ConnectionLost as error:
                    self._lose(error)

    def _accept(self, deliveries: list[Delivery]) -> None:
        try:
            self._source.accept(deliveries)
        except ConnectionLost as error:
            self._lose(error)

    def _tell(self, now: float) -> None:
        if self.opened is not None and self._on_turn is not None and now >= self._tell_at:
            self._tell_at = now + _TELL_EVERY
            try:
                self._on_turn(self.progress)
            except Exception as error:  # noqa: BLE001 - that nobody can be told is no reason not to record
                if not self._is_display_lost:
                    self._is_display_lost = True
                    logger.warning("recorder: cannot write the recorder status: %s", error)

    # -- the link

    def _begin(self, end_at: float) -> None:
        """Open the log and make the first link; the link first where events are lost without it."""
        if self._source.is_kept:
            self._open_log()
            while self.opened is None and not self._is_stopping:
                self._scribe.wait(_NAP)
                self._settle(monotonic())
            self._begin_link(end_at)
        else:
            self._begin_link(end_at)
            self._open_log()

    def _open_log(self) -> None:
        self._write_at = monotonic()
        self._recording.wait_for_log()
        self._scribe.start()

    def _begin_link(self, end_at: float) -> None:
        """Make the first link; for a while the broker may still hold that of a recorder that was killed."""
        give_up_at = monotonic() + self._source.longest_hold
        while not self._is_stopping and monotonic() < end_at:
            try:
                self._connect()
            except NameTaken as error:
                if monotonic() >= give_up_at:
                    raise ImproperlyConfigured(str(error)) from error
                if not self._link_trouble:
                    logger.warning(
                        "recorder: waiting up to %.0f seconds: %s", self._source.longest_hold, error
                    )
                self._link_trouble = str(error)
                self._tell(monotonic())
                sleep(_SLICE)
            else:
                break

    def _look(self, now: float) -> None:
        """Tell of what the broker drops because we take it too slowly."""
        try:
            self._gaps.put_overrun(self._source.look(now=now))
        except ConnectionLost as error:
            self._lose(error)

    def _connect(self) -> None:
        """Make a link; what was missed meanwhile goes into the log as a gap."""
        missed = self._source.open(self._reception, is_paused=self._recording.is_paused, now=monotonic())
        reception = self._reception
        if reception.is_interrupted:
            self._gaps.reconnect(missed, trouble=self._link_trouble)
        else:
            self._gaps.start(missed)
        reception.resume(has_missed=False)
        self._link_trouble = ""

    def _lose(self, error: ConnectionLost) -> None:
        self._link_trouble = self._link_trouble or str(error)
        self._gaps.lose()
        self._retry_at = monotonic() + self._reception.lose(error)
        self._source.close()
        self._recording.lose()

    # -- the end

    def _finish(self) -> None:
        """Record all that came, and have it sealed."""
        self._is_stopping = True
        self._take_last()
        recording = self._recording
        recording.end()
        has_failed = False
        # A log that is not open yet counts as a group that is written.
        while (recording.is_writing or not recording.is_empty) and not has_failed:
            now = monotonic()
            self._settle(now)
            self._tick(now)
            self._tell(now)
            if recording.is_writing:
                self._scribe.wait(_NAP)
            has_failed = bool(recording.trouble) and not recording.is_writing
        self._source.close()
        trouble = recording.trouble
        self._close_log()
        if recording.pending:
            is_kept = self._source.is_kept
            left = "the broker keeps them, and gaps are reported again" if is_kept else "they are lost"
            raise DiskError(f"received but not recorded: {recording.pending} events, {left}: {trouble}")

    def _take_last(self) -> None:
        """Take what was sent to us before we ended; what the broker keeps it gives back to the queue."""
        try:
            self._source.pause()
            until = monotonic() + _LAST_LOOK
            while not self._source.is_kept and self._source.link is not None and monotonic() < until:
                if not self._source.drain(_NAP):
                    break
        except ConnectionLost as error:
            self._lose(error)

    def _close_log(self) -> None:
        if self._has_ended:
            return
        self._scribe.close()
        while not self._scribe.has_ended(_TELL_EVERY):
            self._tell(monotonic())
        self._has_ended = True
        self._tell_at = 0.0
        self._tell(monotonic())
        error: BaseException | None = None
        while (outcome := self._scribe.outcome()) is not None:
            error = outcome.error
        if error is not None:
            raise error

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_stopping:
            raise KeyboardInterrupt
        self.stop()
