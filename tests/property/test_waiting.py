"""The laws of the waiting list, whatever is stored, told, lost, cut and waited for in whatever order.

Around each list is the rest of its process: a link, a store or a queue at its other end, and
plain books of who waits for what. Pipes are simulated by their two ends, and each rule moves
one thing along one of them, so that everything can come late; but nothing overtakes another on
the same pipe. Messages and answers come by two pipes, as they do from a real store.
"""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import cycle
from math import ceil, inf

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from celeriac.core.waiting import Deliver, Effect, Expire, Read, Subscribe, Unsubscribe, WaitingList
from celeriac.model.result import ResultMeta
from tests.property.effort import COSTLY

#: Room for early results: less than there are tasks, or than a few of them are long.
LIMIT, BYTES, AGE = 2, 100, 40.0
#: No watch of a living link is left unread for longer: the longest wait, with the worst luck.
POLL = 76.0
#: At most so many processes live at once.
PROCESSES = 2

processes = st.sampled_from((0, 0, 0, 1))
task_ids = st.sampled_from(("a", "a", "b", "c"))
some_ids = st.lists(task_ids, min_size=1, max_size=3)
waiters = st.sampled_from(("ann", "ann", "bob"))
timeouts = st.sampled_from((None, 0.0, 3.0, 20.0, 200.0))
statuses = st.sampled_from(("SUCCESS", "SUCCESS", "FAILURE", "STARTED", "RETRY"))
fates = st.sampled_from(("told", "told later", "lost"))
whiles = st.sampled_from((0.5, 4.0, 30.0, 100.0))


def held(part: object) -> int:
    """Return how many things are held in all that a machine is made of."""
    total = 0
    for value in vars(part).values():
        if isinstance(value, dict | set | list):
            total += len(value)
        elif hasattr(value, "__dict__") and not callable(value):
            total += held(value)
    return total


class Memory:
    """What a list without a store is to remember, by the plainest means."""

    def __init__(self) -> None:
        #: State, size, and when it was used last; the longest unused first.
        self.kept: list[tuple[ResultMeta, int, float]] = []
        self.overflowed = 0

    def take(self, task_id: str) -> tuple[ResultMeta, int, float] | None:
        found = next((each for each in self.kept if each[0].task_id == task_id), None)
        if found:
            self.kept.remove(found)
        return found

    def purge(self, now: float) -> None:
        self.kept = [each for each in self.kept if ceil(each[2] + AGE) > now]

    def get(self, task_id: str, now: float) -> ResultMeta | None:
        self.purge(now)
        found = self.take(task_id)
        if found is None:
            return None
        self.kept.append((*found[:2], now))
        return found[0]

    def put(self, meta: ResultMeta, size: int, now: float) -> bool:
        self.purge(now)
        known = next((each for each, *_ in self.kept if each.task_id == meta.task_id), None)
        if known == meta or (known and (known.status == "SUCCESS" or (known.is_ready and not meta.is_ready))):
            return False
        self.take(meta.task_id)
        if size > BYTES:
            self.overflowed += 1
            return True
        self.kept.append((meta, size, now))
        while len(self.kept) > LIMIT or sum(size for _, size, _ in self.kept) > BYTES:
            del self.kept[0]
            self.overflowed += 1
        return True


class Link:
    """One connection to a store: two pipes, each with its way there and its way back."""

    def __init__(self) -> None:
        #: What was subscribed to, as the near end sees it, and as the far end does.
        self.asked: set[str] = set()
        self.subscribed: set[str] = set()
        #: How many subscriptions were not confirmed; at one time there can be several of one task.
        self.unconfirmed: Counter[str] = Counter()
        self.commands: deque[Subscribe | Unsubscribe] = deque()
        self.messages: deque[tuple[str, ...] | ResultMeta] = deque()
        self.reads: deque[Read] = deque()
        self.answers: deque[ResultMeta] = deque()


class Process:
    """One process: a waiting list, carried out by the book, and the book."""

    def __init__(self, *, has_store: bool) -> None:
        self.has_store = has_store
        luck = cycle((0.5, 0.0, 0.99, 0.3)).__next__
        self.waiting = WaitingList(
            random=luck, has_store=has_store, early_limit=LIMIT, early_bytes=BYTES, early_age=AGE
        )
        self.link: Link | None = None
        self.memory = Memory()
        #: Who waits for what, and since which moment and which step.
        self.books: dict[str, dict[str, tuple[float, int]]] = {}
        self.last: dict[str, ResultMeta] = {}
        self.deadlines: dict[str, float] = {}
        self.resyncing: set[str] = set()
        #: Tasks whose end this link may not tell: the notice or the confirmation was lost.
        self.missed: set[str] = set()
        self.stuck: set[str] = set()
        #: Since when the other side answers without delay.
        self.healthy_since = inf
        #: Without a store: what is on its way to us, and what we had and did not acknowledge.
        self.queue: deque[ResultMeta] = deque()
        self.unacknowledged: list[ResultMeta] = []
        #: Without a store: the step at which the end of a task was last sent to us.
        self.ended_at: dict[str, int] = {}

    # -- what is done with it

    def wait(
        self, waiter: str, asked: list[str], now: float, timeout: float | None, *, peek: bool, step: int
    ) -> None:
        known = []
        to_read = set(asked) if peek else set()
        for task_id in dict.fromkeys(asked):
            if waiter in self.books.get(task_id, {}):
                continue
            state = self.last.get(task_id)
            if state is None and not self.has_store:
                state = self.memory.get(task_id, now)
            known += [Deliver(waiter, state)] if state else []
            if state and state.is_ready:
                continue
            # Whatever others have missed of it, it is read for this one.
            if task_id not in self.books:
                self.missed.discard(task_id)
            elif self.link and not self.link.unconfirmed[task_id]:
                self.missed.discard(task_id)
                to_read.add(task_id)
            if state:
                self.last[task_id] = state
            self.books.setdefault(task_id, {})[waiter] = (now, step)
        deadline = None if timeout is None else now + timeout
        if deadline is not None and self.tasks_of(waiter):
            self.deadlines[waiter] = deadline

        effects = self.waiting.watch(waiter, iter(asked), now=now, deadline=deadline, peek=peek)

        self.act(effects, deliver=known)
        if self.has_store and self.link:
            assert {each for read in effects if isinstance(read, Read) for each in read.task_ids} == to_read

    def cancel(self, waiter: str, asked: list[str] | None, now: float) -> None:
        self.strike(waiter, self.tasks_of(waiter) if asked is None else asked)

        effects = self.waiting.unwatch(waiter, asked, now=now)

        self.act(effects)

    def dismiss(self) -> None:
        everyone = {waiter for watching in self.books.values() for waiter in watching}
        for waiter in everyone:
            self.strike(waiter, self.tasks_of(waiter))

        gone, effects = self.waiting.dismiss()

        self.act(effects)
        assert Counter(gone) == Counter(everyone)

    def connect(self, now: float) -> None:
        self.link = Link()
        self.resyncing = set(self.books) if self.has_store else set()
        self.missed.clear()
        self.stuck.clear()
        self.healthy_since = now

        effects = self.waiting.connect(now)

        self.act(effects)

    def disconnect(self, now: float) -> None:
        self.link = None
        self.resyncing.clear()
        self.healthy_since = inf
        self.queue.extendleft(reversed(self.unacknowledged))
        self.unacknowledged.clear()

        effects = self.waiting.disconnect(now)

        self.act(effects)

    def confirm(self, confirmed: tuple[str, ...], now: float) -> None:
        assert self.link is not None
        self.resyncing.difference_update(confirmed)
        self.link.unconfirmed.subtract(confirmed)
        told = {each for each in confirmed if each in self.books and not self.link.unconfirmed[each]}

        effects = self.waiting.confirm(confirmed, now=now)

        self.act(effects)
        assert effects == ([Read(tuple(each for each in confirmed if each in told))] if told else [])

    def feed(self, metas: Iterable[ResultMeta], now: float) -> None:
        arrivals = [(meta, length(meta)) for meta in metas]
        expected = []
        for meta, size in arrivals:
            is_news = self.has_store or self.memory.put(meta, size, now)
            if not is_news or self.last.get(meta.task_id) == meta:
                continue
            told = list(self.books.get(meta.task_id, ()))
            expected += [Deliver(waiter, meta) for waiter in told]
            if told and not meta.is_ready:
                self.last[meta.task_id] = meta
            for waiter in told if meta.is_ready else ():
                self.strike(waiter, [meta.task_id])

        effects = self.waiting.feed_all(arrivals, now)

        self.act(effects, deliver=expected)
        assert sum(isinstance(each, Unsubscribe) for each in effects) <= 1

    def tick(self, now: float, stored_at: dict[str, float]) -> None:
        due = self.waiting.next_at()
        expired = [waiter for waiter, deadline in self.deadlines.items() if deadline <= now]
        for waiter in expired:
            for task_id in self.tasks_of(waiter):
                since = max(self.books[task_id][waiter][0], stored_at.get(task_id, inf), self.healthy_since)
                assert now - since <= POLL, f"{waiter} had time enough to be told of {task_id}"
            self.strike(waiter, self.tasks_of(waiter))
        self.memory.purge(now)

        effects = self.waiting.tick(now)

        if due is None or due > now:
            assert effects == []
        self.act(effects, expire=expired)
        following = self.waiting.next_at()
        assert following is None or following > now

    def forget(self, task_id: str) -> None:
        self.memory.take(task_id)
        self.last.pop(task_id, None)

        self.act(self.waiting.forget(task_id))

    # -- what is written down

    def tasks_of(self, waiter: str) -> list[str]:
        return [task_id for task_id, watching in self.books.items() if waiter in watching]

    def strike(self, waiter: str, struck: Iterable[str]) -> None:
        """Strike out one who waits no more."""
        for task_id in set(struck).intersection(self.tasks_of(waiter)):
            del self.books[task_id][waiter]
            if not self.books[task_id]:
                del self.books[task_id]
                self.last.pop(task_id, None)
                self.resyncing.discard(task_id)
        if not self.tasks_of(waiter):
            self.deadlines.pop(waiter, None)

    def act(
        self, effects: list[Effect], *, deliver: Iterable[Deliver] = (), expire: Iterable[str] = ()
    ) -> None:
        """Carry out effects; what is delivered, and who expires, is just what the books say."""
        assert Counter(each for each in effects if isinstance(each, Deliver)) == Counter(deliver)
        assert Counter(each.waiter for each in effects if isinstance(each, Expire)) == Counter(expire)
        for effect in effects:
            if isinstance(effect, Deliver | Expire):
                continue
            assert self.has_store
            assert self.link is not None
            named = set(effect.task_ids)
            assert len(named) == len(effect.task_ids) > 0
            if isinstance(effect, Read):
                assert named <= self.books.keys()
                self.link.reads.append(effect)
                continue
            if isinstance(effect, Subscribe):
                assert named.isdisjoint(self.link.asked)
                self.link.unconfirmed.update(named)
            else:
                assert named <= self.link.asked
            self.link.asked ^= named
            self.link.commands.append(effect)
        if self.has_store and self.link:
            assert self.link.asked == self.books.keys()


def length(meta: ResultMeta) -> int:
    """Return how long a message is: two failures have no room together, and one retry has none at all."""
    return {"FAILURE": 60, "RETRY": 120}.get(meta.status, 30)


class WaitingMachine(RuleBasedStateMachine):
    """Any interleaving of what can happen to lists that wait for the same tasks."""

    has_store = True

    def __init__(self) -> None:
        super().__init__()
        # A clock may begin at nothing, and then a deadline can be nothing, too.
        self.now = 0.0
        self.steps = 0
        self.store: dict[str, ResultMeta] = {}
        self.stored_at: dict[str, float] = {}
        self.notices: deque[ResultMeta] = deque()
        self.processes = [Process(has_store=self.has_store)]

    def of(self, number: int) -> Process:
        self.steps += 1
        return self.processes[number % len(self.processes)]

    def state(self, task_id: str, status: str) -> ResultMeta:
        """Return a state that is like no other."""
        self.steps += 1
        return ResultMeta(task_id, status, f"{task_id}:{self.steps}")

    def pump(self) -> None:
        """Let everything that is on its way arrive."""
        raise NotImplementedError

    def announce(self) -> None:
        """Let everything that was stored be told, or sent."""

    def finish(self, process: Process, task_id: str) -> None:
        """Let a task end that a process waits for, and tell nobody if it can be found all the same."""
        raise NotImplementedError

    def is_late(self, process: Process, task_id: str, since: int) -> bool:
        """Say whether a task has ended in a way that one who waits must know by now."""
        raise NotImplementedError

    # -- what can happen

    @initialize(is_up=st.booleans())
    def begin(self, is_up: bool) -> None:
        if is_up:
            self.processes[0].connect(self.now)

    @rule(number=processes, waiter=waiters, asked=some_ids, timeout=timeouts, peek=st.booleans())
    def wait(self, number: int, waiter: str, asked: list[str], timeout: float | None, peek: bool) -> None:
        self.of(number).wait(waiter, asked, self.now, timeout, peek=peek, step=self.steps)

    @precondition(lambda self: any(each.books for each in self.processes))
    @rule(number=processes, waiter=waiters, timeout=timeouts, peek=st.booleans())
    def join(self, number: int, waiter: str, timeout: float | None, peek: bool) -> None:
        """Wait for what is waited for already."""
        process = self.of(number)
        process.wait(waiter, list(process.books)[:1], self.now, timeout, peek=peek, step=self.steps)

    @precondition(lambda self: any(each.books for each in self.processes))
    @rule(number=processes, waiter=waiters, asked=st.none() | some_ids)
    def cancel(self, number: int, waiter: str, asked: list[str] | None) -> None:
        self.of(number).cancel(waiter, asked, self.now)

    @precondition(lambda self: any(each.books for each in self.processes))
    @rule(number=processes)
    def dismiss(self, number: int) -> None:
        self.of(number).dismiss()

    @rule(number=processes, waiter=waiters, task_id=task_ids)
    def cancel_and_wait_again(self, number: int, waiter: str, task_id: str) -> None:
        self.of(number).cancel(waiter, None, self.now)
        self.of(number).wait(waiter, [task_id], self.now, None, peek=False, step=self.steps)

    @precondition(lambda self: any(each.link for each in self.processes))
    @rule(number=processes, is_back=st.booleans())
    def cut(self, number: int, is_back: bool) -> None:
        process = self.of(number)
        if process.link:
            process.disconnect(self.now)
        if is_back:
            process.connect(self.now)

    @precondition(lambda self: not all(each.link for each in self.processes))
    @rule(number=processes)
    def reconnect(self, number: int) -> None:
        process = self.of(number)
        if process.link is None:
            process.connect(self.now)

    @rule(number=processes)
    def fork(self, number: int) -> None:
        parent = self.of(number)
        before = held(parent.waiting)
        if len(self.processes) == PROCESSES:
            self.processes.pop()
            return

        child = Process(has_store=self.has_store)

        self.processes.append(child)
        assert (held(child.waiting), child.waiting.next_at()) == (0, None)
        assert held(parent.waiting) == before

    @rule(number=processes, task_id=task_ids)
    def forget(self, number: int, task_id: str) -> None:
        self.of(number).forget(task_id)

    @rule(seconds=whiles, is_served=st.booleans())
    def pass_time(self, seconds: float, is_served: bool) -> None:
        """Let time pass with a far end that answers at once, or not at all."""
        end = self.now + seconds
        for process in self.processes:
            if process.link and not is_served:
                # Until then nobody can be told, and who has waited in vain is not at fault.
                process.healthy_since = end
        while True:
            if is_served:
                self.pump()
            due = [at for each in self.processes if (at := each.waiting.next_at()) is not None]
            if min(due, default=inf) > end:
                break
            assert min(due) >= self.now
            self.now = min(due)
            for process in self.processes:
                process.tick(self.now, self.stored_at)
        self.now = end
        for process in self.processes:
            process.tick(end, self.stored_at)

    @rule()
    def settle(self) -> None:
        """Let everything arrive, in no time: whoever waits for what has ended must know."""
        self.announce()
        self.pump()
        for process in self.processes:
            if process.link:
                if self.has_store and not process.stuck:
                    assert not process.resyncing
                    assert process.link.subscribed == process.books.keys()
                excused = process.missed | process.stuck
                for task_id in process.books.keys() - excused:
                    self.nobody_is_late(process, task_id)

    def nobody_is_late(self, process: Process, task_id: str) -> None:
        for waiter, (_, since) in process.books[task_id].items():
            assert not self.is_late(process, task_id, since), f"{waiter} was not told of {task_id}"

    # -- what holds after each of them

    @invariant()
    def each_list_says_what_the_books_say(self) -> None:
        for process in self.processes:
            waiting = process.waiting
            phase = "down" if not process.link else "resync" if process.resyncing else "up"
            assert waiting.phase == phase
            assert waiting.watched == len(process.books)
            assert waiting.waiters == len({each for watching in process.books.values() for each in watching})
            assert waiting.early == len(process.memory.kept) <= LIMIT
            assert waiting.overflowed == process.memory.overflowed
            assert list(waiting._early.states.values()) == process.memory.kept

    @invariant()
    def whoever_waits_is_read_for_again(self) -> None:
        for process in self.processes:
            if self.has_store and process.link and process.books:
                due = process.waiting.next_at()
                assert due is not None
                assert due <= self.now + POLL

    @invariant()
    def no_deadline_is_overslept(self) -> None:
        for process in self.processes:
            if process.deadlines:
                due = process.waiting.next_at()
                assert due is not None
                assert due <= min(process.deadlines.values())

    # -- what holds in the end

    def teardown(self) -> None:
        for process in self.processes:
            if process.link is None:
                process.connect(self.now)
        self.settle()
        # The same links, so that nothing but the polls makes up for what was lost.
        self.pass_time(POLL, is_served=True)
        for process in self.processes:
            for task_id in process.books:
                self.nobody_is_late(process, task_id)
        self.pass_time(200.0, is_served=True)
        for process in self.processes:
            assert not process.deadlines
            for task_id in list(process.books):
                self.finish(process, task_id)
        self.pass_time(max(POLL, AGE + 1), is_served=True)
        for process in self.processes:
            assert process.books == {}
            if process.stuck:
                process.disconnect(self.now)
            assert held(process.waiting) == 0
            assert process.waiting.next_at() is None


class StoreMachine(WaitingMachine):
    """With a store, which tells those who subscribe, and answers those who read."""

    @property
    def links(self) -> list[Link]:
        return [process.link for process in self.processes if process.link]

    def announce(self) -> None:
        while self.notices:
            self.tell(self.notices.popleft())

    def pump(self) -> None:
        for number, process in enumerate(self.processes):
            while (link := process.link) and (link.commands or link.messages or link.reads or link.answers):
                self.obey(number)
                self.answer(number)
                self.hear(number, times=9)
                self.drain(number)

    def is_late(self, _: Process, task_id: str, __: int) -> bool:
        return task_id in self.store and self.store[task_id].is_ready

    def finish(self, _: Process, task_id: str) -> None:
        self.set(task_id, "SUCCESS", "lost")

    @precondition(lambda self: any(each.books for each in self.processes))
    @rule(number=processes, fate=fates)
    def finish_one(self, number: int, fate: str) -> None:
        for task_id in list(self.of(number).books)[:1]:
            self.set(task_id, "SUCCESS", fate)

    @rule(task_id=task_ids, status=statuses, fate=fates)
    def set(self, task_id: str, status: str, fate: str) -> None:
        """Store a state, and have it told at once, by and by, or never."""
        is_awaited = any(task_id in process.books for process in self.processes)
        if is_awaited and task_id in self.store and self.store[task_id].is_ready:
            return
        # What has ended and is awaited by nobody is forgotten, and a new task has its name.
        meta = self.store[task_id] = self.state(task_id, status)
        self.stored_at[task_id] = self.now if meta.is_ready else inf
        if fate == "told later":
            self.notices.append(meta)
        elif fate == "told":
            self.tell(meta)
        else:
            self.drop(meta)

    def tell(self, meta: ResultMeta) -> None:
        """Tell a state to those who are subscribed at this moment."""
        for process in self.processes:
            if process.link and meta.task_id in process.link.subscribed:
                process.link.messages.append(meta)

    def drop(self, meta: ResultMeta) -> None:
        for process in self.processes if meta.is_ready else ():
            process.missed.add(meta.task_id)

    @precondition(lambda self: self.notices)
    @rule()
    def publish(self) -> None:
        self.tell(self.notices.popleft())

    @precondition(lambda self: self.notices)
    @rule()
    def drop_notice(self) -> None:
        self.drop(self.notices.popleft())

    @precondition(lambda self: self.store)
    @rule(task_id=task_ids)
    def dup(self, task_id: str) -> None:
        if task_id in self.store:
            self.notices.append(self.store[task_id])

    @precondition(lambda self: any(link.commands for link in self.links))
    @rule(number=processes, times=st.integers(1, 3))
    def obey(self, number: int, times: int = 1) -> None:
        """Let the far end carry out commands."""
        link = self.of(number).link
        for _ in range(min(times, len(link.commands)) if link else 0):
            assert link is not None
            command = link.commands.popleft()
            if isinstance(command, Subscribe):
                link.subscribed.update(command.task_ids)
                link.messages.append(command.task_ids)
            else:
                link.subscribed.difference_update(command.task_ids)

    @precondition(lambda self: any(link.reads for link in self.links))
    @rule(number=processes)
    def answer(self, number: int) -> None:
        """Let the far end carry out all reads."""
        link = self.of(number).link
        while link and link.reads:
            read = link.reads.popleft()
            link.answers.extend(self.store[each] for each in read.task_ids if each in self.store)

    @precondition(lambda self: any(link.messages for link in self.links))
    @rule(number=processes, times=st.integers(1, 3))
    def hear(self, number: int, times: int = 1) -> None:
        """Let messages and confirmations arrive, those messages together that come together."""
        process = self.of(number)
        metas: list[ResultMeta] = []
        for _ in range(min(times, len(process.link.messages)) if process.link else 0):
            assert process.link is not None
            message = process.link.messages.popleft()
            if isinstance(message, ResultMeta):
                metas.append(message)
            else:
                process.feed(metas, self.now)
                process.confirm(message, self.now)
                metas = []
        process.feed(metas, self.now)

    @precondition(lambda self: any(link.answers for link in self.links))
    @rule(number=processes)
    def drain(self, number: int) -> None:
        """Let all answers arrive."""
        process = self.of(number)
        if process.link and process.link.answers:
            answers = list(process.link.answers)
            process.link.answers.clear()
            process.feed(answers, self.now)

    @precondition(lambda self: any(link.messages for link in self.links))
    @rule(number=processes)
    def lose_confirmation(self, number: int) -> None:
        process = self.of(number)
        if process.link and process.link.messages:
            message = process.link.messages[0]
            if not isinstance(message, ResultMeta):
                process.stuck.update(message)
                process.link.messages.popleft()


class QueueMachine(WaitingMachine):
    """Without a store: every state comes once, by a queue, and again if it was not acknowledged."""

    has_store = False

    def pump(self) -> None:
        for number, process in enumerate(self.processes):
            while process.link and process.queue:
                self.publish(number)

    def is_late(self, process: Process, task_id: str, since: int) -> bool:
        return process.ended_at.get(task_id, -1) > since

    def finish(self, process: Process, task_id: str) -> None:
        self.set(self.processes.index(process), task_id, "SUCCESS")

    @rule(number=processes, task_id=task_ids, status=statuses)
    def set(self, number: int, task_id: str, status: str) -> None:
        """Send a state to the one who asked for it; a late one can come after the end."""
        process = self.of(number)
        meta = self.state(task_id, status)
        process.queue.append(meta)
        if meta.is_ready:
            process.ended_at[task_id] = self.steps

    @precondition(lambda self: any(each.queue for each in self.processes))
    @rule(number=processes)
    def publish(self, number: int) -> None:
        process = self.of(number)
        if process.link and process.queue:
            meta = process.queue.popleft()
            process.unacknowledged.append(meta)
            process.feed([meta], self.now)

    @precondition(lambda self: any(each.queue for each in self.processes))
    @rule(number=processes)
    def drain(self, number: int) -> None:
        """Let all that is in the queue arrive at once."""
        process = self.of(number)
        if process.link and process.queue:
            metas = list(process.queue)
            process.queue.clear()
            process.unacknowledged += metas
            process.feed(metas, self.now)

    @precondition(lambda self: any(each.unacknowledged for each in self.processes))
    @rule(number=processes)
    def acknowledge(self, number: int) -> None:
        self.of(number).unacknowledged.clear()

    @precondition(lambda self: any(each.unacknowledged for each in self.processes))
    @rule(number=processes)
    def dup(self, number: int) -> None:
        process = self.of(number)
        process.queue.extend(process.unacknowledged[-1:])

    @rule(number=processes, task_id=task_ids)
    def recall(self, number: int, task_id: str) -> None:
        process = self.of(number)
        expected = process.memory.get(task_id, self.now)

        recalled = process.waiting.recall(task_id, self.now)

        assert recalled == expected


TestWaitingWithAStore = StoreMachine.TestCase
TestWaitingWithoutAStore = QueueMachine.TestCase
TestWaitingWithAStore.settings = COSTLY
TestWaitingWithoutAStore.settings = COSTLY
