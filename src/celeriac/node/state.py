"""The cluster state that programs hold: any input, any thread."""

import logging
from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from time import time
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.core.worker import Worker
from celeriac.errors import CallerError, DiskError
from celeriac.model.events import Event
from celeriac.wire.event import Gate

if TYPE_CHECKING:
    from pathlib import Path

    from celeriac.core.redaction import Redactor

__all__ = ["State"]

_T = TypeVar("_T")

logger = logging.getLogger(__name__)


class State(ClusterState):
    """Computes the state of a cluster from its events, in any order.

    A drop-in replacement for the class of the same name in Celery: feed it the dicts that a
    receiver returns, or records from :func:`celeriac.decode`. Invalid events never
    make :meth:`event` raise; ``state.gate`` counts refused events by reason.
    """

    def __init__(
        self,
        callback: Callable[["State", Any], object] | None = None,
        *,
        max_workers_in_memory: int = 5000,
        max_tasks_in_memory: int = 10_000,
        on_node_join: Callable[[Worker], object] | None = None,
        on_node_leave: Callable[[Worker], object] | None = None,
        now: Callable[[], float] = time,
        gate: Gate | None = None,
        redactor: "Callable[[], Redactor] | None" = None,
    ) -> None:
        # Re-entrant, so that callbacks may ask the state they are called from.
        self._mutex = RLock()
        super().__init__(
            now=now,
            max_workers_in_memory=max_workers_in_memory,
            max_tasks_in_memory=max_tasks_in_memory,
            on_node_join=on_node_join,
            on_node_leave=on_node_leave,
            on_drift=_warn_of_drift,
            mutex=self._mutex,
        )
        #: Called with the state and each event as it was given, before it counts.
        self.event_callback = callback
        self.gate = gate or Gate()
        self._redactor = redactor

    def event(self, event: Event | Mapping[str, Any]) -> tuple[tuple[Task | Worker, bool], str] | None:
        """Take one event, a record or a dict.

        Pass an event that a receiver gives, not ``dict(event)``: in the dict the receiver's clock stands for
        the clock of an event without one, so two receivers' copies count as two events.

        Returns ``((task or worker, whether it is new), subject)``; None for an event that
        is about neither, or that cannot be taken.
        """
        with self._mutex:
            if type(event) is not dict and isinstance(event, Event):
                record, received_at = event, event.local_received
            else:
                converted = self.gate.convert(event)
                if converted is None:
                    return None
                record, received_at = converted
            if self.event_callback is not None:
                self.event_callback(self, event)
            about = self.apply(record, received_at)
            return None if about is None else (about, record.subject)

    def receive(self, body: bytes | str, received_at: float | None = None) -> list[Event]:
        """Take a message body as a broker delivers it, one event or a batch; return its records.

        ``received_at`` is when it came, by our clock. Without it no worker counts as alive,
        which is right for a body out of a file. The clock of a ``task-sent`` is taken as it
        stands: a receiver puts its own there first, because clients do not synchronise theirs.
        """
        events = self.gate.decode(body, received_at)
        self.take(events, received_at)
        return events

    def take(self, events: Iterable[Event], received_at: float | None = None) -> None:
        """Take the records of one message, which came at ``received_at``."""
        callback, mutex = self.event_callback, self._mutex
        mutex.acquire()  # by hand: ``with`` takes twice as long, and this runs for every message
        try:
            for event in events:
                if callback is not None:
                    callback(self, event)
                self.apply(event, received_at)
        finally:
            mutex.release()

    def freeze_while(
        self, function: Callable[..., _T], *args: Any, clear_after: bool = False, **kwargs: Any
    ) -> _T:
        """Call a function while no event changes the state; then clear it if asked to."""
        with self._mutex:
            try:
                return function(*args, **kwargs)
            finally:
                if clear_after:
                    self.clear()

    def save(self, url: "str | Path", *, redact: "Redactor | bool" = True) -> None:
        """Write everything but the callbacks to a file for :meth:`restore`.

        ``url`` is a path, or the URL of a file in an object store. The file is written atomically.
        Secrets in arguments, results and tracebacks are masked, by the settings of the app
        if it created this state; give a redactor for other rules, or False for no masking.
        Events may be received at the same time. Raises DiskError if the file cannot be written.
        """
        from celeriac.core import snapshot  # noqa: PLC0415 - few states are saved
        from celeriac.store.state_file import write_state  # noqa: PLC0415

        with self._mutex:
            taken = snapshot.take(self, now=self._now())
        if redact is not False:
            taken = snapshot.redacted(taken, self._default_redactor() if redact is True else redact)
        write_state(url, taken)

    def restore(self, url: "str | Path", *, max_bytes: int | None = None) -> Self:
        """Replace the state by a saved one, and return it.

        Callbacks are not called for workers that joined or left in the meantime: their next events do that. A
        file that is far larger than the limits of the state is refused, unless ``max_bytes`` allows it.
        Raises DiskError for a damaged or unreadable file, and ImproperlyConfigured for a file of another
        format or of a newer version. The state is unchanged then.
        """
        from celeriac.core import snapshot  # noqa: PLC0415 - few states are restored
        from celeriac.store.state_file import read_state, shown  # noqa: PLC0415

        taken = read_state(
            url,
            max_workers=self.max_workers_in_memory,
            max_tasks=self.max_tasks_in_memory,
            max_bytes=max_bytes,
        )
        try:
            snapshot.restore(self, taken, now=self._now)
        except CallerError as error:
            raise DiskError(f"cannot restore {shown(url)}: {error}") from None
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("Cannot pickle a State. Use state.save(path) and State().restore(path).")

    def _default_redactor(self) -> "Redactor":
        from celeriac.core.redaction import Redactor  # noqa: PLC0415 - only who writes needs it

        return Redactor() if self._redactor is None else self._redactor()


def _warn_of_drift(worker: Worker) -> None:
    logger.warning(
        "state: clock skew between %r and this machine is %.0f seconds; check NTP on both",
        worker.hostname,
        abs(worker.drift or 0.0),
    )
