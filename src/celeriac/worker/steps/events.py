"""The step that lets a worker send events."""

from typing import ClassVar, Final

from celeriac.node.dispatcher import EventDispatcher
from celeriac.worker.graph import Step

__all__ = ["EventsStep"]

#: How long the last events may take to arrive when a worker ends.
_PATIENCE: Final = 5.0


class EventsStep(Step):
    """The dispatcher of a worker. It mends its link by itself, and keeps events meanwhile."""

    name: ClassVar = "events"
    after: ClassVar = ("connection",)

    def __init__(self, dispatcher: EventDispatcher) -> None:
        self.dispatcher = dispatcher

    def start(self) -> None:
        """Begin to send."""
        self.dispatcher.enable()

    def stop(self) -> None:
        """Send what is left, and end."""
        self.dispatcher.close(_PATIENCE)

    @property
    def has_task_events(self) -> bool:
        """Whether events of tasks are sent."""
        groups = self.dispatcher.groups
        return not groups or "task" in groups
