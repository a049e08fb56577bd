"""Events of one task without any regularity, to test laws that hold for every set of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from celeriac.core import facts, history
from celeriac.core.history import History
from celeriac.core.order import task_key
from celeriac.model.events import (
    Custom,
    Extra,
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

UUID = "task-1"
#: Few values, so that events collide in every way they can.
_SENDERS: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": st.sampled_from((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e9)),
    "clock": st.sampled_from((0, 1, 2, 3, 5000)),
    "hostname": st.sampled_from(("a@x", "b@x", "ü@x")),
    "pid": st.sampled_from((0, 1, 2)),
    # What a receiver gives to an event without a clock.
    "local_clock": st.sampled_from((None, 2, 4)),
}
_TEXT = st.sampled_from((None, "x", "y"))
_EXTRA = st.sampled_from((None, Extra(n=1), Extra(n=2)))
_DESCRIBED = {
    "name": _TEXT,
    "args": _TEXT,
    "retries": st.sampled_from((0, 0, 1, 2)),
    "parent_id": st.sampled_from((None, UUID, "p", "q")),
    "extra": _EXTRA,
}
_RAISED = {"exception": _TEXT, "extra": _EXTRA}
_SUBJECTS = st.sampled_from(("progress", "upload", "cancelled", "success"))


_FIELDS: dict[type[TaskEvent], dict[str, st.SearchStrategy[Any]]] = {
    Sent: _DESCRIBED | {"queue": _TEXT},
    Received: _DESCRIBED,
    Started: {"extra": _EXTRA},
    Succeeded: {"result": _TEXT, "extra": _EXTRA},
    Failed: _RAISED,
    Retried: _RAISED,
    Rejected: {"requeue": st.booleans()},
    Revoked: {"terminated": st.booleans()},
    Custom: {"subject": _SUBJECTS, "extra": _EXTRA},
}


def events_of(uuids: st.SearchStrategy[str]) -> st.SearchStrategy[list[TaskEvent]]:
    """Return lists of events of the tasks named, some short and some long."""
    events = st.one_of(
        *(st.builds(kind, **{**_SENDERS, "uuid": uuids, **fields}) for kind, fields in _FIELDS.items())
    )
    return st.one_of(st.lists(events, max_size=8), st.lists(events, min_size=10, max_size=40))


event_lists = events_of(st.just(UUID))


def fold(events: list[TaskEvent]) -> History:
    """Join events one by one, in the order given."""
    return history.merge((), tuple(events))


def observe(past: History) -> dict[str, object]:
    """Return everything that can be seen of a history."""
    known = facts.read(past)
    seen: dict[str, object] = {
        name: getattr(known, name)
        for name in ("state", "phase", "conflict", "worker", "name", "description", "custom",
                     "sent", "received", "started", "succeeded", "failed", "retried", "revoked",
                     "rejected")
    }  # fmt: skip
    # Who decided and when; a start that is not the last of all may have lost what else it said.
    seen["parent_link"] = facts.parent_link(past)
    seen["decided_by"] = known.decided_by and task_key(known.decided_by)
    for kind in (Sent, Received, Started, Succeeded, Failed, Retried, Revoked, Rejected):
        times = [event.timestamp for event in facts.all_of(kind, past)]
        seen[kind.__name__] = (len(times), min(times, default=None), max(times, default=None))
    return seen


@contextmanager
def tight_bounds() -> Iterator[None]:
    """Make the bounds so small that a few events reach them; the caps stay the larger ones."""
    caps = dict.fromkeys(history.CAPS, 4)
    with patch.dict(history.CAPS, caps), patch.object(history, "FULL_EVENTS", 3):
        yield


def with_and_without_bounds(law: Callable[[], None]) -> None:
    """Check a law as it is, and where the caps bite."""
    law()
    with tight_bounds():
        law()
