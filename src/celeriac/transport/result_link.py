"""The protocol of a link over which results come.

Like a :class:`~celeriac.transport.base.Connection`, it is spent once it has raised
:class:`~celeriac.errors.ConnectionLost`, and ``clone()`` gives a fresh one.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

from celeriac.model.result import ResultMeta

__all__ = ["Arrived", "Confirmed", "News", "ResultLink"]


class Confirmed(NamedTuple):
    """The other side confirmed subscriptions: what is stored for these tasks from now on is told.

    Every one that was asked for is told once, in order, also if it was given up or asked for again since.
    Who counts them knows which confirmation is of which subscription.
    """

    task_ids: tuple[str, ...]


class Arrived(NamedTuple):
    """The state of a task came, by itself or because it was asked for."""

    meta: ResultMeta
    #: How long it was on the wire.
    size: int


News = Confirmed | Arrived


class ResultLink(Protocol):
    """One link, used by one thread or greenlet at a time, but for :meth:`interrupt`.

    No call but ``open`` and ``close`` waits for an answer: answers are news, and :meth:`drain` tells them.
    """

    @property
    def address(self) -> str:
        """Where it leads, for people: a URL without its password."""

    @property
    def has_store(self) -> bool:
        """Whether results are kept where they can be read again.

        If not, the state of every task comes once, unasked for, and there is nothing to subscribe to or read.
        """

    def open(self) -> None:
        """Connect; raises ConnectionLost, or AccessRefused where trying again is no use."""

    def subscribe(self, task_ids: Sequence[str]) -> None:
        """Ask to be told of these tasks."""

    def unsubscribe(self, task_ids: Sequence[str]) -> None:
        """Ask to be told of these no more."""

    def read(self, task_ids: Sequence[str]) -> None:
        """Ask what is stored of these now; a task of which nothing is stored makes no news."""

    def drain(self, timeout: float) -> list[News]:
        """Return what came, waiting up to ``timeout`` seconds for the first of it.

        Shows the other side that we live, and finds out whether it does.
        """

    def interrupt(self) -> None:
        """End a :meth:`drain` that waits now, or else the next one; from anywhere, finalizers too."""

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""

    def delete(self) -> None:
        """End the link for good: what the other side keeps for it alone goes too."""

    def clone(self) -> Self:
        """Return a new link to the same place, not yet open."""
