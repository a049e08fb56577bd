"""A cluster as it is seen at one instant: its state, and what is counted of it while events come."""

from celeriac.core.attempt import ended_by
from celeriac.core.pulse import Pulse
from celeriac.core.series import Series
from celeriac.core.tally import Tally
from celeriac.core.task import Task
from celeriac.errors import PeerError
from celeriac.model.events import TaskEvent
from celeriac.node.state import State
from celeriac.wire.task_request import read_moment

__all__ = ["Scene", "read_eta"]


class Scene:
    """Counts the tasks of a state and what happens to them, from now on.

    Who asks ``tally`` or ``pulse`` while events come does so within ``state.freeze_while``.
    """

    def __init__(self, state: State) -> None:
        self.state = state
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
