"""A periodic scheduler that runs on several hosts at once: the one that leads sends."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import random
from threading import Event, Thread
from time import monotonic, time
from types import FrameType
from typing import Final, NamedTuple

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.core.beat import Beat, Tick
from celeriac.errors import NetworkError
from celeriac.model.task_request import Posting
from celeriac.node.beat_note import read_note, spell_note
from celeriac.node.leadership import Leadership
from celeriac.node.schedule_entry import ScheduleEntry, posting_of
from celeriac.node.stop_signals import stop_signals
from celeriac.node.task_options import TaskOptions
from celeriac.node.tick_sender import Outcome, TickSender

__all__ = ["Scheduler"]

logger = logging.getLogger(__name__)

#: How often it looks whether it still leads, and whether somebody has set the clock.
_LOOK_EVERY: Final = 1.0
#: How often it looks whether it is to stop.
_STOP_LOOK: Final = 0.05
#: How long a leader that is told to stop may take to send what it has noted.
_LEAVE_PATIENCE: Final = 3.0
#: Clocks of hosts differ by less; more is worth a word.
_CLOCK_SLACK: Final = 1.0


class _Pending(NamedTuple):
    """A tick that was noted, and is to be sent."""

    tick: Tick
    posting: Posting


class Scheduler:
    """Sends what is due, while it leads; each tick at most once, whichever of the schedulers sends it.

    A tick is noted at the arbiter before it is sent. Who is no leader any more cannot note it, and who
    leads next never sends what was noted. ``name`` is the same for all that are to share a schedule,
    ``leadership`` makes what it leads by, and ``leader`` tells who leads, for people.
    """

    def __init__(
        self,
        name: str,
        entries: Mapping[str, ScheduleEntry],
        *,
        leadership: Callable[[], Leadership],
        leader: Callable[[], str],
        sender: TickSender,
        settings: Settings,
        tasks: Mapping[str, TaskOptions],
        origin: str,
        wall_time: Callable[[], float] = time,
    ) -> None:
        self.name = name
        self.entries = dict(entries)
        #: How many ticks were ``sent``, ``skipped`` for a later one, ``missed``, or sent with no answer.
        self.counts: Counter[str] = Counter()
        self._leadership = leadership
        self._leader = leader
        self._sender = sender
        self._settings = settings
        self._tasks = tasks
        self._origin = origin
        self._wall_time = wall_time
        self._pending: dict[str, _Pending] = {}
        # A plain value: a handler of signals must not wait for a lock.
        self._is_told = False
        self._stopping = Event()
        self._current: Leadership | None = None
        #: Whether it is in the midst of noting and sending.
        self._is_busy = False
        self._failure: BaseException | None = None

    # -- from outside

    def run(self) -> None:
        """Follow and lead until told to stop. Raises what keeps it from both."""
        thread = Thread(target=self._run, name="celeriac-beat", daemon=True)
        with stop_signals(self._on_signal):
            thread.start()
            while thread.is_alive() and not self._is_told:
                thread.join(_STOP_LOOK)
            self._end(thread)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Give the leadership up, and end; from any thread, and from a handler of signals."""
        self._is_told = True

    def _end(self, thread: Thread) -> None:
        self._stopping.set()
        patience_ends_at = monotonic() + _LEAVE_PATIENCE
        while thread.is_alive():
            if self._current is not None and (not self._is_busy or monotonic() >= patience_ends_at):
                self._current.resign()
            thread.join(_STOP_LOOK)
        self._sender.close()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    # -- the thread

    def _run(self) -> None:
        try:
            self._tell_leader()
            while not self._stopping.is_set():
                self._current = leader = self._leadership()
                try:
                    if leader.elect():
                        self._lead(leader)
                finally:
                    leader.resign()
        except BaseException as error:  # noqa: BLE001 - raised by run()
            self._failure = error

    def _tell_leader(self) -> None:
        try:
            leader = self._leader()
        except NetworkError as error:
            logger.warning("beat: cannot query the current leader: %s", error)
            return
        if leader:
            logger.info("beat: %s is leader; this process is on standby", leader)

    def _lead(self, leader: Leadership) -> None:
        beat = Beat({name: entry.item for name, entry in self.entries.items()}, read_note(leader.note))
        retry = self._backoff()
        is_certain, is_ahead = True, False
        while leader.is_leader() and not self._stopping.is_set():
            self._is_busy = True
            if is_certain:
                is_ahead = self._tell_ahead(beat, is_told=is_ahead)
                is_certain = self._tick(beat, leader)
            self._send_pending(leader)
            self._is_busy = False
            pause = min(_LOOK_EVERY, beat.next_at - self._wall_time())
            if not is_certain and (not self._pending or pause <= 0):
                break  # another note can be left in another term
            if self._pending:
                pause = min(pause, retry.next())
            else:
                retry.reset()
            self._stopping.wait(max(0.0, pause))
        for pending in self._pending.values():
            self._miss(pending.tick, "not sent while this process was leader")
        self._pending.clear()

    def _tick(self, beat: Beat, leader: Leadership) -> bool:
        """Note what is due, and have it sent; say whether what stands in the note is certain."""
        now = self._wall_time()
        due = beat.tick(now)
        if not due.is_news:
            return True
        is_noted, is_certain = self._leave(leader, spell_note(beat.note(now)))
        if is_certain and not is_noted:
            return True  # who leads next will find it due
        for tick in (*due.ticks, *due.stale):
            if tick.skipped:
                self.counts["skipped"] += tick.skipped
                logger.warning(
                    "beat: entry %r: skipped ticks before %s that were missed, count=%d",
                    *(tick.entry, _moment_text(tick.at), tick.skipped),
                )
        for tick in due.stale:
            self._miss(tick, "expired")
        for tick in due.ticks:
            if is_noted:
                self._pend(tick, leader.token)
            else:
                self._miss(tick, "unknown whether it was recorded")
        return is_certain

    def _leave(self, leader: Leadership, note: bytes) -> tuple[bool, bool]:
        """Leave a note; say whether it is left, and whether no call is on its way that nobody waits for.

        Such a call could undo a later note. One of another term cannot: its token is old.
        """
        retry, is_certain = self._backoff(), True
        while leader.is_leader():
            try:
                return leader.leave_note(note), is_certain
            except NetworkError as error:
                if is_certain:
                    logger.warning("beat: cannot record due ticks, so they are not sent: %s", error)
                is_certain = False
            if self._stopping.wait(retry.next()):
                break
        return False, is_certain

    def _backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=random)

    # -- sending

    def _pend(self, tick: Tick, token: int) -> None:
        entry = self.entries[tick.entry]
        before = self._pending.pop(tick.entry, None)
        if before is not None:
            self._miss(before.tick, "not sent before the next tick was due")
        posting = posting_of(
            entry,
            tick,
            beat=self.name,
            token=token,
            settings=self._settings,
            task=self._tasks.get(entry.task),
            origin=self._origin,
        )
        self._pending[tick.entry] = _Pending(tick, posting)

    def _send_pending(self, leader: Leadership) -> None:
        for name, (tick, posting) in list(self._pending.items()):
            expires = posting.request.expires
            if expires is not None and expires <= self._wall_time():
                del self._pending[name]
                self._miss(tick, "expired")
                continue
            outcome = self._sender.send(posting, may_send=leader.is_leader)
            if outcome is Outcome.NOT_YET:
                return
            del self._pending[name]
            self._tell(tick, posting, outcome)

    def _tell(self, tick: Tick, posting: Posting, outcome: Outcome) -> None:
        request = posting.request
        if outcome is Outcome.SENT:
            self.counts["sent"] += 1
            logger.info(
                "beat: entry %r: sent %s[%s] for %s",
                *(tick.entry, request.task, request.id, _moment_text(tick.at)),
            )
        elif outcome is Outcome.UNKNOWN:
            self.counts["unknown"] += 1
            logger.warning(
                "beat: entry %r: %s[%s] for %s was sent but not confirmed by the broker; it is not sent "
                "again, to avoid a duplicate",
                *(tick.entry, request.task, request.id, _moment_text(tick.at)),
            )
        else:
            self._miss(tick, "the broker refused it")

    def _miss(self, tick: Tick, reason: str) -> None:
        self.counts["missed"] += 1
        logger.warning("beat: entry %r: missed the tick of %s: %s", tick.entry, _moment_text(tick.at), reason)

    def _tell_ahead(self, beat: Beat, *, is_told: bool) -> bool:
        """Say that nothing will be sent for long, once; return whether it is so."""
        ahead = {name: by for name, by in beat.ahead(self._wall_time()).items() if by > _CLOCK_SLACK}
        if ahead and not is_told:
            name, by = max(ahead.items(), key=lambda each: each[1])
            logger.warning(
                "beat: the last tick of entry %r is %.0f seconds ahead of this clock; nothing is sent "
                "until then. Correct the clock, or start with another --name.",
                *(name, by),
            )
        return bool(ahead)


def _moment_text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
