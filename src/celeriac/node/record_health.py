"""How a recorder is, for those who watch over it: a file, systemd, and whoever asks."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic, time
from typing import Final

from celeriac.errors import DiskError
from celeriac.node.recorder import Progress
from celeriac.node.supervisor import Supervisor
from celeriac.store.disk_use import DiskUse
from celeriac.store.recorder_status import RecorderStatus, ailment_of, is_running, read_status, write_status

__all__ = ["RecordHealth", "ailment"]

logger = logging.getLogger(__name__)

#: How often the file is written, if nothing changes that matters.
_WRITE_EVERY: Final = 2.0
#: How often the bytes on the disk are counted, and how much of the time that may take.
_MEASURE_EVERY: Final = 1.0
_MEASURE_SHARE: Final = 0.01


class RecordHealth:
    """Tells of one recorder, for as long as it lives; ``use`` measures its log."""

    def __init__(self, folder: Path, *, name: str, log: str, use: DiskUse, supervisor: Supervisor) -> None:
        #: The id of the recorder, once it is known.
        self.recorder = ""
        #: The bytes on the disk, when they were last looked at.
        self.size: int | None = None
        self._use = use
        self._measure_at = 0.0
        self._folder = folder
        self._name = name
        self._log = log
        self._supervisor = supervisor
        self._started_at = time()
        self._last: Progress | None = None
        self._write_at = self._live_at = 0.0
        self._is_ready = self._is_stopping = False

    def take(self, progress: Progress) -> None:
        """Tell how it is now, if it is time or something has changed."""
        now = monotonic()
        if not self._is_ready:
            self._is_ready = True
            self._supervisor.ready()
        if progress.state in ("stopping", "stopped") and not self._is_stopping:
            self._is_stopping = True
            self._supervisor.stopping()
        if self._supervisor.watch_every is not None and now >= self._live_at:
            self._live_at = now + self._supervisor.watch_every
            self._supervisor.live()
        # A disk that hangs would keep us, too.
        if now >= self._measure_at and progress.state == "recording":
            self.size = self._use.measure()
            took = monotonic() - now
            self._measure_at = now + max(_MEASURE_EVERY, took / _MEASURE_SHARE)
        if now >= self._write_at or self._has_changed(progress):
            self._write_at = now + _WRITE_EVERY
            self._last = progress
            self._tell(progress)

    def fail(self, error: BaseException) -> None:
        """Tell that it ended with an error."""
        last = self._last or Progress("failed")
        self._tell(last._replace(state="failed", last_error=str(error) or type(error).__name__))

    def _has_changed(self, progress: Progress) -> bool:
        last = self._last
        return last is None or (last.state, last.last_error) != (progress.state, progress.last_error)

    def _tell(self, progress: Progress) -> None:
        trouble = f": {progress.last_error}" if progress.last_error else ""
        self._supervisor.status(f"{progress.state}, {progress.recorded} events recorded{trouble}")
        try:
            write_status(
                self._folder,
                RecorderStatus(
                    name=self._name,
                    recorder=self.recorder,
                    log=self._log,
                    pid=os.getpid(),
                    started_at=self._started_at,
                    updated_at=time(),
                    bytes=self.size,
                    **progress._asdict(),
                ),
            )
        except DiskError as error:
            # A disk that is full takes no status either: that it grows old says it.
            logger.debug("recorder: %s", error)


def ailment(
    folder: Path, *, now: Callable[[], float] = time, is_alive: Callable[[int], bool] = is_running
) -> str:
    """Return what is wrong with the recorder that has a folder; nothing if it is alive and well."""
    status = read_status(folder)
    if status is None:
        return f"no recorder status found in {folder}"
    return ailment_of(status, now=now(), is_alive=is_alive)
