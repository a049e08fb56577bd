"""A cluster as it is seen at one instant: its state, and what is counted of it while events come."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from celeriac.core.attempt import ended_by
from celeriac.core.attendance import Attendance
from celeriac.core.pulse import Pulse
from celeriac.core.series import Series
from celeriac.core.tally import Tally
from celeriac.core.task import Task
from celeriac.errors import PeerError
from celeriac.model.events import Event, Other, TaskEvent, WorkerEvent
from celeriac.node.replay import identity
from celeriac.node.state import State
from celeriac.wire.election import ELECTION_EVENTS
from celeriac.wire.task_request import read_moment

__all__ = ["Scene", "read_eta"]

#: A log that is silent for longer was not written: workers send heartbeats more often.
_SILENCE: Final = 60.0
#: Messages of elections that are remembered.
_MOST_ELECTIONS: Final = 200


class Scene:
    """Counts the tasks of a state and what happens to them, from now on.

    Who asks ``tally``, ``pulse`` or ``elections`` while events come does so within ``state.freeze_while``.
    """

    def __init__(self, state: State, *, begun_at: float = 0.0) -> None:
        self.state = state
        #: What happened before, in seconds of the epoch, is known from a log alone.
        self._begun_at = begun_at
        #: Until when the log is known, and where it is silent.
        self._recalled_until = 0.0
        self._silences: list[tuple[float, float]] = []
        #: Since when nothing is heard, while that is so: the gap is told when it is over.
        self.deaf_since: Callable[[], float | None] = lambda: None
        #: How many tasks there are of each name in each state.
        self.tally = Tally()
        #: What happened within the last hour.
        self.pulse = Pulse()
        #: All that happened since it was made, by name and by worker.
        self.series = Series()
        #: Whether what comes now happened before, and is in no series: who stores these has it already.
        self.is_recalling = False
        #: Since when workers are there; of what was recorded alone.
        self.attendance = Attendance()
        self._elections: dict[object, Other] = {}
        state.on_task = self._take
        state.on_forget = self.tally.leave

    def recall(self, events: Iterable[Event]) -> None:
        """Note that these were recorded, in the order of receipt: so somebody watched then."""
        for event in events:
            if isinstance(event, Other):
                self.hear(event)
            at = event.local_received
            if at is None:
                continue
            if isinstance(event, WorkerEvent):
                # What a broker kept for a recorder that was away came too late to count by its receipt.
                self.attendance.receive(event, at if at <= self._begun_at else event.timestamp or at)
            if at - self._recalled_until > _SILENCE:
                self._silences.append((self._recalled_until, min(at, self._begun_at)))
            self._recalled_until = max(self._recalled_until, at)

    def hear(self, event: Other) -> None:
        """Take what a node says of an election, once, and nothing else; only the last are remembered."""
        if event.type not in ELECTION_EVENTS:
            return
        # It may come from the broker and be in the log, even of several recorders.
        self._elections.setdefault(identity(event) or id(event), event)
        if len(self._elections) > _MOST_ELECTIONS:
            del self._elections[min(self._elections, key=lambda each: _receipt(self._elections[each]))]

    @property
    def elections(self) -> list[Other]:
        """What nodes said of elections last, the oldest first."""
        return sorted(self._elections.values(), key=_receipt)

    def watched(self, since: float, until: float) -> float:
        """Return for how many seconds of a span somebody watched; what happened in the rest is not known."""
        gaps = [(gap.since, gap.until) for gap in list(self.state.gaps)]
        deaf_since = self.deaf_since()
        if deaf_since is not None:
            gaps.append((deaf_since, inf))
        seconds = until - since
        for begin, end in sorted([*gaps, *self._silences, (self._recalled_until, self._begun_at)]):
            missed = min(end, until) - max(begin, since)
            if missed > 0:
                seconds -= missed
                since = end
        return max(0.0, seconds)

    def _take(self, task: Task, event: TaskEvent | None, received_at: float | None) -> None:
        self.tally.take(task, event)
        if event is not None and received_at is not None:
            ended = ended_by(event, task.history, read_eta)
            self.pulse.take(event, ended, received_at)
            if not self.is_recalling:
                self.series.take(event, ended, task.name)


def _receipt(event: Event) -> float:
    return event.local_received or 0.0


def read_eta(text: str) -> float | None:
    """Return the seconds of the epoch that the text of an eta says; None if it says none."""
    try:
        return read_moment(text, "eta")
    except PeerError:
        return None
