"""A node of ours that answers commands, running in a thread while a test does something else."""

from threading import Event, Thread
from types import TracebackType
from typing import Self

from celeriac.app import Celeriac

__all__ = ["Node"]

#: How long one wait lasts, so that the end of a test is heeded soon.
_SLICE = 0.1


class Node:
    """A mailbox, and the link that brings it commands."""

    def __init__(self, app: Celeriac, hostname: str) -> None:
        self.app = app
        self.mailbox = app.mailbox(hostname)
        #: What ended it, if it was not us.
        self.failure: BaseException | None = None
        self._link = app.connection()
        self._stopping = Event()
        self._thread = Thread(target=self._drain)

    def __enter__(self) -> Self:
        self.mailbox.attach(self._link)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._link.close()

    @property
    def is_running(self) -> bool:
        """Whether it still takes commands."""
        return self._thread.is_alive()

    def _drain(self) -> None:
        try:
            while not self._stopping.is_set():
                self._link.drain(_SLICE)
        except BaseException as error:  # noqa: BLE001 - the test is to see it
            self.failure = error
