"""What a broker in this process has given out and is yet to be settled."""

from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from celeriac.model.message import Message, Queue
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


class Lendings:
    """Who has which messages, in the order they were given out. Who calls holds the broker's lock."""

    def __init__(self) -> None:
        self._numbers = count()
        self._by_borrower: dict[Borrower, dict[int, Lent]] = {}

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

    def end(self, borrower: Borrower) -> list[Lent]:
        """Forget what a link has, and return it."""
        return list(self._by_borrower.pop(borrower, {}).values())

    def clear(self) -> list[Lent]:
        """Forget what all links have, and return it."""
        lent = [each for borrowed in self._by_borrower.values() for each in borrowed.values()]
        self._by_borrower.clear()
        return sorted(lent, key=lambda each: each.number)
