"""Events of one task without any regularity, to test laws that hold for every set of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from celeriac.core import facts, history
from celeriac.core.history import History
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
_SENDERS = {
    "uuid": st.just(UUID),
    "timestamp": st.sampled_from((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e9)),
    "clock": st.sampled_from((0, 1, 2, 3, 5000)),
    "hostname": st.sampled_from(("a@x", "b@x", "ü@x")),
    "pid": st.sampled_from((0, 1, 2)),
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


def _events(kind: type[TaskEvent], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[TaskEvent]:
    return st.builds(kind, **{**_SENDERS, **fields})


task_events: st.SearchStrategy[TaskEvent] = st.one_of(
    _events(Sent, queue=_TEXT, **_DESCRIBED),
    _events(Received, **_DESCRIBED),
    _events(Started, extra=_EXTRA),
    _events(Succeeded, result=_TEXT, extra=_EXTRA),
    _events(Failed, **_RAISED),
    _events(Retried, **_RAISED),
    _events(Rejected, requeue=st.booleans()),
    _events(Revoked, terminated=st.booleans()),
    _events(Custom, subject=_SUBJECTS, extra=_EXTRA),
)
event_lists = st.lists(task_events, max_size=30)


def fold(events: list[TaskEvent]) -> History:
    """Join events one by one, in the order given."""
    return history.merge((), tuple(events))


def observe(past: History) -> dict[str, object]:
    """Return everything that can be seen of a history."""
    known = facts.read(past)
    seen: dict[str, object] = {
        name: getattr(known, name)
        for name in ("state", "phase", "conflict", "worker", "name", "parent_link", "description", "custom",
                     "decided_by", "sent", "received", "started", "succeeded", "failed", "retried", "revoked",
                     "rejected")
    }  # fmt: skip
    for kind in (Sent, Received, Started, Succeeded, Failed, Retried, Revoked, Rejected):
        times = [event.timestamp for event in facts.all_of(kind, past)]
        seen[kind.__name__] = (len(times), min(times, default=None), max(times, default=None))
    return seen


@contextmanager
def tight_bounds() -> Iterator[None]:
    """Make the caps so small that a few events reach them."""
    caps = dict.fromkeys(history.CAPS, 3)
    with patch.dict(history.CAPS, caps), patch.object(history, "FULL_EVENTS", 4):
        yield


def with_and_without_bounds(law: Callable[[], None]) -> None:
    """Check a law as it is, and where the caps bite."""
    law()
    with tight_bounds():
        law()
