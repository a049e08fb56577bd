"""Who waits for which result: one pure machine under every way of waiting."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from math import ceil
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from celeriac.model.result import ResultMeta
from celeriac.model.states import SUCCESS

__all__ = ["Deliver", "Effect", "Expire", "Read", "Subscribe", "Unsubscribe", "WaitingList"]

#: Whoever waits; the machine only tells one from another.
Waiter = Hashable
_Due = TypeVar("_Due", bound=Hashable)


class Subscribe(NamedTuple):
    """Ask the store to tell us of these tasks, and say :meth:`WaitingList.confirm` once it has agreed."""

    task_ids: tuple[str, ...]


class Unsubscribe(NamedTuple):
    """Ask it to tell us no more of these."""

    task_ids: tuple[str, ...]


class Read(NamedTuple):
    """Read what is stored of these now, and :meth:`WaitingList.feed` what is found."""

    task_ids: tuple[str, ...]


class Deliver(NamedTuple):
    """Hand a state of a task to one who waits for it."""

    waiter: Waiter
    meta: ResultMeta


class Expire(NamedTuple):
    """Tell one who waits that the time has passed."""

    waiter: Waiter


Effect = Subscribe | Unsubscribe | Read | Deliver | Expire

#: No effect names more tasks: a store that is busy with one command answers nobody else.
BATCH: Final = 500
#: Seconds until a watch is read again, then the last of them for ever: a lost notice costs seconds.
POLL_WAITS: Final = (5.0, 10.0, 20.0, 40.0, 60.0)
#: Confirmations to wait for when nobody waits for the task any more; about 10 MB.
UNCONFIRMED_LIMIT: Final = 100_000


class WaitingList:
    """Everyone who waits for results over one link, and what is still to be done for them.

    Subscribe, have it confirmed, then read: whatever is stored is stored before the read
    or after the confirmation, so it is found or told. A new link begins all over. What is
    told to nobody all the same is found by reading again, ever more rarely.

    Without a store every state comes once by itself. There is nothing to subscribe to or
    to read, so what came is remembered for those who ask late, within limits.

    ``now`` is of a clock that never goes back, as deadlines are; ``random`` gives numbers from 0 to 1.
    """

    def __init__(
        self,
        *,
        random: Callable[[], float],
        has_store: bool = True,
        early_limit: int = 10_000,
        early_bytes: int = 64 * 1024 * 1024,
        early_age: float = 600.0,
    ) -> None:
        self.has_store = has_store
        #: States dropped because they were known, or came after the end.
        self.duplicates = 0
        #: Confirmations no longer waited for, for want of room.
        self.given_up = 0
        self._random = random
        self._early = _Early(limit=early_limit, max_bytes=early_bytes, max_age=early_age)
        #: Who waits for a task, and which tasks one waits for.
        self._watches: dict[str, dict[Waiter, None]] = {}
        self._tasks: dict[Waiter, dict[str, None]] = {}
        self._deadlines: _Agenda[Waiter] = _Agenda()
        #: The last state that was delivered, of tasks that go on.
        self._last: dict[str, ResultMeta] = {}
        #: When to read a task again, and how often that was said.
        self._polls: _Agenda[str] = _Agenda()
        self._polled: dict[str, int] = {}
        self._is_up = False
        #: What this link tells us of for certain, and what was watched before it and is not confirmed.
        self._armed: set[str] = set()
        self._resyncing: set[str] = set()
        #: How many subscriptions on this link are not confirmed, also of tasks nobody waits for now.
        self._unconfirmed: dict[str, int] = {}

    @property
    def phase(self) -> Literal["down", "resync", "up"]:
        """Whether there is a link, and whether it tells us all that was wanted before it."""
        return "down" if not self._is_up else "resync" if self._resyncing else "up"

    @property
    def watched(self) -> int:
        """How many tasks someone waits for."""
        return len(self._watches)

    @property
    def waiters(self) -> int:
        """How many wait."""
        return len(self._tasks)

    @property
    def early(self) -> int:
        """How many states are remembered for those who ask late."""
        return len(self._early.states)

    @property
    def overflowed(self) -> int:
        """How many of them were forgotten before their time, for want of room."""
        return self._early.overflowed

    def watch(
        self,
        waiter: Waiter,
        task_ids: Iterable[str],
        *,
        now: float,
        deadline: float | None = None,
        peek: bool = False,
    ) -> list[Effect]:
        """Wait for these tasks too; the deadline given last is the waiter's, for all it waits for.

        What is known is delivered at once; ``peek`` reads at once, too, what may well be there.
        """
        effects: list[Effect] = []
        new: list[str] = []
        joined: list[str] = []
        asked = dict.fromkeys(task_ids)
        tasks = self._tasks.get(waiter, {})
        for task_id in [each for each in asked if each not in tasks]:
            known = self._last.get(task_id) or self._early.get(task_id, now)
            if known is not None:
                effects.append(Deliver(waiter, known))
                if known.is_ready:
                    continue
                self._last[task_id] = known
            if task_id not in self._watches:
                self._watches[task_id] = {}
                new.append(task_id)
            elif task_id in self._armed:
                joined.append(task_id)
            self._watches[task_id][waiter] = None
            tasks[task_id] = None
        if tasks:
            self._tasks[waiter] = tasks
            if deadline is not None:
                self._deadlines.set(waiter, deadline)
        if self.has_store and self._is_up:
            effects += self._subscribe(new, now)
            # Who joins others must not depend on a notice that they have missed.
            self._poll_anew(joined, now)
            effects += _in_batches(Read, list(asked) if peek else joined)
        return effects

    def unwatch(self, waiter: Waiter, task_ids: Iterable[str] | None = None, *, now: float) -> list[Effect]:  # noqa: ARG002
        """Wait no more for these tasks, or for any; it is no error not to have waited for them."""
        tasks = self._tasks.get(waiter, {})
        named = tasks if task_ids is None else dict.fromkeys(task_ids)
        return self._unsubscribe(self._leave(waiter, [each for each in named if each in tasks]))

    def dismiss(self) -> tuple[list[Waiter], list[Effect]]:
        """Let everybody go, and return who waited: the way to the results is closed."""
        return list(self._tasks), self._let_go(list(self._tasks))

    def connect(self, now: float) -> list[Effect]:
        """Begin anew with a link that has just come up."""
        self.disconnect(now)
        self._is_up = True
        wanted = list(self._watches) if self.has_store else []
        self._resyncing.update(wanted)
        return self._subscribe(wanted, now)

    def disconnect(self, now: float) -> list[Effect]:  # noqa: ARG002 - every input has its moment
        """Forget the link: it is gone, and with it all that was asked of it."""
        self._is_up = False
        self._armed.clear()
        self._resyncing.clear()
        self._unconfirmed.clear()
        self._polls = _Agenda()
        self._polled.clear()
        return []

    def confirm(self, task_ids: Iterable[str], *, now: float) -> list[Effect]:
        """Read these tasks, now that the store has agreed to tell of them."""
        armed = []
        for task_id in task_ids:
            # Subscribed, unsubscribed and subscribed again: the first confirmation is not of the last.
            left = self._unconfirmed.pop(task_id, 0) - 1
            if left > 0:
                self._unconfirmed[task_id] = left
            elif left == 0 and task_id in self._watches:
                armed.append(task_id)
        self._armed.update(armed)
        self._resyncing.difference_update(armed)
        self._poll_anew(armed, now)
        return _in_batches(Read, armed)

    def feed(self, meta: ResultMeta, *, size: int, now: float) -> list[Effect]:
        """Deliver a state to all who wait for it; the end of a task ends their waiting."""
        return self.feed_all([(meta, size)], now)

    def feed_all(self, arrivals: Iterable[tuple[ResultMeta, int]], now: float) -> list[Effect]:
        """Deliver many states, each given with its size in bytes, in the order they came."""
        effects: list[Effect] = []
        ended: list[str] = []
        for meta, size in arrivals:
            task_id = meta.task_id
            waiters = self._watches.get(task_id, {})
            is_known = not self.has_store and not self._early.put(meta, size, now)
            if is_known or (waiters and meta == self._last.get(task_id)):
                self.duplicates += 1
                continue
            effects += [Deliver(waiter, meta) for waiter in waiters]
            if meta.is_ready:
                for waiter in list(waiters):
                    ended += self._leave(waiter, (task_id,))
            elif waiters:
                self._last[task_id] = meta
        return effects + self._unsubscribe(ended)

    def recall(self, task_id: str, now: float) -> ResultMeta | None:
        """Return what is remembered of a task where there is no store; None if nothing."""
        return self._early.get(task_id, now)

    def forget(self, task_id: str) -> list[Effect]:
        """Drop what is remembered of a task; who waits for it goes on waiting."""
        self._early.drop(task_id)
        self._last.pop(task_id, None)
        return []

    def tick(self, now: float) -> list[Effect]:
        """Let those expire whose time has passed, and read again what is due."""
        expired = self._deadlines.pop(now)
        unsubscribed = self._let_go(expired)
        due = self._polls.pop(now)
        self._poll_later(due, now)
        self._early.purge(now)
        return [*map(Expire, expired), *unsubscribed, *_in_batches(Read, due)]

    def next_at(self) -> float | None:
        """Return when :meth:`tick` has something to do; None if never."""
        moments = (self._deadlines.next_at(), self._polls.next_at(), self._early.next_at())
        return min((moment for moment in moments if moment is not None), default=None)

    def _subscribe(self, task_ids: list[str], now: float) -> list[Effect]:
        for task_id in task_ids:
            self._unconfirmed[task_id] = self._unconfirmed.get(task_id, 0) + 1
        if len(self._unconfirmed) > len(self._watches) + UNCONFIRMED_LIMIT:
            # Should one of them come after all, a watch is read too early, and the poll makes up for it.
            unwanted = self._unconfirmed.keys() - self._watches.keys()
            self.given_up += sum(self._unconfirmed.pop(task_id) for task_id in unwanted)
        # Not only once it is confirmed: a confirmation can be lost, too.
        self._poll_anew(task_ids, now)
        return _in_batches(Subscribe, task_ids)

    def _unsubscribe(self, task_ids: list[str]) -> list[Effect]:
        return _in_batches(Unsubscribe, task_ids) if self.has_store and self._is_up else []

    def _let_go(self, waiters: list[Waiter]) -> list[Effect]:
        ended = [each for waiter in waiters for each in self._leave(waiter, list(self._tasks[waiter]))]
        return self._unsubscribe(ended)

    def _leave(self, waiter: Waiter, task_ids: Iterable[str]) -> list[str]:
        """Let one wait no more for tasks it waits for; return those that nobody waits for now."""
        ended = []
        for task_id in task_ids:
            del self._tasks[waiter][task_id]
            del self._watches[task_id][waiter]
            if not self._watches[task_id]:
                del self._watches[task_id]
                self._last.pop(task_id, None)
                self._armed.discard(task_id)
                self._resyncing.discard(task_id)
                self._polls.drop(task_id)
                self._polled.pop(task_id, None)
                ended.append(task_id)
        if not self._tasks.get(waiter, True):
            del self._tasks[waiter]
            self._deadlines.drop(waiter)
        return ended

    def _poll_anew(self, task_ids: Iterable[str], now: float) -> None:
        self._polled.update(dict.fromkeys(task_ids, 0))
        self._poll_later(task_ids, now)

    def _poll_later(self, task_ids: Iterable[str], now: float) -> None:
        for task_id in task_ids:
            self._polled[task_id] = polled = self._polled[task_id] + 1
            wait = POLL_WAITS[min(polled, len(POLL_WAITS)) - 1]
            # In whole seconds many fall together, into one read.
            self._polls.set(task_id, ceil(now + wait * (0.75 + self._random() / 2)))


class _Agenda(Generic[_Due]):
    """What is due when. The heap, of moments, is never much longer than what is left to do."""

    def __init__(self) -> None:
        self._moments: dict[_Due, float] = {}
        self._due: dict[float, dict[_Due, None]] = {}
        self._heap: list[float] = []

    def set(self, each: _Due, at: float) -> None:
        self.drop(each)
        self._moments[each] = at
        if at not in self._due:
            self._due[at] = {}
            heappush(self._heap, at)
        self._due[at][each] = None

    def drop(self, each: _Due) -> None:
        at = self._moments.pop(each, None)
        if at is not None:
            del self._due[at][each]
            if not self._due[at]:
                del self._due[at]
                if not self._due or len(self._heap) > 2 * len(self._due) + 16:
                    self._heap = sorted(self._due)

    def pop(self, now: float) -> list[_Due]:
        due: list[_Due] = []
        while (at := self.next_at()) is not None and at <= now:
            due += self._due.pop(heappop(self._heap))
        for each in due:
            del self._moments[each]
        return due

    def next_at(self) -> float | None:
        while self._heap and self._heap[0] not in self._due:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class _Early:
    """What came of tasks, for those who ask late: the longest unused goes first."""

    def __init__(self, *, limit: int, max_bytes: int, max_age: float) -> None:
        self.limit, self.max_bytes, self.max_age = limit, max_bytes, max_age
        self.overflowed = 0
        #: Each state, its size, and when it was last used, in that order.
        self.states: OrderedDict[str, tuple[ResultMeta, int, float]] = OrderedDict()
        self._bytes = 0

    def get(self, task_id: str, now: float) -> ResultMeta | None:
        self.purge(now)
        if task_id not in self.states:
            return None
        meta, size, _ = self.states.pop(task_id)
        self.states[task_id] = (meta, size, now)
        return meta

    def put(self, meta: ResultMeta, size: int, now: float) -> bool:
        """Remember a state, unless a better one is known; say whether it is news."""
        self.purge(now)
        if meta.task_id in self.states:
            old = self.states[meta.task_id][0]
            is_success = old.status == SUCCESS and not old.fault
            if old == meta or is_success or (old.is_ready and not meta.is_ready):
                return False
            self.drop(meta.task_id)
        self.states[meta.task_id] = (meta, size, now)
        self._bytes += size
        while len(self.states) > self.limit or self._bytes > self.max_bytes:
            # What has no room in any case goes alone.
            self.drop(meta.task_id if size > self.max_bytes else next(iter(self.states)))
            self.overflowed += 1
        return True

    def drop(self, task_id: str) -> None:
        if task_id in self.states:
            self._bytes -= self.states.pop(task_id)[1]

    def purge(self, now: float) -> None:
        while (at := self.next_at()) is not None and at <= now:
            self.drop(next(iter(self.states)))

    def next_at(self) -> float | None:
        return ceil(next(iter(self.states.values()))[2] + self.max_age) if self.states else None


def _in_batches(effect: Callable[[tuple[str, ...]], Effect], task_ids: Sequence[str]) -> list[Effect]:
    return [effect(tuple(task_ids[at : at + BATCH])) for at in range(0, len(task_ids), BATCH)]
