"""Watches a cluster in the background, for whoever shows it: what faces ask is always at hand.

Commands that look at it for some seconds have :mod:`celeriac.cli.viewing`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic, sleep, time
from typing import Final, NamedTuple, Self

from celeriac.core.clock import LamportClock
from celeriac.core.gossip import ElectionHeard, Gossip
from celeriac.core.lag import Lag
from celeriac.core.member import Liveness
from celeriac.core.membership import PULSE, Membership
from celeriac.core.redaction import Redactor
from celeriac.core.task_event_check import TaskEventCheck
from celeriac.errors import CallerError, CeleriacError
from celeriac.model.events import Event, Gap, TaskEvent, WorkerEvent, WorkerOffline
from celeriac.node.events import Events
from celeriac.node.replay import Log, identity
from celeriac.node.scene import Scene
from celeriac.node.suspicion import quicken

__all__ = ["MAX_LISTENERS", "MAX_LISTENERS_OF_OWNER", "Listener", "Presence", "Watcher"]

#: Listeners to single events at once, in all and of one owner. Each is a browser or a program.
MAX_LISTENERS: Final = 64
MAX_LISTENERS_OF_OWNER: Final = 16
#: Events that wait for a listener; one that is slower than this misses some, and is told how many.
_MOST_WAITING: Final = 10_000
#: Events that are taken from the log at a time; meanwhile nobody else can look at the state.
_BATCH: Final = 2000
#: Events that came meanwhile which are known again in the log: some tens of megabytes.
_MOST_FRESH: Final = 100_000
#: Events that came from the broker which are taken at a time: a millisecond or two.
_AT_ONCE: Final = 100
#: How long a thread may take to end; it looks twice a second, but for the making of a link.
_PATIENCE: Final = 2.0
_NAP: Final = 0.02

logger = logging.getLogger(__name__)


class Presence(NamedTuple):
    """What a worker is held for, and why."""

    liveness: Liveness
    reason: str
    #: Since when, in seconds of the epoch.
    since_at: float
    #: Whether it sends task events; None while that is unknown.
    sends_task_events: bool | None = None


class Listener:
    """Events for one who listens, until taken away."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._overlooked = 0

    def take(self, event: Event) -> bool:
        """Have an event wait; return whether another had to go for it."""
        is_full = len(self._waiting) == _MOST_WAITING
        self._overlooked += is_full
        self._waiting.append(event)
        return is_full

    def taken(self) -> tuple[list[Event], int]:
        """Take away what waits; and how many were lost since the last time, as nobody took them."""
        overlooked, self._overlooked = self._overlooked, 0
        return [self._waiting.popleft() for _ in range(len(self._waiting))], overlooked


class Watcher:
    """Receives the events of a cluster into a :class:`Scene`, for as long as the context lasts.

    What looks secret in them is masked before they are in the state, so that no face can show it.
    With a ``log`` it also takes what was recorded within the last ``recall`` seconds before it began, so that
    a restart forgets nothing: a state is the same whatever the order of its events. The log is read when
    events come to us, and ``settle`` seconds later: what came to the recorder alone is written by then.
    """

    def __init__(
        self,
        events: Events,
        *,
        hostname: str,
        redactor: Redactor,
        log: Log | None = None,
        recall: float = 3600.0,
        settle: float = 1.0,
        wall: Callable[[], float] = time,
    ) -> None:
        self.state = events.State()
        #: When it began, in seconds of the epoch.
        self.begun_at = wall()
        self.scene = Scene(self.state, begun_at=self.begun_at)
        #: Whether all is there that the log has of the time before.
        self.has_recalled = log is None
        self.receiver = events.Receiver()
        self.receiver.on_events = self._take
        self.scene.deaf_since = lambda: self.receiver.deaf_since
        self._redactor = quicken(redactor)
        #: Called when the reception ends by an error, which :meth:`check` raises.
        self.on_end: Callable[[], object] | None = None
        self._wall = wall
        self._log = log
        self._recall = recall
        self._settle = settle
        #: What came since it began, until the log is read, where it is too: nothing counts twice.
        self._fresh: set[object] = set()
        self._mutex = Lock()
        self._membership = Membership(hostname, now=monotonic())
        # The receiver has a clock of its own, and the scene has the state.
        self._gossip = Gossip(hostname, clock=LamportClock(), membership=self._membership)
        #: Each with its owner.
        self._listeners: dict[Listener, str] = {}
        #: Gaps in the reception since it began, and events that were too many for one who listens.
        self.gap_count = 0
        self.overlooked_count = 0
        self._lag = Lag()
        self._task_event_check = TaskEventCheck()
        #: The last event of a task that each node sent since the last tick.
        self._signs: dict[str, TaskEvent] = {}
        self._is_ending = Flag()
        self._error: BaseException | None = None
        self._threads = [
            Thread(target=self._receive, name="watch", daemon=True),
            Thread(target=self._tick, name="watch-tick", daemon=True),
            Thread(target=self._remember, name="watch-recall", daemon=True),
        ]

    # -- what faces ask

    def check(self) -> None:
        """Raise what ended the reception, if something did."""
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait until events come to us. Raises what keeps them from it: ConnectionLost, AccessRefused."""
        while not self.is_receiving:
            self.check()
            sleep(_NAP)

    @property
    def is_receiving(self) -> bool:
        """Whether events come to us now."""
        return self._threads[0].is_alive() and self.receiver.is_subscribed

    def presences(self) -> dict[str, Presence]:
        """Return what each worker is held for, by name; this program is none of them."""
        with self._mutex:
            members = dict(self._membership.members)
            now, wall = monotonic(), self._wall()
            sends = {name: self._task_event_check.sends(name) for name in members}
        members.pop(self._membership.hostname)
        return {
            name: Presence(member.state, member.reason, member.since_at + wall - now, sends[name])
            for name, member in members.items()
        }

    def lag(self) -> float | None:
        """Return how much later events come than at best; None if that is not known. See :class:`Lag`."""
        with self._mutex:
            return self._lag.seconds(self._wall())

    def refusal(self, owner: str) -> str:
        """Return why an owner may not listen once more; an empty text if it may."""
        if list(self._listeners.values()).count(owner) >= MAX_LISTENERS_OF_OWNER:
            return f"{MAX_LISTENERS_OF_OWNER} event streams are open for {owner}: close one first"
        if len(self._listeners) >= MAX_LISTENERS:
            return f"{MAX_LISTENERS} event streams are open: close one first"
        return ""

    @contextmanager
    def listening(self, owner: str = "") -> Iterator[Listener]:
        """Hand out the events that come from now on. Raises CallerError when too many listen already."""
        listener = Listener()
        with self._mutex:
            if refusal := self.refusal(owner):
                raise CallerError(refusal)
            self._listeners[listener] = owner
        try:
            yield listener
        finally:
            with self._mutex:
                del self._listeners[listener]

    # -- what it does

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self.receiver.stop()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _receive(self) -> None:
        try:
            with self.receiver:
                self.receiver.capture()
        except BaseException as error:  # noqa: BLE001  (raised by check, where somebody sees it)
            self._error = error
            logger.error("events: receiving ended: %s", error)  # noqa: TRY400  (said to people)
            if self.on_end is not None:
                self.on_end()

    def _take(self, events: Sequence[Event]) -> None:
        # The policy of a task goes by its name, which the event before may be the first to tell.
        most = 1 if self._redactor.has_policies else _AT_ONCE
        for begin in range(0, len(events), most):
            batch = [self._redacted(event) for event in events[begin : begin + most]]
            self.state.freeze_while(self._apply, batch)
            with self._mutex:
                self._pass_on(batch)

    def _redacted(self, event: Event) -> Event:
        task = self.state.tasks.get(event.uuid) if isinstance(event, TaskEvent) else None
        return self._redactor.event(event, None if task is None else task.name)

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self.state.apply(event, event.local_received)

    def _pass_on(self, events: Sequence[Event]) -> None:
        if not self.has_recalled and len(self._fresh) < _MOST_FRESH:
            self._fresh.update(map(identity, events))
        for event in events:
            if isinstance(event, TaskEvent):
                # That its node lives is known from any of them, and there are thousands a second.
                self._signs[event.hostname] = event
            else:
                self._hear(event)
        for listener in self._listeners:
            self.overlooked_count += sum(map(listener.take, events))

    def _hear(self, event: Event) -> None:
        if isinstance(event, Gap):
            self.gap_count += 1
            self._task_event_check.take_gap()
        elif isinstance(event, WorkerEvent):
            self._check_task_events(event)
            if event.timestamp and event.local_received:
                self._lag.take(event.hostname, sent_at=event.timestamp, received_at=event.local_received)
        for effect in self._gossip.receive(event, monotonic()):
            if isinstance(effect, ElectionHeard):
                self.state.freeze_while(self.scene.hear, effect.event)

    def _check_task_events(self, event: WorkerEvent) -> None:
        name = event.hostname
        if isinstance(event, WorkerOffline):
            self._task_event_check.forget(name)
            return
        if name in self._signs:  # came before this heartbeat, and waits for the tick
            self._task_event_check.take_task_event(name)
        self._task_event_check.take_heartbeat(name, event.pid, event.processed)

    def _tick(self) -> None:
        while not self._is_ending.wait(PULSE):
            with self._mutex:
                now = monotonic()
                if self.receiver.is_subscribed:
                    self._membership.reconnected(now)
                else:
                    self._membership.disconnected(now)
                signs, self._signs = self._signs, {}
                for event in signs.values():
                    self._task_event_check.take_task_event(event.hostname)
                    self._hear(event)
                self._gossip.tick(now)

    def _remember(self) -> None:
        if self._log is None:
            return
        try:
            while not self.is_receiving:
                if self._error is not None or self._is_ending.wait(_NAP):
                    return
            self._is_ending.wait(self._settle)
            events = filter(self._is_news, self._log.read(self.begun_at - self._recall))
            while not self._is_ending.is_set():
                batch = list(islice(events, _BATCH))
                if not batch:
                    break
                self.state.freeze_while(self._recall_batch, batch)
        except CeleriacError as error:
            logger.warning("events: cannot read the event log: %s", error)
        finally:
            self.has_recalled = True
            self._fresh.clear()

    def _is_news(self, event: Event) -> bool:
        known = identity(event)
        return known is None or known not in self._fresh

    def _recall_batch(self, events: list[Event]) -> None:
        self.scene.is_recalling = True
        try:
            self.scene.recall(events)
            self._apply(events)
        finally:
            self.scene.is_recalling = False
