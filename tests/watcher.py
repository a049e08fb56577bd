"""Our receiver and state, running in a thread while a test does something else."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from threading import Thread
from types import TracebackType
from typing import Self, cast

from celeriac.app import Celeriac
from celeriac.model.events import Event
from celeriac.programs.process import wait_until

__all__ = ["PATIENCE", "Watcher"]

#: How long a test waits for what must come: far more than needed, for a busy machine.
PATIENCE = 120.0


class Watcher:
    """Captures events from the moment it is entered; nothing published afterwards is missed."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self.state = app.events.State()
        self.receiver = app.events.Receiver(handlers={"*": self._receive}, state=self.state)
        #: Every event but our own probes, in the order they came.
        self.events: list[Event] = []
        #: What ended the capture, if it was not us.
        self.failure: BaseException | None = None
        #: The numbers of the last probe that was sent, and of the last that was heard.
        self._sent = self._probed = 0
        self._thread = Thread(target=self._capture)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.wait_until_it_hears()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.receiver.close()

    @property
    def is_capturing(self) -> bool:
        """Whether the capture goes on."""
        return self._thread.is_alive()

    @property
    def types(self) -> Counter[str]:
        """How many events of each type came."""
        return Counter(event.type for event in list(self.events))

    def of_type(self, type_: str) -> list[Event]:
        """Return the events of one type, in the order they came."""
        return [event for event in list(self.events) if event.type == type_]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that comes of events."""
        came = wait_until(lambda: self.failure is not None or condition(), patience=PATIENCE)
        assert self.failure is None, f"the capture ended: {self.failure!r}"
        assert came, f"it did not come to hold; heard so far: {dict(self.types)}"

    def wait_until_it_hears(self) -> None:
        """Send events until one of them is heard, and wait for the last of them: none is on its way then."""
        numbers = count(self._probed + 1)
        with self.app.events.Dispatcher() as dispatcher:
            before = self._probed

            def is_heard() -> bool:
                self._sent = next(numbers)
                dispatcher.send("watcher-probe", number=self._sent, of=id(self))
                return self._probed > before

            self.wait_for(is_heard)
        self.wait_for(lambda: self._probed == self._sent)

    def stop(self) -> None:
        """End the capture."""
        self.receiver.stop()
        self.join()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the capture."""
        self._thread.join(timeout)

    def _capture(self) -> None:
        try:
            self.receiver.capture()
        except BaseException as error:  # noqa: BLE001 - the test is to see it
            self.failure = error

    def _receive(self, event: Event) -> None:
        if event.type != "watcher-probe":
            self.events.append(event)
        elif event["of"] == id(self):  # there may be others
            self._probed = cast("int", event["number"])
