"""Makes what records the history of a cluster and reads it, as one program does.

Everything below needs Arrow, which most programs do without: it is loaded when it is asked for.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.node.clock import SharedClock
from celeriac.node.identity import machine_name
from celeriac.node.replay import Replay
from celeriac.transport.base import Connection

if TYPE_CHECKING:
    from celeriac.core.redaction import Redactor
    from celeriac.node.recorder import Progress, Recorder
    from celeriac.store.event_log import EventLog
    from celeriac.store.log_writer import LogWriter

__all__ = ["History", "redactor_of"]


def redactor_of(settings: Settings) -> "Redactor":
    """Return what masks secrets, as the settings ``redact_*`` say."""
    from celeriac.core.redaction import Redactor  # noqa: PLC0415

    key = settings.redact_hash_key
    return Redactor(
        tasks={name: str(policy) for name, policy in settings.redact_tasks.items()},
        names=settings.redact_names,
        hash_key=token_bytes(32) if key is None else key.encode(),
    )


class History:
    """Makes the parts that keep and read a history, with the settings and the clock of one app.

    ``url`` names a log, a folder or the URL of an object store; the setting ``log_url`` does by default.
    """

    def __init__(
        self, connect: Callable[[], Connection], *, settings: Settings, clock: SharedClock, hostname: str
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._hostname = hostname

    def log(self, url: str | Path | None = None) -> "EventLog":
        """Return a log to read; see :class:`~celeriac.store.event_log.EventLog`."""
        place = url or self._settings.log_url
        log: EventLog = _load("celeriac.store.event_log").EventLog(place, spool=self.spool(place))
        return log

    def replay(
        self,
        url: str | Path | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        speed: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
    ) -> Replay:
        """Return the history of a time, to be lived through again; see :class:`Replay`.

        ``replay(until=moment).run()`` is the state of the cluster as of then.
        """
        return Replay(
            self.log(url),
            since=since,
            until=until,
            speed=speed,
            types=types,
            task=task,
            worker=worker,
            max_workers_in_memory=self._settings.max_workers_in_memory,
            max_tasks_in_memory=self._settings.max_tasks_in_memory,
        )

    def writer(
        self, url: str | Path | None = None, *, name: str | None = None, spool: Path | None = None
    ) -> "LogWriter":
        """Return a writer of a log, which redacts events by the settings.

        ``name`` is that of the recorder; see :class:`~celeriac.store.log_writer.LogWriter`.
        """
        settings = self._settings
        place = url or settings.log_url
        redact = _load("celeriac.store.redacting").BatchRedactor(redactor_of(settings))
        writer: LogWriter = _load("celeriac.store.log_writer").LogWriter(
            _load("celeriac.store.place").place_for(place),
            spool=spool or self.spool(place),
            name=name or self.recorder_name,
            redact=redact,
            segment_bytes=settings.log_segment_bytes,
            segment_age=settings.log_segment_age,
        )
        return writer

    def Recorder(  # noqa: N802
        self,
        url: str | Path | None = None,
        *,
        name: str | None = None,
        spool: Path | None = None,
        on_turn: "Callable[[Progress], object] | None" = None,
    ) -> "Recorder":
        """Return a recorder of the events of the cluster; see :class:`Recorder`."""
        from celeriac.node.deferred_writer import DeferredWriter  # noqa: PLC0415 - only who records loads it
        from celeriac.node.recorder import Recorder  # noqa: PLC0415

        return Recorder(
            self._connect(),
            DeferredWriter(lambda: self.writer(url, name=name, spool=spool)),
            settings=self._settings,
            clock=self._clock,
            name=name or self.recorder_name,
            hostname=self._hostname,
            on_turn=on_turn,
        )

    @property
    def recorder_name(self) -> str:
        """The name of a recorder that was given none: the setting ``log_recorder``, else the machine's."""
        return self._settings.log_recorder or machine_name()

    def spool(self, url: str | Path | None = None) -> Path:
        """Return the folder of the unsealed files of a recorder on this machine."""
        if self._settings.log_spool is not None:
            return Path(self._settings.log_spool).expanduser()
        url = url or self._settings.log_url
        place = _load("celeriac.store.place").place_for(url)
        if place.is_local:
            return Path(place.url) / "spool"
        # One for each log, whatever its login is: that may change.
        told = sha256(place.url.encode()).hexdigest()[:16]
        return Path.home() / ".local" / "state" / "celeriac" / "spool" / told


def _load(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"the history needs {error.name}, which is not installed: pip install 'celeriac[history]'"
        ) from error
