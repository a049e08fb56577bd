"""Where events come from: a cluster as it is now, or its history."""

from collections.abc import Iterator
from typing import Protocol

from celeriac.model.events import Event
from celeriac.node.receiver import EventReceiver
from celeriac.node.state import State

__all__ = ["EventSource", "Live"]


class EventSource(Protocol):
    """Gives out events, and knows what they add up to.

    Whoever shows events is handed one of these, and need not know whether it is a cluster
    (:class:`Live`) or a log of one (:class:`~celeriac.node.replay.Replay`).
    """

    @property
    def state(self) -> State:
        """What the events given out add up to; safe to read meanwhile, from any thread."""

    def __iter__(self) -> Iterator[Event]:
        """Give out events, each after the state has it, until there are no more or :meth:`stop`."""

    def stop(self) -> None:
        """Have the iteration end soon. Safe to call from another thread or a signal handler."""

    def close(self) -> None:
        """Give back what the iteration needed."""


class Live:
    """The events of a cluster, as they come."""

    def __init__(self, receiver: EventReceiver, state: State, *, wakeup: bool = True) -> None:
        self.state = state
        self.receiver = receiver
        self._wakeup = wakeup

    def __iter__(self) -> Iterator[Event]:
        for event in self.receiver.itercapture(wakeup=self._wakeup):
            self.state.event(event)
            yield event

    def stop(self) -> None:
        """Have the iteration end soon."""
        self.receiver.stop()

    def close(self) -> None:
        """End the link to the broker."""
        self.receiver.close()
