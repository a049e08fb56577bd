"""The attempts of a task: who tried it when, how long each waited and ran, and how it ended.

A pure function of the history. A receipt tells the number of its attempt; what else happened in its process
belongs to the highest number that was received there before, but a retry to the highest that was started: the
next attempt is often received before it is told. Inside a process events are in the order of its
Lamport clock, as long as that tells; of several processes the last by time counts, because no clock goes from
one to the other.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Final, TypeVar, cast

from msgspec import Struct

from celeriac.core import facts
from celeriac.core.facts import all_of
from celeriac.core.history import History
from celeriac.core.order import task_key
from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
from celeriac.model.events import (
    Failed,
    Received,
    Rejected,
    Retried,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from celeriac.model.states import FAILURE, READY_STATES, REJECTED, RETRY, SUCCESS

__all__ = ["Attempt", "attempts_of", "ended_by"]

_E = TypeVar("_E", bound=TaskEvent)
_Process = tuple[str, int]

#: What may happen to an attempt, besides its end for good.
_COURSE: Final = frozenset({Received, Started, Retried, Rejected})
#: What ends an attempt that had begun.
_ENDS: Final = frozenset({Succeeded, Failed, Retried})
#: Before the receipt of a task that took the usual course there is nothing else.
_MAY_BE_SENT: Final = frozenset({Sent, type(None)})
#: What tells whether a process has the task on its hands.
_ON_HAND: Final = (Received, Started, Rejected)


class Attempt(Struct, frozen=True, gc=False):
    """One attempt. A moment that is not known is None."""

    #: Its number, from 0.
    retries: int
    #: The process that tried: the one that ended it, else that started it last, else that received it last.
    worker: str
    pid: int
    received_at: float | None
    started_at: float | None
    ended_at: float | None
    #: SUCCESS, FAILURE, REVOKED, RETRY or REJECTED; None while it is open.
    outcome: str | None
    #: Seconds from when it could have run to its start, and seconds that it ran.
    wait: float | None
    run: float | None

    @property
    def counted_at(self) -> float | None:
        """The moment it is counted under: its end, else its start, else its receipt."""
        return self.ended_at or self.started_at or self.received_at


def attempts_of(history: History, read_eta: Callable[[str], float | None]) -> list[Attempt]:
    """Return the attempts that the events of a task tell of, by number.

    ``read_eta`` turns the text of an eta into seconds of the epoch, if it can.
    """
    known = facts.read(history)
    state = known.state
    is_tried = known.received or known.started or state in READY_STATES or state in {RETRY, REJECTED}
    if not is_tried:
        return []
    numbers = sorted({receipt.retries for receipt in all_of(Received, history)}) or [0]
    sent = {event.retries: event for event in all_of(Sent, history)}
    final = known.decided_by if state in READY_STATES else None
    courses = _courses(history, final, last=numbers[-1])
    attempts = []
    for number in numbers:
        is_last = number == numbers[-1]
        attempts.append(
            _attempt(
                courses[number],
                state if is_last else RETRY,
                final if is_last else None,
                number=number,
                sent=sent.get(number),
                read_eta=read_eta,
            )
        )
    return attempts


def ended_by(event: TaskEvent, history: History, read_eta: Callable[[str], float | None]) -> Attempt | None:
    """Return the attempt that an event of a task ended; None if it ended none."""
    if type(event) not in _ENDS:
        return None
    plain = _plain(event, history)
    if plain is not None:
        attempt = _plain_attempt(*plain, event, read_eta)
        return attempt if attempt.ended_at == event.timestamp else None
    attempts = (each for each in attempts_of(history, read_eta) if each.ended_at == event.timestamp)
    return next((each for each in attempts if each.worker == event.hostname), None)


def _plain(end: TaskEvent, history: History) -> tuple[Sent | None, Received, Started] | None:
    """Return what came before the end of a task if it is the usual course, told in order by one process.

    That is to be received and started once, and then to succeed or fail; nearly all tasks do so.
    """
    count = len(history)
    if count not in (3, 4) or history[-1] is not end or type(end) is Retried:
        return None
    receipt, start, sent = history[-3], history[-2], history[0] if count == 4 else None
    if type(receipt) is not Received or type(start) is not Started or type(sent) not in _MAY_BE_SENT:
        return None
    is_one = receipt.pid == start.pid == end.pid and receipt.hostname == start.hostname == end.hostname
    if not is_one or not receipt.clock <= start.clock <= end.clock:
        return None
    return cast("Sent | None", sent), receipt, start


def _plain_attempt(
    sent: Sent | None,
    receipt: Received,
    start: Started,
    end: TaskEvent,
    read_eta: Callable[[str], float | None],
) -> Attempt:
    if sent is not None and sent.retries != receipt.retries:
        sent = None
    started_at, ended_at = _moment(start), _moment(end)
    return Attempt(
        receipt.retries,
        end.hostname,
        end.pid,
        _moment(receipt),
        started_at,
        ended_at,
        SUCCESS if type(end) is Succeeded else FAILURE,
        _wait(started_at, sent, receipt, read_eta),
        _run(started_at, end, ended_at),
    )


def _courses(
    history: History, final: TaskEvent | None, *, last: int
) -> Mapping[int, Mapping[_Process, Sequence[TaskEvent]]]:
    """Return what happened to each attempt in each process, in the order of the process."""
    told: dict[_Process, list[TaskEvent]] = {}
    for event in history:
        if type(event) in _COURSE or event is final:
            told.setdefault(_process(event), []).append(event)
    courses: dict[int, dict[_Process, list[TaskEvent]]] = {}
    for process, events in told.items():
        # What no receipt explains is of the only attempt, or of the one that ended there.
        is_certain = last == 0 or (final is not None and process == _process(final))
        highest, started = None, None
        for event in _in_order(events):
            number = highest if highest is not None else last if is_certain else None
            if isinstance(event, Received):
                number = event.retries
                highest = number if highest is None else max(highest, number)
            elif event is final:
                number = last
            elif isinstance(event, Retried) and started is not None:
                number = started
            elif isinstance(event, Started) and number is not None:
                started = number if started is None else max(started, number)
            if number is not None:
                courses.setdefault(number, {}).setdefault(process, []).append(event)
    return courses


def _in_order(events: Sequence[TaskEvent]) -> Sequence[TaskEvent]:
    """Put the events of a process, given in task order, into the order in which it told them.

    The clock tells, unless one is missing or it falls so far that the process was started again.
    """
    clocks = [event.clock for event in events]
    if NO_CLOCK in clocks or any(one - other > NEW_INCARNATION for one, other in pairwise(clocks)):
        return events
    return sorted(events, key=lambda event: event.clock)


def _attempt(
    course: Mapping[_Process, Sequence[TaskEvent]],
    state: str,
    final: TaskEvent | None,
    *,
    number: int,
    sent: Sent | None,
    read_eta: Callable[[str], float | None],
) -> Attempt:
    process = _process(final or _anchor([event for events in course.values() for event in events]))
    there = course[process]
    before = there[: there.index(final)] if final is not None else there
    start = _last(Started, before)
    receipt = _last(Received, before if start is None else before[: before.index(start)])
    outcome: str | None = None
    end: TaskEvent | None = None
    if final is not None:
        outcome, end = state, final
    elif state == RETRY:
        begin = start or receipt
        after = there if begin is None else there[there.index(begin) + 1 :]
        outcome, end = RETRY, next((e for e in after if type(e) is Retried), None)
    else:
        end = _rejection(there, [e for events in course.values() for e in events if type(e) is Received])
        outcome = None if end is None else REJECTED
    started_at, ended_at = _moment(start), _moment(end)
    return Attempt(
        retries=number,
        worker=process[0],
        pid=process[1],
        received_at=_moment(receipt),
        started_at=started_at,
        ended_at=ended_at,
        outcome=outcome,
        wait=_wait(started_at, sent, receipt, read_eta),
        run=_run(started_at, end, ended_at),
    )


def _anchor(events: Sequence[TaskEvent]) -> TaskEvent:
    """Return the event whose process tried: the last start, else the last receipt, and so on."""
    for kind in (Started, Received, Retried, Rejected):
        of_kind = [event for event in events if type(event) is kind]
        if of_kind:
            return max(of_kind, key=task_key)
    raise AssertionError  # an attempt has events


def _rejection(there: Sequence[TaskEvent], receipts: Sequence[Received]) -> Rejected | None:
    """Return the event by which the process gave the task back, if nobody received it since."""
    last = next((event for event in reversed(there) if type(event) in _ON_HAND), None)
    if not isinstance(last, Rejected):
        return None
    return None if any(task_key(receipt) > task_key(last) for receipt in receipts) else last


def _wait(
    started_at: float | None,
    sent: Sent | None,
    receipt: Received | None,
    read_eta: Callable[[str], float | None],
) -> float | None:
    described = receipt or sent
    eta = None if described is None or described.eta is None else read_eta(described.eta)
    ready = [at for at in (_moment(sent) or _moment(receipt), _if_known(eta)) if at is not None]
    return None if started_at is None or not ready else max(0.0, started_at - max(ready))


def _run(started_at: float | None, end: TaskEvent | None, ended_at: float | None) -> float | None:
    if isinstance(end, Succeeded) and end.runtime is not None and 0 <= end.runtime < inf:
        return end.runtime
    if started_at is None or ended_at is None or ended_at < started_at:
        return None
    return ended_at - started_at


def _last(kind: type[_E], events: Sequence[TaskEvent]) -> _E | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def _moment(event: TaskEvent | None) -> float | None:
    return None if event is None else _if_known(event.timestamp)


def _if_known(moment: float | None) -> float | None:
    return moment if moment is not None and 0 < moment < inf else None


def _process(event: TaskEvent) -> _Process:
    return event.hostname, event.pid
