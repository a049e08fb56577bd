"""One worker as its events describe it."""

from bisect import insort
from collections.abc import Callable
from typing import ClassVar, Final

from msgspec.structs import force_setattr

from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
from celeriac.model.events import TaskEvent, WorkerEvent, WorkerOffline, WorkerOnline

__all__ = ["HEARTBEATS_KEPT", "HEARTBEAT_DRIFT_MAX", "HEARTBEAT_EXPIRE_WINDOW", "Worker", "heartbeat_expires"]

#: A worker is taken for dead when silent for this many percent of its frequency.
HEARTBEAT_EXPIRE_WINDOW: Final = 200
#: Seconds between a sender's clock and ours before we say that they disagree.
HEARTBEAT_DRIFT_MAX: Final = 16
HEARTBEATS_KEPT: Final = 4
#: The frequency of a worker that has not told it: one known from task events alone.
DEFAULT_FREQUENCY: Final = 60.0


def heartbeat_expires(
    timestamp: float, freq: float = DEFAULT_FREQUENCY, expire_window: float = HEARTBEAT_EXPIRE_WINDOW
) -> float:
    """Return when a heartbeat that came at ``timestamp`` is too old."""
    return timestamp + freq * expire_window / 100


class Worker:
    """A worker, named by its ``hostname``. Only the fields listed here are ever set by an event."""

    _fields: ClassVar[tuple[str, ...]] = (
        "hostname", "pid", "freq", "heartbeats", "clock", "active", "processed", "loadavg",
        "sw_ident", "sw_ver", "sw_sys",
    )  # fmt: skip
    expire_window: ClassVar[float] = HEARTBEAT_EXPIRE_WINDOW

    __slots__ = (
        *_fields, "timestamp", "utcoffset", "drift", "drift_told", "has_left", "is_member",
        "_now", "_seen_at", "__weakref__",
    )  # fmt: skip

    def __init__(self, hostname: str, *, now: Callable[[], float]) -> None:
        self.hostname = hostname
        self.pid: int | None = None
        self.freq: float = DEFAULT_FREQUENCY
        #: When its last heartbeats came, by our clock, oldest first.
        self.heartbeats: list[float] = []
        self.clock: int = NO_CLOCK
        self.active: int | None = None
        self.processed: int | None = None
        self.loadavg: tuple[float, float, float] | None = None
        self.sw_ident: str | None = None
        self.sw_ver: str | None = None
        self.sw_sys: str | None = None
        self.timestamp: float | None = None
        self.utcoffset: float | None = None
        #: Seconds our clock was ahead of the worker's at the last heartbeat.
        self.drift: float | None = None
        #: Whether someone was told of its drift: once is enough.
        self.drift_told = False
        #: Whether it announced itself and has not left.
        self.is_member = False
        #: Whether it said farewell, and nothing later.
        self.has_left = False
        self._seen_at = 0.0
        self._now = now

    def __repr__(self) -> str:
        return f"<Worker: {self.hostname} ({self.status_string} clock:{self.clock})>"

    def __eq__(self, other: object) -> bool:
        return self.hostname == other.hostname if isinstance(other, Worker) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hostname)

    @property
    def id(self) -> str:
        """Name the process: ``hostname.pid``."""
        return f"{self.hostname}.{self.pid}"

    @property
    def seen_at(self) -> float:
        """Time of the last event, by the local clock; 0 if there was none, or the worker has left."""
        return self._seen_at

    @property
    def heartbeat_expires(self) -> float | None:
        """Time after which the worker counts as lost without another event; None if it was never alive."""
        return heartbeat_expires(self._seen_at, self.freq, self.expire_window) if self._seen_at else None

    @property
    def alive(self) -> bool:
        """Whether the worker was seen within its window, by the local clock."""
        expires = self.heartbeat_expires
        return expires is not None and self._now() < expires

    @property
    def status_string(self) -> str:
        """``ONLINE`` or ``OFFLINE``."""
        return "ONLINE" if self.alive else "OFFLINE"

    @property
    def is_drifting(self) -> bool:
        """Whether its clock and ours disagree by more than delivery explains."""
        return self.drift is not None and abs(self.drift) > HEARTBEAT_DRIFT_MAX

    def see(self, received_at: float | None) -> None:
        """Count any event as a heartbeat; a worker that left comes back only with worker-online."""
        if received_at is not None and received_at > self._seen_at and not self.has_left:
            self._seen_at = received_at

    def own(self, event: TaskEvent, received_at: float | None) -> None:
        """Count a task event of this worker as a heartbeat, and share values with it.

        See :mod:`celeriac.core.share`. Does the work of :meth:`see`, without the call: most
        events pass here.
        """
        if received_at is not None and received_at > self._seen_at and not self.has_left:
            self._seen_at = received_at
        force_setattr(event, "hostname", self.hostname)
        if event.pid == self.pid:
            force_setattr(event, "pid", self.pid)
        if event.utcoffset == self.utcoffset:
            force_setattr(event, "utcoffset", self.utcoffset)

    def receive(self, event: WorkerEvent, received_at: float | None) -> None:
        """Apply a worker event, with its time of receipt by the local clock."""
        is_news = self._is_news(event)
        if is_news:
            self._describe(event)
        if isinstance(event, WorkerOffline):
            if is_news:
                self._leave()
        elif is_news or not self.has_left:
            self._beat(event, received_at)

    def _is_news(self, event: WorkerEvent) -> bool:
        """Tell whether an event is later than what we know: by clock in one process, else by time."""
        known_at = self.timestamp or 0.0
        if event.pid != self.pid or NO_CLOCK in (event.clock, self.clock):
            return event.timestamp >= known_at
        if event.clock >= self.clock:
            return True
        is_restart = isinstance(event, WorkerOnline) or self.clock - event.clock > NEW_INCARNATION
        return is_restart and event.timestamp > known_at

    def _describe(self, event: WorkerEvent) -> None:
        # Celery: a heartbeat sent on request says freq=5 whatever the true one,
        # and leaves out the load.
        if event.freq is not None and (event.active is not None or self.timestamp is None):
            self.freq = event.freq
        for field in ("active", "processed", "loadavg", "sw_ident", "sw_ver", "sw_sys"):
            value = getattr(event, field)
            if value is not None:
                setattr(self, field, value)
        self.pid, self.clock = event.pid, event.clock
        self.timestamp, self.utcoffset = event.timestamp, event.utcoffset

    def _leave(self) -> None:
        self.has_left = True
        self.is_member = False
        self.heartbeats.clear()
        self._seen_at = 0.0

    def _beat(self, event: WorkerEvent, received_at: float | None) -> None:
        self.has_left = False
        self.is_member = True
        if received_at is None:
            return
        self.see(received_at)
        insort(self.heartbeats, received_at)
        del self.heartbeats[:-HEARTBEATS_KEPT]
        if event.timestamp:
            self.drift = received_at - event.timestamp
