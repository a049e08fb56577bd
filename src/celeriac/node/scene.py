"""A cluster as it is seen at one instant: its state, and what is counted of it while events come."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from celeriac.core.attempt import ended_by
from celeriac.core.pulse import Pulse
from celeriac.core.series import Series
from celeriac.core.tally import Tally
from celeriac.core.task import Task
from celeriac.errors import PeerError
from celeriac.model.events import Event, TaskEvent
from celeriac.node.state import State
from celeriac.wire.task_request import read_moment

__all__ = ["Scene", "read_eta"]

#: A log that is silent for longer was not written: workers send heartbeats more often.
_SILENCE: Final = 60.0


class Scene:
    """Counts the tasks of a state and what happens to them, from now on.

    Who asks ``tally`` or ``pulse`` while events come does so within ``state.freeze_while``.
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
        state.on_task = self._take
        state.on_forget = self.tally.leave

    def recall(self, events: Iterable[Event]) -> None:
        """Note that these were recorded, in the order of receipt: so somebody watched then."""
        for event in events:
            at = event.local_received
            if at is None:
                continue
            if at - self._recalled_until > _SILENCE:
                self._silences.append((self._recalled_until, min(at, self._begun_at)))
            self._recalled_until = max(self._recalled_until, at)

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


def read_eta(text: str) -> float | None:
    """Return the seconds of the epoch that the text of an eta says; None if it says none."""
    try:
        return read_moment(text, "eta")
    except PeerError:
        return None
