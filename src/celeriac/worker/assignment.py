"""One task that a worker has in hand, and all of them."""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from threading import Lock
from typing import Final

from celeriac.model.message import Delivery
from celeriac.model.task_request import TaskRequest
from celeriac.worker.traits import Traits

__all__ = ["Assignment", "Desk", "Stage", "Verdict"]

#: Tries that ended here and are remembered: more than a broker gives out again after one lost link.
_MAX_REMEMBERED: Final = 10_000


class Stage(Enum):
    """How far a task has come in this worker."""

    #: It waits for its moment.
    SCHEDULED = "scheduled"
    #: It waits for its turn: in the pool, or until its rate allows it.
    RESERVED = "reserved"
    #: It runs.
    ACTIVE = "active"
    #: It has ended, and its end is not yet stored and told.
    ENDED = "ended"


class Verdict(Enum):
    """What becomes of the message of a task."""

    #: The broker forgets it.
    ACCEPT = "accept"
    #: The broker drops it, or moves it to where it keeps what was dropped.
    DROP = "drop"
    #: It goes back to its queue.
    REQUEUE = "requeue"


#: What tells one try of a task from its others: its id, how often it was tried, how often replaced.
Attempt = tuple[str, int, int]


@dataclass(slots=True, eq=False)
class Assignment:
    """One try of a task, from the moment its message came until it has ended."""

    key: int
    request: TaskRequest
    traits: Traits
    #: The message that brought it.
    source: Delivery
    #: The message that is to be settled; None if there is none: the link that it came over is lost.
    delivery: Delivery | None
    stage: Stage = Stage.RESERVED
    #: What the broker was told to do with the message; None if it was told nothing yet.
    verdict: Verdict | None = None
    #: When it began, by the wall clock, and where.
    started_at: float | None = None
    pid: int | None = None
    #: The signal that ended it, if somebody revoked it while it ran.
    signal_number: int | None = None

    @property
    def attempt(self) -> Attempt:
        """What tells this try of the task from its others."""
        return _attempt(self.request)


class Desk:
    """Everything that a worker has in hand, for any number of threads to look at.

    It remembers the last tries that ended here: when a link is lost, a broker gives out again what it
    does not know to be done, and what is done must not be done twice.
    """

    def __init__(self) -> None:
        #: Tasks that were begun here, by name.
        self.begun: Counter[str] = Counter()
        #: How many tasks have ended here.
        self.ended = 0
        self._mutex = Lock()
        self._numbers = count(1)
        self._assignments: dict[int, Assignment] = {}
        self._keys: dict[Attempt, int] = {}
        #: What was to become of the messages of tries that ended here.
        self._verdicts: OrderedDict[Attempt, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._assignments)

    @property
    def has_unended(self) -> bool:
        """Whether something is in hand that has not ended: it runs, or waits."""
        with self._mutex:
            return any(each.stage is not Stage.ENDED for each in self._assignments.values())

    def add(self, request: TaskRequest, traits: Traits, delivery: Delivery) -> Assignment:
        """Take a task in hand."""
        assignment = Assignment(next(self._numbers), request, traits, delivery, delivery)
        attempt = assignment.attempt
        with self._mutex:
            self._assignments[assignment.key] = assignment
            self._keys[attempt] = assignment.key
            # Who sends a task once more under its old id wants it run once more.
            self._verdicts.pop(attempt, None)
        return assignment

    def get(self, key: int) -> Assignment | None:
        """Return what has this key; None if it has ended."""
        return self._assignments.get(key)

    def find(self, task_ids: Iterable[str]) -> list[Assignment]:
        """Return the tries of some tasks that are in hand, in the order they came."""
        wanted = frozenset(task_ids)
        return [each for each in self.all() if each.request.id in wanted]

    def find_attempt(self, request: TaskRequest) -> Assignment | None:
        """Return the try that a request is for, if it is in hand."""
        with self._mutex:
            key = self._keys.get(_attempt(request))
            return None if key is None else self._assignments.get(key)

    def verdict_on(self, request: TaskRequest) -> Verdict | None:
        """Return what was to become of the message of a try that ended here, not long ago; else None."""
        return self._verdicts.get(_attempt(request))

    def all(self, *stages: Stage) -> list[Assignment]:
        """Return what is in hand, in the order it came; at these stages alone, if any are given."""
        with self._mutex:
            found = list(self._assignments.values())
        return [each for each in found if each.stage in stages] if stages else found

    # -- how it goes on

    def begin(self, key: int, *, pid: int, at: float) -> Assignment | None:
        """Note that a task has begun, and return it; None if it is not in hand."""
        with self._mutex:
            assignment = self._assignments.get(key)
            if assignment is not None:
                assignment.stage, assignment.pid, assignment.started_at = Stage.ACTIVE, pid, at
                self.begun[assignment.request.task] += 1
            return assignment

    def end(self, key: int) -> Assignment | None:
        """Note that a task has ended, and return it; None if it is not in hand, or had ended before.

        Of a task that is taken away at the same moment, either this or that has its way.
        """
        with self._mutex:
            assignment = self._assignments.get(key)
            if assignment is None or assignment.stage is Stage.ENDED:
                return None
            assignment.stage = Stage.ENDED
            return assignment

    def put_away(self, settlements: Iterable[tuple[Assignment, Verdict]]) -> None:
        """Put away what has ended, and remember it, unless it is to be run again."""
        with self._mutex:
            for assignment, verdict in settlements:
                if self._remove(assignment):
                    self.ended += 1
                    if verdict is not Verdict.REQUEUE:
                        self._verdicts[assignment.attempt] = verdict
            while len(self._verdicts) > _MAX_REMEMBERED:
                self._verdicts.popitem(last=False)

    def remove(self, assignments: Iterable[Assignment]) -> None:
        """Put away what will come again."""
        with self._mutex:
            for assignment in assignments:
                self._remove(assignment)

    def take_unended(self) -> list[Assignment]:
        """Put away all that has not ended, and return it, in the order it came."""
        with self._mutex:
            found = [each for each in self._assignments.values() if each.stage is not Stage.ENDED]
            for assignment in found:
                self._remove(assignment)
        return found

    def _remove(self, assignment: Assignment) -> bool:
        if self._assignments.pop(assignment.key, None) is None:
            return False
        attempt = assignment.attempt
        if self._keys.get(attempt) == assignment.key:
            del self._keys[attempt]
        return True


def _attempt(request: TaskRequest) -> Attempt:
    return (request.id, request.retries, request.replaced_task_nesting)
