"""One subscription at RabbitMQ: who gets its messages, and which of them are taken."""

from functools import partial
from typing import Any

from celeriac.model.message import Message
from celeriac.transport.base import Deliver

__all__ = ["AmqpConsumer"]


class AmqpConsumer:
    """A subscription on a channel of its own.

    ``max_bytes`` is how long a message may be. Messages are numbered by the broker, in order.
    """

    #: What describes its messages is the same for many of them.
    is_for_tasks = False

    def __init__(self, channel: Any, deliver: Deliver, *, max_bytes: int, acknowledges: bool) -> None:
        self.max_bytes = max_bytes
        self._channel = channel
        self._deliver = deliver
        self._acknowledges = acknowledges
        #: The numbers of the messages that were delivered since the broker was last told.
        self._taken: list[int] = []
        #: Whether ``deliver`` ever failed on one, which is then not taken.
        self._has_gap = False

    def receiver(self, number: int) -> Deliver:
        """Return what is to be done with a message of a number."""
        return partial(self._take, number) if self._acknowledges else self._deliver

    def acknowledge(self) -> None:
        """Tell the broker what was taken: in one word, if nothing was left out."""
        if not self._taken:
            return
        taken, self._taken = self._taken, []
        if not self._has_gap:
            self._channel.basic_ack(taken[-1], multiple=True)
            return
        for number in taken:
            self._channel.basic_ack(number)

    def _take(self, number: int, message: Message) -> None:
        try:
            self._deliver(message)
        except BaseException:
            self._has_gap = True
            raise
        self._taken.append(number)
