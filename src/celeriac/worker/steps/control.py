"""The step that answers what others ask of a worker, and does what they may have it do."""

from collections.abc import Callable
from threading import Thread
from typing import ClassVar

from celeriac.node.mailbox import Mailbox
from celeriac.worker.graph import Step
from celeriac.worker.steps.connection import ConnectionStep

__all__ = ["ControlStep"]


class ControlStep(Step):
    """The mailbox of a worker, on the link for nodes."""

    name: ClassVar = "control"
    requires: ClassVar = ("connection",)
    after: ClassVar = ("tasks",)

    def __init__(
        self, connection: ConnectionStep, mailbox: Mailbox, *, on_ready: Callable[[], object] = lambda: None
    ) -> None:
        self.mailbox = mailbox
        self._connection = connection
        #: Called, beside all else, once others can reach us.
        self._on_ready = on_ready

    def start(self) -> None:
        """Listen to commands."""
        self.mailbox.attach(self._connection.link)
        # Not here: it waits for others, and whoever waits for us must not.
        Thread(target=self._on_ready, name="celeriac-second-hello", daemon=True).start()
