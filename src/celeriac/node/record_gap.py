"""The times for which events may be missing, written into the log of a recorder."""

import logging
from time import monotonic, time
from typing import Final, NamedTuple

from celeriac.core.recording import Recording
from celeriac.model.message import Delivery
from celeriac.node.reception import Reception
from celeriac.node.record_source import RecordSource

__all__ = ["GapWriter"]

logger = logging.getLogger(__name__)

#: Seconds by which a clock is set, at the least: two readings of it are never made at one moment.
_LEAST_STEP: Final = 0.1
_REMOVED: Final = "recorded events may be lost: their files were removed or unmounted before they were sealed"


class _Start(NamedTuple):
    """The first connection of a recorder."""

    missed: str
    connected_at: float


class GapWriter:
    """Writes gaps among the events that wait to be recorded.

    The gap of a restart lasts from the last recorded event to the first connection, and is known once the
    log is open and the connection is there, whichever comes later. It is written before all events of the
    run: else a crash between them would leave a log that ends after the gap, and no gap would cover it.
    """

    def __init__(
        self,
        recording: Recording[Delivery],
        reception: Reception,
        source: RecordSource,
        *,
        longest_lag: float,
    ) -> None:
        #: Gaps that were written.
        self.count = 0
        #: Seconds from the last recorded event to its record; None if nothing is recorded.
        self.lag: float | None = None
        self._longest_lag = longest_lag
        self._recording = recording
        self._reception = reception
        self._source = source
        self._start: _Start | None = None
        self._is_open = False
        self._last_received_at: float | None = None
        #: When the connection was lost, by the wall clock and the monotonic clock; None while there is one.
        self._lost_at: tuple[float, float] | None = None

    def open(self, last_received_at: float | None) -> None:
        """Note that the log is open, and when its last event was received."""
        self._last_received_at, self._is_open = last_received_at, True
        self._end_start()

    def start(self, missed: str) -> None:
        """Note the first connection, and why events from before it may be missing, or nothing."""
        self._start = _Start(missed, time())
        self._end_start()

    def lose(self) -> None:
        """Note that the connection is lost, or that there is still none."""
        self._lost_at = self._lost_at or (time(), monotonic())

    def reconnect(self, missed: str, *, trouble: str) -> None:
        """Note a connection after another one was lost, and why events may be missing, or nothing.

        The wall clock may have been set meanwhile. The gap then covers the outage by the clock before and by
        the clock after: nobody knows which of them the senders of events agree with.
        """
        owed, set_back = self._source.owed, self._set_back()
        self._lost_at = None
        if missed:
            why = f"{missed}: {trouble}" if self._source.is_kept else trouble
            since, until = self._next_sent_at - set_back, time() + set_back
            self._put(why, since=since, until=until, ticket=owed)
        elif owed is not None:
            self._source.accept([owed])

    def _set_back(self) -> float:
        """Return by how many seconds the wall clock was set back since the connection was lost."""
        if self._lost_at is None:
            return 0.0
        lost_at, lost_tick = self._lost_at
        set_back = (monotonic() - lost_tick) - (time() - lost_at)
        return set_back if set_back > _LEAST_STEP else 0.0

    def put_overrun(self, missed: str) -> None:
        """Write a gap for events that the broker dropped, because they were taken too slowly; or nothing."""
        if missed:
            self._put(missed, since=self._next_sent_at)

    def put_dropped(self, count: int, *, since: float, until: float, reason: str) -> None:
        """Write a gap for events that found no room in memory."""
        reason = f"{count} events dropped, because they could not be written: {reason}"
        logger.warning("recorder: %s", reason)
        self._put(reason, since=since, until=until)

    def put_removed(self, since: float | None) -> None:
        """Write a gap for recorded events whose files were removed, or nothing."""
        if since is not None:
            logger.error("recorder: %s", _REMOVED)
            self._put(_REMOVED, since=since)

    @property
    def _next_sent_at(self) -> float:
        """The time from which the next event may be: a queue of the broker was as late as its last event."""
        lag = min(self.lag or 0.0, self._longest_lag) if self._source.is_kept else 0.0
        return self._reception.heard_at - lag

    def _end_start(self) -> None:
        if self._start is None or not self._is_open:
            return
        (missed, connected_at), self._start = self._start, None
        since, owed = self._last_received_at, self._source.owed
        if missed and since is not None:
            if since > connected_at:
                missed += (
                    f"; the clock was set back by at least {since - connected_at:.0f} seconds during this "
                    "time"
                )
            self._put(missed, since=since, until=connected_at, ticket=owed, is_first=True)
        elif owed is not None:
            self._source.accept([owed])

    def _put(
        self,
        reason: str,
        *,
        since: float,
        until: float = 0.0,
        ticket: Delivery | None = None,
        is_first: bool = False,
    ) -> None:
        self.count += 1
        # In order also where the clock was set back between the two.
        since, until = sorted((since, until or time()))
        gap = self._reception.gap(reason, since=since, until=until)
        self._recording.put(gap, now=monotonic(), ticket=ticket, is_first=is_first)
