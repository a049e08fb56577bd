"""What a broker in this process has given out and is yet to be settled."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from celeriac.core.schedule import Schedule
from celeriac.model.message import Delivery, Message, Queue
from celeriac.transport.base import Take

__all__ = ["Borrower", "Lendings", "Lent"]


class Lent(NamedTuple):
    """A message that somebody has, and the queue it goes back to."""

    number: int
    queue: str
    message: Message


@dataclass(eq=False)
class Borrower:
    """One link: from which queues it takes what it is to settle, and how much of that at a time."""

    takes: dict[str, tuple[Queue, Take]] = field(default_factory=dict)
    prefetch: int = 0
    #: Whether somebody asked it to wait no longer.
    is_woken: bool = False

    def hand_over(self, lent: Lent) -> None:
        """Give a message to its consumer; without its body, if that is too long."""
        queue, take = self.takes[lent.queue]
        message = lent.message
        if queue.max_bytes is not None and len(message.body) > queue.max_bytes:
            message = message._replace(body=b"", fault="body-size")
        take(Delivery(message, lent.queue, lent))


class Lendings:
    """Who has which messages, in the order they were given out. Who calls holds the broker's lock."""

    def __init__(self) -> None:
        self._numbers = count()
        self._by_borrower: dict[Borrower, dict[int, Lent]] = {}
        #: What was set aside, until it returns to its queue.
        self._aside: Schedule[Lent] = Schedule()

    def room(self, borrower: Borrower) -> int:
        """Return how many more a link may have."""
        return borrower.prefetch - len(self._by_borrower.get(borrower, ()))

    def lend(self, borrower: Borrower, queue: str, message: Message) -> Lent:
        """Note that a link has a message."""
        lent = Lent(next(self._numbers), queue, message)
        self._by_borrower.setdefault(borrower, {})[lent.number] = lent
        return lent

    def settle(self, borrower: Borrower, number: int) -> Lent | None:
        """Forget one message of a link, and return it; None if the link does not have it."""
        return self._by_borrower.get(borrower, {}).pop(number, None)

    def set_aside(self, borrower: Borrower, number: int, until: float) -> bool:
        """Keep one message of a link out of the way; return False if the link does not have it."""
        lent = self.settle(borrower, number)
        if lent is not None:
            self._aside.add(number, until, lent)
        return lent is not None

    def return_due(self, queues: Mapping[str, tuple[Queue, deque[Message]]], now: float) -> None:
        """Put what was set aside until now at the end of its queue, if that is still there."""
        for lent in self._aside.due(now):
            if lent.queue in queues:
                queues[lent.queue][1].append(lent.message)

    def end(self, borrower: Borrower) -> list[Lent]:
        """Forget what a link has, and return it."""
        return list(self._by_borrower.pop(borrower, {}).values())

    def clear(self) -> list[Lent]:
        """Forget what all links have, and return it."""
        lent = [each for borrowed in self._by_borrower.values() for each in borrowed.values()]
        self._by_borrower.clear()
        return sorted(lent, key=lambda each: each.number)
