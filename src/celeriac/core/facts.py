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

from collections.abc import Sequence
from typing import Final, TypeVar, cast

from msgspec import Struct

from celeriac.core.history import CAPS, History, speaker
from celeriac.core.order import task_key
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import (
    Custom,
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

__all__ = ["NEW_INCARNATION", "Facts", "read"]

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
#: A custom event named like one of these (``task-success``) is no state of its own.
_BUILT_IN: Final = frozenset(_STATE.values())

#: A clock that falls by more than this while time goes on belongs to a process
#: that was restarted under the same host and pid, as containers are.
NEW_INCARNATION: Final = 1000


class Facts(Struct, frozen=True, kw_only=True, gc=False):
    """The events that speak for a task, and the state they give it."""

    state: str
    #: The event that gives the state; None before any event.
    decided_by: TaskEvent | None
    sent: Sent | None
    received: Received | None
    started: Started | None
    succeeded: Succeeded | None
    failed: Failed | None
    retried: Retried | None
    revoked: Revoked | None
    rejected: Rejected | None
    custom: Custom | None
    deliveries: int
    executions: int
    retries_seen: int
    successes: int
    #: The task that sent this one.
    parent_link: str | None

    @property
    def raised(self) -> Failed | Retried | None:
        """The event that tells what was raised last; a failure is later than any retry."""
        return self.failed or self.retried

    @property
    def description(self) -> Received | Sent | None:
        """The event that says what the task is: received if there is one, else sent."""
        return self.received or self.sent

    @property
    def worker(self) -> str | None:
        """The node that has, or had, the task; None while only a client spoke of it."""
        if isinstance(self.decided_by, Succeeded | Failed | Revoked | Retried) or self.received is None:
            return None if isinstance(self.decided_by, Sent | None) else self.decided_by.hostname
        return self.received.hostname

    @property
    def conflict(self) -> bool:
        """Whether the task ended in two ways, or twice."""
        if self.succeeded is None and self.failed is None:
            return False
        gave_up = self.received is not None and self.retries_seen > self.received.retries
        return gave_up or self.successes > 1 or (self.succeeded is not None and self.failed is not None)

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
        last, received = self.rejected, self.received
        if last is None or not last.requeue or received is None or not _same_process(last, received):
            return False
        later = [e for e in (received, self.started) if e is not None and _same_process(last, e)]
        return task_key(last) > max(map(task_key, later))


def read(history: History) -> Facts:
    """Read the facts from the events of one task."""
    groups: dict[type[TaskEvent], list[TaskEvent]] = {}
    for event in history:
        groups.setdefault(type(event), []).append(event)

    receipts = _of(Received, groups)
    starts = _of(Started, groups)
    customs = [e for e in _of(Custom, groups) if e.subject.upper() not in _BUILT_IN]
    successes = _of(Succeeded, groups)
    retries = _of(Retried, groups)
    sends = _of(Sent, groups)
    sent = speaker(sends)
    received = speaker(receipts)
    succeeded = speaker(successes)
    failed = speaker(_of(Failed, groups))
    revoked = speaker(_of(Revoked, groups))
    rejected = speaker(_of(Rejected, groups))
    retried = speaker(retries)

    decided_by = (
        succeeded
        or failed
        or revoked
        or _open_attempt(received, receipts, starts, customs, retries)
        or _without_receipt(received, starts, customs, retries)
        or rejected
        or sent
    )
    return Facts(
        state=_state_of(decided_by),
        decided_by=decided_by,
        sent=sent,
        received=received,
        started=speaker(starts),
        succeeded=succeeded,
        failed=failed,
        retried=retried,
        revoked=revoked,
        rejected=rejected,
        custom=speaker(customs),
        deliveries=len(receipts),
        executions=len(starts),
        retries_seen=len(retries),
        successes=len(successes),
        parent_link=_parent_link(received or sent, [*receipts, *sends]),
    )


def _of(kind: type[_E], groups: dict[type[TaskEvent], list[TaskEvent]]) -> list[_E]:
    return cast("list[_E]", groups.get(kind, []))


def _open_attempt(
    received: Received | None,
    receipts: Sequence[Received],
    starts: Sequence[Started],
    customs: Sequence[Custom],
    retries: Sequence[Retried],
) -> TaskEvent | None:
    """Return the event that decides an attempt that has not ended, if its number is known."""
    if received is None:
        return None
    if _gave_up(received, retries):
        return retries[-1]
    live = [e for e in receipts if e.retries == received.retries]
    for custom in reversed(customs):
        if any(e.hostname == custom.hostname and custom.timestamp >= e.timestamp for e in live):
            return custom
    for start in reversed(starts):
        if any(_same_process(start, e) and _follows(start, e) for e in live):
            return start
    return received


def _without_receipt(
    received: Received | None,
    starts: Sequence[Started],
    customs: Sequence[Custom],
    retries: Sequence[Retried],
) -> TaskEvent | None:
    """Return the latest event when no receipt tells the attempt; time is all there is."""
    if received is not None:
        return None
    last: list[TaskEvent] = [*starts[-1:], *customs[-1:], *retries[-1:]]
    return max(last, key=task_key, default=None)


def _parent_link(description: Received | Sent | None, told: Sequence[Received | Sent]) -> str | None:
    if description is None or description.parent_id != description.uuid:
        return None if description is None else description.parent_id
    # Celery: a retry names the task as its own parent; an earlier attempt knows better.
    others = [e for e in told if e.parent_id not in {None, e.uuid}]
    return max(others, key=lambda e: (e.retries, task_key(e))).parent_id if others else None


def _gave_up(received: Received, retries: Sequence[Retried]) -> bool:
    if len(retries) >= CAPS[Retried]:  # no longer all of them: time must do
        return task_key(retries[-1]) > task_key(received)
    return len(retries) > received.retries


def _same_process(one: TaskEvent, other: TaskEvent) -> bool:
    return one.pid == other.pid and one.hostname == other.hostname


def _follows(start: Started, receipt: Received) -> bool:
    """Tell whether a start is later than a receipt in the same process."""
    later = start.timestamp > receipt.timestamp
    if NO_CLOCK in (start.clock, receipt.clock):
        return later
    if abs(start.clock - receipt.clock) > NEW_INCARNATION and later != (start.clock > receipt.clock):
        return later
    return start.clock > receipt.clock


def _state_of(event: TaskEvent | None) -> str:
    if isinstance(event, Custom):
        return event.subject.upper()
    return PENDING if event is None else _STATE[type(event)]
