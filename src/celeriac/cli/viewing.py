"""Takes events from a cluster or a log, beside what a command does, for as long as that lasts.

What stays up to show a cluster, the dashboard and ``celeriac top``, has a
:class:`~celeriac.node.watcher.Watcher`: it recalls the log, holds workers for alive or lost, and masks each
event as it comes. A command that ends in seconds needs a state alone, as the events say it: ``status``
shows nothing of a task, and who saves a state masks it then.
"""

from collections import deque
from threading import Thread
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.model.events import Event
    from celeriac.node.source import EventSource

__all__ = ["Viewing", "view_cluster"]

#: Events that wait to be shown. A screen shows fifty; more than this in a quarter of a second nobody reads.
_MOST_WAITING: Final = 10_000
#: How long the thread may take to end; it looks twice a second, but for the making of a link.
_PATIENCE: Final = 2.0


class Viewing:
    """Takes events from a source in a thread of its own, for as long as the context lasts.

    Faces are shown one of these: a cluster as it is (:func:`view_cluster`), or a replay of its history.
    """

    def __init__(self, source: "EventSource") -> None:
        #: What the events add up to; safe to read meanwhile.
        self.state = source.state
        #: Events in the order they came, for who shows them to take away.
        self.waiting: deque[Event] = deque(maxlen=_MOST_WAITING)
        #: Events that nobody took away in time.
        self.overlooked = 0
        self._source = source
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="viewing", daemon=True)

    @property
    def is_listening(self) -> bool:
        """Whether events still come to us."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what ended the reception, if something did."""
        if self._error is not None:
            raise self._error

    def taken(self) -> "list[Event]":
        """Take away the events that wait."""
        return [self.waiting.popleft() for _ in range(len(self.waiting))]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._source.stop()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            for event in self._source:
                self.overlooked += len(self.waiting) == self.waiting.maxlen
                self.waiting.append(event)
        except BaseException as error:  # noqa: BLE001  (raised by check, where somebody sees it)
            self._error = error
        finally:
            self._source.close()


def view_cluster(app: "Celeriac") -> Viewing:
    """Return a viewing of the cluster as it is."""
    from celeriac.node.source import Live  # noqa: PLC0415 - only who views events loads them

    return Viewing(Live(app.events.Receiver(), app.events.State()))
