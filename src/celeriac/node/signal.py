"""A signal: whoever wants to know is told."""

import logging
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

__all__ = ["Signal"]

logger = logging.getLogger(__name__)

_Receiver = Callable[..., object]
_R = TypeVar("_R", bound=_Receiver)


class Signal:
    """Tells its receivers, in the order they were connected; safe to use from any thread.

    A receiver is called with ``sender``, ``signal`` and what else is said, all by name: take ``**kwargs``
    for what may be said later. It is held until it is disconnected.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._receivers: tuple[_Receiver, ...] = ()
        self._changing = Lock()

    def __repr__(self) -> str:
        return f"<Signal: {self.name} receivers={len(self._receivers)}>"

    @property
    def receivers(self) -> tuple[_Receiver, ...]:
        """Who is told."""
        return self._receivers

    def connect(self, receiver: _R) -> _R:
        """Tell a receiver from now on, once however often it is connected; also a decorator."""
        with self._changing:
            if receiver not in self._receivers:
                self._receivers = (*self._receivers, receiver)
        return receiver

    def disconnect(self, receiver: _Receiver) -> bool:
        """Tell a receiver no longer; return whether it was told until now."""
        with self._changing:
            before = self._receivers
            # By equality: a method of an object is another object each time it is asked for.
            self._receivers = tuple(each for each in before if each != receiver)
            return len(self._receivers) < len(before)

    def send(self, sender: object = None, **said: Any) -> list[tuple[_Receiver, object]]:
        """Tell all receivers; return each with what it returned, or the exception that it raised.

        One that raises is logged, and does not keep the others from being told.
        """
        answers: list[tuple[_Receiver, object]] = []
        for receiver in self._receivers:
            try:
                answer = receiver(sender=sender, signal=self, **said)
            except Exception as error:
                logger.exception("signal %s: a receiver raised an exception: %r", self.name, receiver)
                answer = error
            answers.append((receiver, answer))
        return answers
