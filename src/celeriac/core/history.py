"""What is remembered of one task: the set of its events.

A history is a tuple of distinct events in task order, and joining two of them is
a set union. So it is the same whatever the order of arrival, with every
duplicate and every split of the stream, and needs no case analysis on states;
what the events *mean* is read from it in :mod:`celeriac.core.facts`.

Two bounds keep it small. Past :data:`FULL_EVENTS` events, one that another outdoes
as the speaker of its type loses its payload, and a custom event that a later one of
its host outdates is dropped. Past its cap, an event type keeps its first and its last
event, and between them those of the latest attempts. What can be read in the end
depends on the set alone: the top k of a union of top ks is the top k of the union.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec import json
from msgspec.structs import replace

from celeriac.core.order import task_key
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import (
    Custom,
    Described,
    Failed,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from celeriac.model.states import BUILT_IN_STATES

__all__ = ["CAPS", "FULL_EVENTS", "History", "add", "is_named_like_a_state", "merge", "retries_of", "speaker"]

_E = TypeVar("_E", bound=TaskEvent)

History = tuple[TaskEvent, ...]

#: Up to here every event is kept whole: a task with three retries has 16 events.
FULL_EVENTS: Final = 16

#: Events kept of each type. A task that polls by retrying may be received a
#: thousand times; nothing honest succeeds more than a few.
CAPS: Final[dict[type[TaskEvent], int]] = {
    Sent: 64,
    Received: 1024,
    Started: 1024,
    Succeeded: 64,
    Failed: 64,
    Retried: 1024,
    Rejected: 1024,
    Revoked: 64,
    Custom: 64,
}

#: What an event loses when another of its type speaks for the task.
_PAYLOAD: Final[dict[type[TaskEvent], dict[str, None]]] = {
    Sent: dict.fromkeys(
        ("name", "args", "kwargs", "eta", "expires", "queue", "exchange", "routing_key", "extra")
    ),
    Received: dict.fromkeys(("name", "args", "kwargs", "eta", "expires", "extra")),
    Started: dict.fromkeys(("extra",)),
    Succeeded: dict.fromkeys(("result", "runtime", "extra")),
    Failed: dict.fromkeys(("exception", "traceback", "extra")),
    Retried: dict.fromkeys(("exception", "traceback", "extra")),
    Rejected: dict.fromkeys(("extra",)),
    Revoked: dict.fromkeys(("extra",)),
}


def add(history: History, event: TaskEvent) -> History:
    """Return the history with one more event in it."""
    if not history:
        return (event,)
    place = len(history)
    if place < FULL_EVENTS:
        # The usual case: few events, mostly in order, none at the same instant.
        moment = event.timestamp
        while place and history[place - 1].timestamp > moment:
            place -= 1
        if not place or history[place - 1].timestamp < moment:
            # Sums of tuples: unpacking makes a list first, and this is the hot path.
            tail = history[place:]
            return history[:place] + (event,) + tail if tail else history + (event,)  # noqa: RUF005
    return _insert(history, event)


def _insert(history: History, event: TaskEvent) -> History:
    key = task_key(event)
    place = bisect_left(history, key, key=task_key)
    after = place
    if place < len(history) and task_key(history[place]) == key:
        # One identity with two contents is a forgery or a bug: all observers keep the same one.
        if _content(event) <= _content(history[place]):
            return history
        after = place + 1
    history = (*history[:place], event, *history[after:])
    return _compact(history, event) if len(history) > FULL_EVENTS else history


def merge(one: History, other: History) -> History:
    """Return the union of two histories."""
    for event in other:
        one = add(one, event)
    return one


def retries_of(event: TaskEvent) -> int:
    """Return the attempt an event tells of, for the types that tell."""
    return event.retries if isinstance(event, Described) else 0


def is_named_like_a_state(event: TaskEvent) -> bool:
    """Tell whether a custom event has the name of a built-in state, and so is none of its own."""
    return event.subject.upper() in BUILT_IN_STATES


def speaker(events: Sequence[_E]) -> _E | None:
    """Return the event that speaks for all of its type, which are given in task order.

    It is the last one; but ``retries`` comes from the message itself, so for the
    types that carry it, it outranks every clock.
    """
    if len(events) > 1 and isinstance(events[0], Described):
        return max(reversed(events), key=retries_of)
    return events[-1] if events else None


def _content(event: TaskEvent) -> tuple[bytes, bytes, int]:
    """Encode what the sender said, without what receivers put in.

    The part that survives stripping decides first, so that it does not matter
    whether an event was stripped before it met its double.
    """
    clock = NO_CLOCK if isinstance(event, Sent) else event.clock
    said = replace(event, clock=clock, local_received=None, local_clock=None)
    return json.encode(_strip(said), order="sorted"), json.encode(said, order="sorted"), event.display_clock


def _compact(history: History, event: TaskEvent) -> History:
    """Bring the events of one type, of which ``event`` is new, within their bounds."""
    kind = type(event)
    same = [e for e in history if type(e) is kind]
    if kind is Custom:
        # Only the last custom event of each host can decide a state, of those that can at all.
        last = {(e.hostname, is_named_like_a_state(e)): e for e in same}.values()
        return _without(history, same, keep=sorted(last, key=task_key)[-CAPS[kind] :])
    if len(same) > CAPS[kind]:
        between = sorted(same[1:-1], key=lambda e: (retries_of(e), task_key(e)))
        history = _without(history, same, keep=[same[0], *between[2 - CAPS[kind] :], same[-1]])
    spoke_before = speaker([e for e in same if e is not event])
    silent = spoke_before if event is speaker(same) else event
    if silent is None:
        return history
    stripped = _strip(silent)
    return tuple(stripped if e is silent else e for e in history)


def _without(history: History, same: Sequence[TaskEvent], *, keep: Sequence[TaskEvent]) -> History:
    dropped = {id(e) for e in same} - {id(e) for e in keep}
    return tuple(e for e in history if id(e) not in dropped) if dropped else history


def _strip(event: TaskEvent) -> TaskEvent:
    return replace(event, **_PAYLOAD.get(type(event), {}))
