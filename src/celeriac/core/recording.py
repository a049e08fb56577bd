"""What a recorder holds between the broker and the disk, and what becomes of it."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from celeriac.errors import CallerError
from celeriac.model.events import Event

__all__ = [
    "GROUP_BYTES",
    "GROUP_EVENTS",
    "MOST_BYTES",
    "Dropped",
    "Effect",
    "Pause",
    "Recording",
    "Resume",
    "Write",
]

#: So many events are worth a write of their own: from here on larger groups are hardly quicker.
GROUP_EVENTS: Final = 8192
#: The same for long ones, as they came off the broker.
GROUP_BYTES: Final = 16 * 1024 * 1024
#: There is room for this many bytes, as they came off the broker, however few the events are.
MOST_BYTES: Final = 256 * 1024 * 1024
#: A group is up to so many times as large as one that is due at once: a disk that was away for long gets
#: what waited in several, none of them more than its format can take.
_LARGEST: Final = 4
#: How long to wait before a disk that failed is tried again.
_RETRY: Final = 1.0
#: How long a broker that keeps nothing is held up at a time, which fills its buffers. Redis cuts off who
#: takes too long, with all that it had for it: from then on it is better to drop, and to know how many.
_LONGEST_HOLD: Final = 5.0

_T = TypeVar("_T")


class Write(NamedTuple):
    """Have these on the disk, in this order; then say :meth:`~Recording.written` or ``failed``."""

    events: list[Event]


class Pause(NamedTuple):
    """Take nothing more from the broker: it keeps what it has."""


class Resume(NamedTuple):
    """Take from the broker again."""


class Dropped(NamedTuple):
    """There was no room for these, and there is again: :meth:`Recording.put` a gap that says so."""

    events: int
    #: When the first came that was dropped, and when the last did.
    since: float
    until: float
    reason: str


Effect = Write | Pause | Resume | Dropped


class _Batch(NamedTuple, Generic[_T]):
    """The events of one message, its bytes, and its ticket."""

    events: Sequence[Event]
    size: int
    ticket: _T | None


class Recording(Generic[_T]):
    """Events between their receipt and the moment when they are recorded, in the order they came.

    They are written in groups: one is due ``interval`` seconds after its first event came, or as
    soon as it is large, or has ``most_tickets`` tickets. A ticket stands for what the broker wants
    to be told once the events that came with it are recorded. One group is written at a time; if
    that fails it is written again, as it was, before all that came later.

    There is room for ``limit`` events, and for ``most_bytes``. A broker that keeps its messages
    (``is_kept``) is then asked for no more, and none is lost; what was on its way is held all the
    same. Where events are gone once they were sent, those that find no room are dropped and counted,
    until half of the room is free: a gap is better whole than in a thousand pieces.

    ``now`` is a clock that never falls; ``received_at`` is the time of day.
    """

    def __init__(
        self,
        *,
        limit: int,
        interval: float,
        is_kept: bool,
        most_tickets: int = 1000,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        if limit < 1:
            raise CallerError(f"log_pending_limit must be at least 1, not {limit}")
        self.limit = limit
        self.interval = interval
        self.is_kept = is_kept
        #: Events that are recorded, gaps among them.
        self.recorded = 0
        #: Events for which there was no room.
        self.dropped = 0
        #: Why the disk does not take what it is given, while it does not; else empty.
        self.trouble = ""
        #: Whether the broker was asked for no more.
        self.is_paused = False
        self._most_tickets = most_tickets
        self._most_bytes = most_bytes
        self._waiting: deque[_Batch[_T]] = deque()
        #: Of what waits: events, bytes and tickets.
        self._events = self._bytes = self._tickets = 0
        self._waiting_since = 0.0
        self._writing: list[Event] = []
        self._writing_bytes = 0
        self._writing_tickets: list[_T] = []
        self._is_written = True
        self._retry_at = 0.0
        #: What was dropped since the last gap that told of it: count, first and last.
        self._untold: tuple[int, float, float] | None = None
        self._why_dropped = ""
        #: Since when the disk has been behind; None if it is not.
        self._behind_since: float | None = None
        self._is_ending = False

    @property
    def pending(self) -> int:
        """How many events are held, and not recorded."""
        return self._events + len(self._writing)

    @property
    def is_writing(self) -> bool:
        """Whether a group was given out, and nobody has said what became of it."""
        return not self._is_written

    def is_ahead(self, now: float) -> bool:
        """Say whether the disk is behind so far that it is better to wait with receiving."""
        if self._behind_since is None or not self.is_writing or self._is_within(2):
            return False
        return self.is_kept or (not self.trouble and now < self._behind_since + _LONGEST_HOLD)

    @property
    def is_empty(self) -> bool:
        """Whether all that came is recorded, and the broker can be told so."""
        return not self._has_something and self._untold is None

    @property
    def is_dropping(self) -> bool:
        """Whether what comes now finds no room."""
        return self._untold is not None

    # -- something happened

    def receive(
        self,
        events: Sequence[Event],
        *,
        received_at: float,
        now: float,
        size: int = 0,
        ticket: _T | None = None,
    ) -> None:
        """Hold the events of one message of ``size`` bytes, as far as there is room."""
        # What the broker keeps until it is recorded is not to be dropped: it would come again.
        excess = 0 if self.is_kept else len(events) - self._room()
        if excess > 0:
            self._drop(min(excess, len(events)), received_at)
            events = events[: max(0, len(events) - excess)]
        if events or ticket is not None:
            self._hold(_Batch(events, size, ticket), now)

    def put(self, event: Event, *, now: float, ticket: _T | None = None, is_first: bool = False) -> None:
        """Hold an event of our own, whatever the room; ``is_first`` puts it before all that waits."""
        self._hold(_Batch((event,), 0, ticket), now, is_first=is_first)

    def wait_for_log(self) -> None:
        """Give out no group until :meth:`written` is called: the log is not open yet."""
        self._is_written = False

    def written(self) -> list[_T]:
        """Note that the group is recorded; return its tickets."""
        self.recorded += len(self._writing)
        tickets, self._writing_tickets = self._writing_tickets, []
        self._writing, self._writing_bytes, self._is_written, self.trouble = [], 0, True, ""
        return tickets

    def failed(self, reason: str, *, now: float) -> None:
        """Note that the disk did not take the group."""
        self.trouble, self._is_written, self._retry_at = reason, True, now + _RETRY

    def lose(self) -> None:
        """Note that the link is gone: the broker takes no tickets of it, and gives their messages out again.

        The events stay, because it may have lost them. Who was told to pause still is.
        """
        self._waiting = deque(batch._replace(ticket=None) for batch in self._waiting if batch.events)
        self._bytes = sum(batch.size for batch in self._waiting)
        self._tickets, self._writing_tickets = 0, []

    def end(self) -> None:
        """Let everything be due at once: no more will come."""
        self._is_ending = True
        self._retry_at = 0.0

    def tick(self, now: float) -> list[Effect]:
        """Return what is to be done by now."""
        effects: list[Effect] = []
        if self._is_within(4):
            self._behind_since = None
        elif self._behind_since is None and not self._is_within(2):
            self._behind_since = now
        if self._untold is not None and (self._is_ending or self._is_within(2)):
            effects.append(Dropped(*self._untold, self._why_dropped))
            self._untold, self._why_dropped = None, ""
        if self.is_kept and not self._is_ending:
            effects += self._flow()
        if self._is_due(now):
            effects.append(self._next_group())
        return effects

    def due_in(self, now: float) -> float | None:
        """Return in how many seconds there is something to do, if nothing else happens; None for never."""
        if self.is_writing:
            return None
        if not self._has_something:
            return None
        if self.trouble:
            return max(0.0, self._retry_at - now)
        return max(0.0, self._waiting_since + self.interval - now)

    # -- decisions

    @property
    def _has_something(self) -> bool:
        return bool(self._waiting or self._writing or self._writing_tickets)

    @property
    def _is_full(self) -> bool:
        return self.pending >= self.limit or self._bytes + self._writing_bytes >= self._most_bytes

    def _is_within(self, part: int) -> bool:
        """Say whether no more of the room is taken than a half, for 2, or a quarter, for 4."""
        held = self._bytes + self._writing_bytes
        return self.pending <= self.limit // part and held <= self._most_bytes // part

    def _is_due(self, now: float) -> bool:
        if self.is_writing or not self._has_something:
            return False
        if self.trouble:
            return now >= self._retry_at
        return (
            self._is_ending
            or now >= self._waiting_since + self.interval
            or self._events >= GROUP_EVENTS
            or self._bytes >= GROUP_BYTES
            or self._tickets >= self._most_tickets
        )

    def _next_group(self) -> Write:
        # What failed is written again as it was, so that the disk can know it again.
        if not self._writing and not self._writing_tickets:
            self._take_group()
        self._is_written = False
        return Write(self._writing)

    def _take_group(self) -> None:
        """Have what waited longest written next: whole messages, so that each ticket is with its events."""
        group: list[Event] = []
        tickets: list[_T] = []
        size = 0
        while self._waiting:
            batch = self._waiting[0]
            is_larger = len(group) + len(batch.events) > GROUP_EVENTS * _LARGEST
            if group and (is_larger or size + batch.size > GROUP_BYTES * _LARGEST):
                break
            self._waiting.popleft()
            group.extend(batch.events)
            size += batch.size
            if batch.ticket is not None:
                tickets.append(batch.ticket)
        self._events -= len(group)
        self._bytes -= size
        self._tickets -= len(tickets)
        self._writing, self._writing_bytes, self._writing_tickets = group, size, tickets

    def _hold(self, batch: _Batch[_T], now: float, *, is_first: bool = False) -> None:
        if not self._waiting:
            self._waiting_since = now
        if is_first:
            self._waiting.appendleft(batch)
        else:
            self._waiting.append(batch)
        self._events += len(batch.events)
        self._bytes += batch.size
        self._tickets += batch.ticket is not None

    def _flow(self) -> list[Effect]:
        """Return whether the broker is to be asked for more, if that changes."""
        if not self.is_paused and (self.trouble or self._is_full):
            self.is_paused = True
            return [Pause()]
        if self.is_paused and not self.trouble and self._is_within(2):
            self.is_paused = False
            return [Resume()]
        return []

    def _room(self) -> int:
        return 0 if self._untold is not None or self._is_full else self.limit - self.pending

    def _drop(self, count: int, received_at: float) -> None:
        before, since, _ = self._untold or (0, received_at, received_at)
        self._untold = (before + count, since, received_at)
        self._why_dropped = self.trouble or self._why_dropped or "the disk is too slow for the event rate"
        self.dropped += count
