"""What the events of a task mean.

A pure function of the history. Three tests decide a state that is still open,
and none compares the wall clocks or the Lamport clocks of two nodes, because a
task message carries no clock from one to the other:

- *Retries are counted.* Attempts 0 to R-1 end in one ``retried`` each before
  attempt R can exist, and ``received.retries`` is R. So more than R of them prove
  that attempt R gave up, whatever arrived first.
- *Started* is weighed against *received* inside one process, where the Lamport
  clock is exact.
- *Custom* states are weighed by timestamp inside one host.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from celeriac.core.history import CAPS, History, is_named_like_a_state, speaker
from celeriac.core.order import task_key
from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
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
from celeriac.model.states import (
    FAILURE,
    PENDING,
    RECEIVED,
    REJECTED,
    RETRY,
    REVOKED,
    STARTED,
    SUCCESS,
)

__all__ = ["Facts", "all_of", "parent_link", "read"]

_E = TypeVar("_E", bound=TaskEvent)

_STATE: Final[dict[type[TaskEvent], str]] = {
    Sent: PENDING,
    Received: RECEIVED,
    Started: STARTED,
    Succeeded: SUCCESS,
    Failed: FAILURE,
    Retried: RETRY,
    Revoked: REVOKED,
    Rejected: REJECTED,
}
_PHASE: Final[dict[type[TaskEvent | None], str]] = {
    Sent: "queued",
    Received: "received",
    Started: "running",
    Custom: "running",
    Succeeded: "done",
    Failed: "done",
    Revoked: "done",
    Retried: "retry_wait",
}
#: What tells whether a process has the task on its hands.
_ON_HAND: Final = frozenset({Received, Started, Rejected})
#: Starts and receipts of one process that are weighed against each other. An honest process has
#: one or two of each; a thousand of both would take a million comparisons.
MAX_COMPARED: Final = 16


class Facts(Struct, frozen=True, gc=False):
    """The events that speak for a task, one of each type at most."""

    history: History
    #: The event that gives the state; None before any event. It tells who and when: what else it
    #: said may be gone, if it is not the one that speaks for its type.
    decided_by: TaskEvent | None
    sent: Sent | None
    received: Received | None
    started: Started | None
    succeeded: Succeeded | None
    failed: Failed | None
    retried: Retried | None
    revoked: Revoked | None
    rejected: Rejected | None

    @property
    def state(self) -> str:
        """The furthest the task got."""
        if isinstance(self.decided_by, Custom):
            return self.decided_by.subject.upper()
        return PENDING if self.decided_by is None else _STATE[type(self.decided_by)]

    @property
    def custom(self) -> Custom | None:
        """The last custom event, whether or not it gives the state."""
        return speaker(all_of(Custom, self.history))

    @property
    def raised(self) -> Failed | Retried | None:
        """The event that tells what was raised last; a failure is later than any retry."""
        return self.failed or self.retried

    @property
    def description(self) -> Received | Sent | None:
        """The event that says what the task is: received if there is one, else sent."""
        return self.received or self.sent

    @property
    def name(self) -> str | None:
        """The name of the task."""
        return None if self.description is None else self.description.name

    @property
    def worker(self) -> str | None:
        """The node that has, or had, the task; None while only a client spoke of it."""
        if isinstance(self.decided_by, Succeeded | Failed | Revoked | Retried):
            return self.decided_by.hostname
        if self.received is not None:
            return self.received.hostname
        return next((e.hostname for e in reversed(self.history) if type(e) is not Sent), None)

    @property
    def conflict(self) -> bool:
        """Whether it succeeded and failed, succeeded twice, or did either in an attempt that was retried.

        More retries than the last receipt counts prove that its attempt was retried. Without a receipt the
        attempt is unknown, and a retry proves nothing. A revoked task has no conflict.
        """
        if self.succeeded is None and self.failed is None:
            return False
        if self.succeeded is not None and self.failed is not None:
            return True
        gave_up = self.received is not None and _gave_up(self.received, all_of(Retried, self.history))
        return gave_up or len(all_of(Succeeded, self.history)) > 1

    @property
    def phase(self) -> str:
        """Where the task is now: queued, received, running, retry_wait, requeued or done."""
        phase = _PHASE.get(type(self.decided_by), "queued")
        if isinstance(self.decided_by, Rejected):
            return "requeued" if self.decided_by.requeue else "done"
        return "requeued" if phase in {"received", "running"} and self._was_requeued else phase

    @property
    def _was_requeued(self) -> bool:
        """Whether the process that has the task gave it back last."""
        received = self.received
        if self.rejected is None or received is None:
            return False
        there = [e for e in self.history if type(e) in _ON_HAND and _same_process(e, received)]
        last = there[-1]  # the receipt itself is among them
        return isinstance(last, Rejected) and bool(last.requeue)


def read(history: History) -> Facts:
    """Read the facts from the events of one task."""
    # Events are in order, so the last of a type is what stays under it.
    last: dict[type[TaskEvent], Any] = {type(event): event for event in history}
    received: Received | None = last.get(Received)
    sent: Sent | None = last.get(Sent)
    if len(history) > len(last):
        received = speaker(all_of(Received, history))
        sent = speaker(all_of(Sent, history))
    return Facts(
        history,
        _decided_by(history, last, received) or sent,
        sent,
        received,
        last.get(Started),
        last.get(Succeeded),
        last.get(Failed),
        last.get(Retried),
        last.get(Revoked),
        last.get(Rejected),
    )


def _decided_by(
    history: History, last: Mapping[type[TaskEvent], Any], received: Received | None
) -> TaskEvent | None:
    """Return the event that gives the state; None if nobody but a client spoke."""
    end = last.get(Succeeded) or last.get(Failed) or last.get(Revoked)
    if end is not None:
        return cast("TaskEvent", end)
    if received is None:
        attempt = _without_receipt(history)
    elif len(history) == len(last) and Retried not in last and Custom not in last:
        # The usual course, and what the general rule comes to with one receipt and one start.
        start: Started | None = last.get(Started)
        has_started = start is not None and _same_process(start, received) and _follows(start, received)
        attempt = start if has_started else received
    else:
        attempt = _open_attempt(history, received)
    return attempt or last.get(Rejected)


def all_of(kind: type[_E], history: History) -> list[_E]:
    """Return the events of one type, in task order."""
    return [event for event in history if type(event) is kind]


def parent_link(history: History) -> str | None:
    """Return the task that sent this one, as the latest attempt that names another task has it."""
    # Celery: a retry names the task as its own parent; an earlier attempt knows better.
    told = [e for e in history if isinstance(e, Described) and e.parent_id not in {None, e.uuid}]
    parent = max(told, key=lambda e: (e.retries, task_key(e)), default=None)
    return None if parent is None else parent.parent_id


def _open_attempt(history: History, received: Received) -> TaskEvent:
    """Return the event that decides the attempt that ``received`` began."""
    retries = all_of(Retried, history)
    if _gave_up(received, retries):
        return retries[-1]
    live = [e for e in all_of(Received, history) if e.retries == received.retries]
    return _last_custom(history, live) or _last_start(history, live) or received


def _last_custom(history: History, live: list[Received]) -> Custom | None:
    """Return the last custom state told by a host after it received the attempt."""
    received_at = {e.hostname: e.timestamp for e in reversed(live)}
    for custom in reversed(_custom_states(history)):
        if custom.timestamp >= received_at.get(custom.hostname, inf):
            return custom
    return None


def _last_start(history: History, live: list[Received]) -> Started | None:
    """Return the last start in a process that had received the attempt before."""
    receipts: dict[tuple[str, int], list[Received]] = {}
    for receipt in live:
        receipts.setdefault((receipt.hostname, receipt.pid), []).append(receipt)
    looked_at: Counter[tuple[str, int]] = Counter()
    for start in reversed(all_of(Started, history)):
        process = (start.hostname, start.pid)
        looked_at[process] += 1
        if looked_at[process] > MAX_COMPARED:
            continue
        if any(_follows(start, receipt) for receipt in receipts.get(process, ())[:MAX_COMPARED]):
            return start
    return None


def _without_receipt(history: History) -> TaskEvent | None:
    """Return the latest event when no receipt tells the attempt: time is all there is."""
    open_ended = (*all_of(Started, history), *all_of(Retried, history), *_custom_states(history))
    return max(open_ended, key=task_key, default=None)


def _custom_states(history: History) -> list[Custom]:
    return [event for event in all_of(Custom, history) if not is_named_like_a_state(event)]


def _gave_up(received: Received, retries: Sequence[Retried]) -> bool:
    if len(retries) >= CAPS[Retried]:  # no longer all of them: time must do
        return task_key(retries[-1]) > task_key(received)
    if len(retries) <= received.retries:
        return False
    # One retry may have come twice, once with its timestamp mended: its stamp tells.
    return len({(e.hostname, e.pid, e.clock or task_key(e)) for e in retries}) > received.retries


def _same_process(one: TaskEvent, other: TaskEvent) -> bool:
    return one.pid == other.pid and one.hostname == other.hostname


def _follows(start: Started, receipt: Received) -> bool:
    """Tell whether a start is later than a receipt in the same process.

    The clock tells, unless one is missing or they are so far apart that the process may
    have been restarted between the two.
    """
    if NO_CLOCK in (start.clock, receipt.clock) or abs(start.clock - receipt.clock) > NEW_INCARNATION:
        return start.timestamp > receipt.timestamp
    return start.clock > receipt.clock
