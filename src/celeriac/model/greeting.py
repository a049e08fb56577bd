"""What a node answers when another one greets it."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["BadGreeting", "Greeting"]


class Greeting(NamedTuple):
    """The answer of a neighbour: where its clock is, and which tasks it holds for revoked."""

    node: str
    #: As it was sent: what is a clock is decided where clocks are.
    clock: object
    #: The ids, oldest first.
    revoked: Sequence[str] = ()


class BadGreeting(NamedTuple):
    """An answer that cannot be read, and why."""

    node: str
    reason: str
