"""What the dashboard knows: the cluster now, the cluster at any past instant, the tables, and who leads."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import BoundedSemaphore, Lock
from time import monotonic, time
from typing import Final, NamedTuple, Protocol

from celeriac.core.member import Liveness
from celeriac.errors import CallerError, CeleriacError
from celeriac.history import Warehouse
from celeriac.model.election import Level, Record
from celeriac.node.replay import Replay
from celeriac.node.scene import Scene
from celeriac.node.watcher import Watcher
from celeriac.node.worker_setup import WorkerSetup
from celeriac.store.recorder_status import RecorderStatus
from celeriac.views.leader import LeaderRow, leader_rows
from celeriac.views.recorder import RecorderRow, recorder_rows
from celeriac.views.worker import LiveWorker, SetupRow, live_workers, setup_row
from celeriac.web.shared import Aside, Shared

__all__ = ["Board", "Leaders", "Sight"]

#: Past instants that are kept ready. One is as large as the live state, and people look at one or two.
_MOST_PASTS: Final = 2
#: Who may look at the past at once; the others would keep all threads from all else.
_MOST_WAITING: Final = 4
#: How much of the time before an instant is replayed for it: what happened earlier is in the tables.
PAST_SPAN: Final = 3600.0
#: What happened later than this may not be in the log yet.
_SETTLED: Final = 120.0
#: For how long what the arbiter said is told again: pages ask twice a second.
_LEADERS_KEPT: Final = 2.0
#: How old what is known of recorders may be, which tell of themselves every two seconds, and of the tables.
_RECORDERS_KEPT: Final = 2.0
_TABLES_KEPT: Final = 30.0
#: For how long what a worker said of itself is told again, and of how many workers.
_SETUP_KEPT: Final = 5.0
_MOST_SETUPS: Final = 200


class Busy(CeleriacError):
    """Others ask for the same already."""


class Sight(NamedTuple):
    """A cluster at one instant."""

    scene: Scene
    #: Seconds of the epoch.
    as_of: float
    is_live: bool
    workers: list[LiveWorker]
    #: What could not be read of the log, each in a sentence.
    damage: Sequence[str] = ()


class Leaders(NamedTuple):
    """The current leaders, and the guarantee level of elections."""

    level: str | None
    min_level: str
    reason: str
    leaders: list[LeaderRow]


class _Arbiter(Protocol):
    @property
    def reason(self) -> str: ...

    def look(self) -> Level: ...

    def leases(self) -> list[Record]: ...


class Board:
    """Answers what pages and the API ask. Any thread may ask."""

    def __init__(
        self,
        watcher: Watcher,
        *,
        replay: Callable[[float, float], Replay] | None = None,
        warehouse: Warehouse | None = None,
        arbiter: Callable[[], _Arbiter] | None = None,
        min_level: Level = Level.L0,
        queues: Callable[[], dict[str, int] | None] = lambda: None,
        recorders: Callable[[], Sequence[RecorderStatus]] = lambda: (),
        queue_trouble: Callable[[], str] = lambda: "",
        ask_setup: Callable[[str], WorkerSetup] | None = None,
        now: Callable[[], float] = time,
    ) -> None:
        self.watcher = watcher
        self._replay = replay
        self._warehouse = warehouse
        self._arbiter = arbiter
        self._min_level = min_level
        #: How many tasks wait in each queue, None while that is not known; it keeps nobody waiting.
        self.queues = queues
        self._recorders = Aside(recorders, seconds=_RECORDERS_KEPT)
        self._tables_at = Aside(self._published_at, seconds=_TABLES_KEPT)
        #: What keeps us from knowing it.
        self.queue_trouble = queue_trouble
        self._ask_setup = ask_setup
        self._now = now
        self._mutex = Lock()
        self._leading = Lock()
        self._asking = BoundedSemaphore(_MOST_WAITING)
        self._pasts: OrderedDict[int, Sight] = OrderedDict()
        self._leaders: tuple[float, Leaders] | None = None
        self._setting_up = Lock()
        self._setups: OrderedDict[str, Shared[SetupRow]] = OrderedDict()

    @property
    def has_past(self) -> bool:
        """Whether the cluster can be looked at as it was."""
        return self._replay is not None

    def sight(self, at: float | None = None) -> Sight:
        """Return the cluster as it is, or as it was at an instant; CallerError if that is not known."""
        if at is None:
            scene, now = self.watcher.scene, self._now()
            return Sight(scene, now, True, live_workers(scene, self.watcher.presences(), as_of=now))
        if self._replay is None:
            raise CallerError("No event log configured. To view the past, start with --log URL")
        if not 0 < at <= self._now():
            raise CallerError("Invalid at. Use seconds since the epoch, not in the future.")
        return self._past(int(at))

    def scene(self, at: float | None = None) -> Scene:
        """Return the tasks of a cluster alone, as they are or were: what is known of workers takes longer."""
        return self.watcher.scene if at is None else self.sight(at).scene

    def _past(self, at: int) -> Sight:
        known = self._pasts.get(at)
        if known is not None:
            return known
        # One at a time: a replay takes a processor for seconds, and people who drag a slider ask for many.
        if not self._asking.acquire(blocking=False):
            raise Busy("Too many replays running. Try again in a minute.")
        try:
            return self._replayed(at)
        finally:
            self._asking.release()

    def _replayed(self, at: int) -> Sight:
        with self._mutex:
            known = self._pasts.get(at)
            if known is None:
                assert self._replay is not None  # noqa: S101 - asked by sight alone
                replay = self._replay(at - PAST_SPAN, float(at))
                scene = Scene(replay.state, begun_at=float(at))
                for events in replay.batches():
                    scene.recall(events)
                workers = live_workers(scene, as_of=float(at))
                known = Sight(scene, float(at), False, workers, list(replay.damage))
                if at < self._now() - _SETTLED:
                    self._pasts[at] = known
                while len(self._pasts) > _MOST_PASTS:
                    self._pasts.popitem(last=False)
            else:
                self._pasts.move_to_end(at)
            return known

    @property
    def warehouse(self) -> Warehouse:
        """The tables. Raises CallerError if there are none."""
        if self._warehouse is None:
            raise CallerError("No history tables configured. Start with --warehouse URL")
        return self._warehouse

    def recorders(self) -> list[RecorderRow]:
        """Return the recorders that tell of themselves on this machine; it keeps nobody waiting."""
        return recorder_rows(self._recorders() or (), as_of=self._now())

    def tables_at(self) -> float | None:
        """Return when the tables were published; None if there are none. It keeps nobody waiting."""
        return self._tables_at()

    def _published_at(self) -> float:
        return self.warehouse.refresh().published_at

    @property
    def has_tables(self) -> bool:
        """Whether there are tables to ask; it takes a look at where they are."""
        if self._warehouse is None:
            return False
        try:
            self._warehouse.refresh()
        except CeleriacError:
            return False
        return True

    def leaders(self) -> Leaders:
        """Return who leads what. That nobody can be asked is part of the answer."""
        with self._leading:
            known = self._leaders
            if known is not None and monotonic() < known[0] + _LEADERS_KEPT:
                return known[1]
            leaders = self._asked()
            self._leaders = (monotonic(), leaders)
            return leaders

    def setup(self, worker: LiveWorker, *, is_changed: bool = False) -> SetupRow | None:
        """Return what a worker says of itself, no older than some seconds; it may take as many.

        ``is_changed`` says that what it said before does not count any more. None is what nobody can say.
        """
        ask, name = self._ask_setup, worker.key
        if ask is None or worker.liveness == Liveness.LEFT:
            return None
        with self._setting_up:
            if is_changed or name not in self._setups:
                self._setups[name] = Shared(lambda: setup_row(ask(name)), seconds=_SETUP_KEPT)
            self._setups.move_to_end(name)
            while len(self._setups) > _MOST_SETUPS:
                self._setups.popitem(last=False)
            said = self._setups[name]
        return said()

    def _asked(self) -> Leaders:
        reason = "no arbiter configured"
        if self._arbiter is not None:
            try:
                arbiter = self._arbiter()
                level = arbiter.look()
                return Leaders(
                    level.name, self._min_level.name, arbiter.reason, leader_rows(arbiter.leases())
                )
            except CeleriacError as error:
                reason = str(error)
        return Leaders(None, self._min_level.name, reason, [])

    def close(self) -> None:
        """Let go of all files."""
        with suppress(CeleriacError):
            if self._warehouse is not None:
                self._warehouse.close()
