"""Since when workers are there without a break, from what was recorded of them."""

from typing import Final

from celeriac.core.member import SILENT_FREQUENCY
from celeriac.core.membership import lost_after
from celeriac.model.events import WorkerEvent, WorkerOffline

__all__ = ["MAX_ATTENDANTS", "Attendance"]

#: Workers that are remembered: as many as a state has room for unless it is told otherwise.
MAX_ATTENDANTS: Final = 5000


class _Stay:
    __slots__ = ("freq", "pid", "since_at", "until_at")

    def __init__(self, pid: int, since_at: float) -> None:
        self.pid = pid
        self.since_at = self.until_at = since_at
        self.freq = SILENT_FREQUENCY


class Attendance:
    """Takes what workers say of themselves, in the order of receipt.

    A stay ends with a farewell, with another process of the same name, and with a silence for which a worker
    is held for lost. Beyond :data:`MAX_ATTENDANTS` newcomers are not known.
    """

    def __init__(self) -> None:
        self._stays: dict[str, _Stay] = {}

    def receive(self, event: WorkerEvent, at: float) -> None:
        """Take an event that came at a moment."""
        if isinstance(event, WorkerOffline):
            self._stays.pop(event.hostname, None)
            return
        stay = self._stays.get(event.hostname)
        if stay is None and len(self._stays) >= MAX_ATTENDANTS:
            return
        if stay is None or stay.pid != event.pid or at - stay.until_at > lost_after(stay.freq):
            stay = self._stays[event.hostname] = _Stay(event.pid, at)
        stay.until_at = max(stay.until_at, at)
        # Celery: a heartbeat sent on request says freq=5 whatever the true one, and leaves out the load.
        if event.freq is not None and event.active is not None:
            stay.freq = event.freq

    def since(self, hostname: str) -> float | None:
        """Return since when a worker is there, as far as is known."""
        stay = self._stays.get(hostname)
        return None if stay is None else stay.since_at
