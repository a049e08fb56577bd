"""What a node takes over from its neighbours when it meets them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from celeriac.core.clock import LamportClock
from celeriac.core.revoked import RevokedSet
from celeriac.model.clock import clock_value
from celeriac.model.greeting import BadGreeting, Greeting

__all__ = ["Mingled", "mingle"]


class Mingled(NamedTuple):
    """What came of a round of greetings."""

    #: Who answered so that it could be read, each once, in the order they answered.
    neighbours: tuple[str, ...]
    #: Our clock after it.
    clock: int
    #: How many revoked tasks we learnt of.
    merged: int
    #: Whose answer cannot be used, or only in part, and why.
    faults: Mapping[str, str]


def mingle(
    answers: Iterable[Greeting | BadGreeting],
    *,
    clock: LamportClock,
    revoked: RevokedSet,
    now: float,
    persisted: object = 0,
) -> Mingled:
    """Begin where the cluster is: take over its clock by rule C4, and the tasks that it revoked.

    An answer that cannot be used harms no other. Of a node that answers twice the first answer counts:
    else it could outvote the others on where the clock starts. ``persisted`` is the clock of our own
    last run.
    """
    greetings: dict[str, Greeting] = {}
    faults: dict[str, str] = {}
    for answer in answers:
        if isinstance(answer, BadGreeting):
            faults[answer.node] = answer.reason
        else:
            greetings.setdefault(answer.node, answer)
    merged = 0
    for node, greeting in greetings.items():
        if clock_value(greeting.clock) is None:
            faults[node] = "invalid clock"
        merged += sum(task_id not in revoked for task_id in dict.fromkeys(greeting.revoked))
        revoked.merge(greeting.revoked, now=now, peer=greeting.node)
    value = clock.start((greeting.clock for greeting in greetings.values()), persisted=persisted)
    return Mingled(tuple(greetings), value, merged, faults)
