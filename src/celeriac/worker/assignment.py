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


@dataclass(slots=True, eq=False)
class Assignment:
    """One try of a task, from the moment its message came until it has ended."""

    key: int
    request: TaskRequest
    traits: Traits
    #: None if the message is not ours to settle any more: the link that it came over is lost.
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
    def attempt(self) -> tuple[str, int]:
        """What tells this try of the task from its others."""
        return (self.request.id, self.request.retries)


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
        self._keys: dict[tuple[str, int], int] = {}
        self._remembered: OrderedDict[tuple[str, int], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._assignments)

    def add(self, request: TaskRequest, traits: Traits, delivery: Delivery) -> Assignment:
        """Take a task in hand."""
        assignment = Assignment(next(self._numbers), request, traits, delivery)
        with self._mutex:
            self._assignments[assignment.key] = assignment
            self._keys[assignment.attempt] = assignment.key
        return assignment

    def get(self, key: int) -> Assignment | None:
        """Return what has this key; None if it has ended."""
        return self._assignments.get(key)

    def find(self, task_id: str) -> list[Assignment]:
        """Return the tries of a task that are in hand."""
        return [each for each in self.all() if each.request.id == task_id]

    def find_attempt(self, request: TaskRequest) -> Assignment | None:
        """Return the try that a request is for, if it is in hand."""
        with self._mutex:
            key = self._keys.get((request.id, request.retries))
            return None if key is None else self._assignments.get(key)

    def has_ended(self, request: TaskRequest) -> bool:
        """Say whether the try that a request is for has ended here, not long ago."""
        return (request.id, request.retries) in self._remembered

    def all(self, *stages: Stage) -> list[Assignment]:
        """Return what is in hand, in the order it came; at these stages alone, if any are given."""
        with self._mutex:
            found = list(self._assignments.values())
        return [each for each in found if each.stage in stages] if stages else found

    def remove(self, assignments: Iterable[Assignment], *, remembers: bool = True) -> None:
        """Put away what has ended, or what will come again."""
        with self._mutex:
            for each in assignments:
                if self._assignments.pop(each.key, None) is None:
                    continue
                if self._keys.get(each.attempt) == each.key:
                    del self._keys[each.attempt]
                if remembers:
                    self._remembered[each.attempt] = None
            while len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
