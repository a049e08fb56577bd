"""The step that holds the link over which nodes speak to each other."""

from collections.abc import Callable
from typing import ClassVar

from celeriac.errors import ConnectionLost
from celeriac.transport.base import Connection
from celeriac.worker.graph import Step

__all__ = ["ConnectionStep"]


class ConnectionStep(Step):
    """The link for gossip and control. Tasks and events have links of their own: none waits for another."""

    name: ClassVar = "connection"

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._link: Connection | None = None

    @property
    def link(self) -> Connection:
        """The link, which is open."""
        if self._link is None:
            raise ConnectionLost("not connected to the broker yet")
        return self._link

    def start(self) -> None:
        """Make the link."""
        self._link = self._connect()
        self._link.open()

    def stop(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def wake(self) -> None:
        """Let whoever drains the link come back soon; for any thread."""
        link = self._link
        if link is not None:
            link.wake()
