"""The history of a cluster, lived through again.

**As of an instant.** A replay ``until`` T is the state as of T. Events count by their *moment*: when they
happened by the clock of who sent them, or when they were received where that clock could not be read. No
event with a later moment counts, however early it was received; one with an earlier moment does, however
late. The clock of the state stands at T, so a worker is alive as of T if it was heard of within its window
before T.

When was it heard of? By our own time of receipt, as always, but for two cases in which that would be wrong:

- It was received after T: the recorder was away, and RabbitMQ kept the events for it. Who spoke at 9:05 and
  then died was not alive at 10:00 because the recorder came back at 11:00. It counts as heard at its moment.
- Its moment is later than its receipt: the clock of its sender is ahead. All that this sender says is
  placed that much later, and so are its signs of life, or it would be silent as of every instant.

**All of it.** Without ``until`` everything counts with its receipt as recorded, and the clock stands at the
last one: the very state that a receiver beside the recorder had.

**Once.** Of a log with several recorders, an event that more than one of them received comes once, as the
first of them received it. It is known by its sender, its clock and its time: one that has neither clock nor
time cannot be told from the next, and comes as often as it is there. So does one whose other receipt is more
than some hundred thousand events away; what is known of its task is the same then, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from math import isfinite
from operator import attrgetter
from time import monotonic, sleep
from typing import Final, Protocol

from celeriac.core.order import task_key
from celeriac.core.worker import Worker
from celeriac.errors import CallerError
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Event, Gap, TaskEvent
from celeriac.node.state import State

__all__ = ["Log", "Replay", "identity"]

#: How long one wait lasts, so that a request to stop is heeded soon.
_NAP: Final = 0.05
#: Silence of the cluster that is waited for, in its own seconds. Workers speak every few seconds, so a
#: longer one is a night without a recorder, or a clock that was wrong by years: it is leapt over.
_LONGEST_SILENCE: Final = 3600.0

#: Events that the state takes at a time; meanwhile nobody else can look at it.
_BATCH: Final = 4096
#: Events that are remembered at least, for when another recorder has them too. Two that listen get an event
#: within moments of each other; this is minutes of a large cluster, and some tens of megabytes.
_REMEMBERED: Final = 100_000

_receipt = attrgetter("local_received")


class Log(Protocol):
    """What can be replayed; :class:`~celeriac.store.event_log.EventLog` is one."""

    #: What the last reading could not read, each in a sentence.
    damage: list[str]

    def recorders(self) -> list[str]:
        """Return the ids of all who recorded something that is there."""

    def read(
        self,
        since: float | None = None,
        until: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
        *,
        progress: Callable[[int, int], object] | None = None,
    ) -> Iterator[Event]:
        """Yield events in the order of receipt."""


class Replay:
    """Reads a log into a state: ``Replay(log, until=timestamp).run()`` is the state as of a timestamp.

    Iteration yields the events in the order of receipt, each after the state was updated. With a
    ``speed`` events come in real time multiplied by it, and the clock of the state follows;
    without one they come as fast as they can be read. ``types``, ``task`` and ``worker`` are those of
    :meth:`~celeriac.store.event_log.EventLog.read`: excluded events do not count. Events
    before ``since`` do not count either: the state is empty then.

    Afterwards ``damage`` has the unreadable parts; all others were read. ``progress`` gets the number of
    rows read, and the total.
    """

    def __init__(
        self,
        log: Log,
        *,
        since: float | None = None,
        until: float | None = None,
        speed: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
        progress: Callable[[int, int], object] | None = None,
        max_workers_in_memory: int = 5000,
        max_tasks_in_memory: int = 10_000,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] = sleep,
    ) -> None:
        if since is not None and until is not None and until < since:
            raise CallerError("until is before since: swap them")
        if speed is not None and not (isfinite(speed) and speed > 0):
            raise CallerError(f"invalid speed {speed}: give a number above 0, or None for no limit")
        self.since = since
        self.until = until
        self.speed = speed
        #: What the events so far add up to.
        self.state = State(
            now=lambda: self.instant,
            max_workers_in_memory=max_workers_in_memory,
            max_tasks_in_memory=max_tasks_in_memory,
        )
        # That clocks disagreed then is nothing to mend now; and a recorder that was away makes it seem so.
        self.state.on_drift = None
        self._log = log
        self._filters = (types, task, worker)
        self._progress = progress
        self._clock = clock
        self._wait = wait
        self._is_stopping = False
        #: How far we are.
        self._reached = since or 0.0
        if speed is None and until is not None:
            self._reached = until
        #: The instant that is waited for, and since when: an instant, and what our clock said then.
        self._next = self._reached
        self._anchor: tuple[float, float] | None = None

    @property
    def instant(self) -> float:
        """The timestamp of the state; it advances also while no event occurs."""
        if self._anchor is None or self.speed is None:
            return self._reached
        began_at, anchored_at = self._anchor
        played = began_at + (self._clock() - anchored_at) * self.speed
        return max(self._reached, min(played, self._next))

    @property
    def damage(self) -> list[str]:
        """Unreadable parts of the log, one sentence each."""
        return self._log.damage

    def run(self) -> State:
        """Read all of it, and return the state."""
        for _ in self.batches():
            pass
        return self.state

    def __iter__(self) -> Iterator[Event]:
        for message in self.messages():
            yield from message

    def messages(self) -> Iterator[list[Event]]:
        """Give out the events that came together, when the state has them, and nothing later."""
        if self.speed is not None:
            return self._given_out(self._played(self._events()))
        return self._given_out(list(group) for _, group in groupby(self._events(), _receipt))

    def batches(self) -> Iterator[list[Event]]:
        """Give out many events at a time, when the state has them: the quickest way through a log."""
        if self.speed is not None:
            return self.messages()
        events = self._events()
        return self._given_out(iter(lambda: list(islice(events, _BATCH)), []))

    def stop(self) -> None:
        """Have the iteration end soon. Safe to call from another thread or a signal handler."""
        self._is_stopping = True

    def close(self) -> None:
        """Have the iteration end soon; nothing is held open."""
        self.stop()

    def _events(self) -> Iterator[Event]:
        events = self._log.read(self.since, self.until, *self._filters, progress=self._progress)
        # What one recorder has twice, a live receiver got twice.
        return _once(events) if len(self._log.recorders()) > 1 else events

    def _given_out(self, groups: Iterable[list[Event]]) -> Iterator[list[Event]]:
        for group in groups:
            self.state.freeze_while(self._fold, group)
            yield group
            if self._is_stopping:
                return
        if self.until is not None and not self._is_stopping:
            self._reach(self.until)
            self._see_those_ahead()

    # -- as it happened

    def _played(self, events: Iterator[Event]) -> Iterator[list[Event]]:
        for event in events:
            self._await(event)
            if self._is_stopping:
                return
            yield [event]

    def _await(self, event: Event) -> None:
        """Wait until it is time for an event."""
        # What was received had happened by then, whatever its sender's clock says; without a receipt
        # nothing bounds what that clock may say.
        received_at = event.local_received
        happened_at = 0.0 if received_at is None else min(_moment(event), received_at)
        if happened_at <= self._reached:
            return
        if self._anchor is None or happened_at - self._reached > _LONGEST_SILENCE:
            self._anchor = (happened_at, self._clock())
        else:
            self._next = happened_at
            while not self._is_stopping and (left := self._left(happened_at)) > 0:
                self._wait(min(left, _NAP))
        if not self._is_stopping:
            self._reach(happened_at)

    def _left(self, instant: float) -> float:
        """Return how long it takes by our clock until an instant is reached."""
        if self._anchor is None or self.speed is None:
            return 0.0
        began_at, anchored_at = self._anchor
        return anchored_at + (instant - began_at) / self.speed - self._clock()

    def _reach(self, instant: float) -> None:
        self._reached = self._next = max(instant, self._reached)

    # -- what counts when

    def _fold(self, events: Iterable[Event]) -> None:
        """Have the state take events, each as heard when it counts as heard."""
        state, reached = self.state, self._reached
        # Without either the instant goes along with the receipts, and none is later.
        is_as_of = self.until is not None or self.speed is not None
        for event in events:
            heard_at = event.local_received
            if heard_at is not None and heard_at > reached:
                if is_as_of:
                    heard_at = _moment(event)
                else:
                    reached = heard_at
            if state.event_callback is not None:
                state.event_callback(state, event)
            state.apply(event, heard_at)
        self._reached = reached

    def _see_those_ahead(self) -> None:
        """Take the last that workers said of themselves for a sign of life when their clocks are ahead."""
        workers: list[Worker] = self.state.freeze_while(list, self.state.workers.values())
        for worker in workers:
            if worker.heartbeats and worker.timestamp:  # it was heard of, and not only read of
                worker.see(worker.timestamp)


def _once(events: Iterable[Event]) -> Iterator[Event]:
    """Leave out what came before, as far as is remembered."""
    recent: set[object] = set()
    older: set[object] = set()
    for event in events:
        known_by = identity(event)
        if known_by is not None:
            if known_by in recent or known_by in older:
                continue
            recent.add(known_by)
            if len(recent) >= _REMEMBERED:
                recent, older = set(), recent
        yield event


def identity(event: Event) -> object:
    """Return what an event has in common with no other; None for one that nothing marks."""
    if isinstance(event, Gap):  # each recorder tells of its own
        return None
    if event.timestamp == 0.0 and event.clock == NO_CLOCK:
        return None
    if isinstance(event, TaskEvent):
        return (event.uuid, *task_key(event))
    return (event.type, event.hostname, event.pid, event.clock, event.timestamp)


def _moment(event: Event) -> float:
    # As columns.event_moment has it, which needs the extra.
    return event.timestamp or event.local_received or 0.0
