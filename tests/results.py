"""A store of results in this process, links to it that fail when a test says so, and a backend on them."""

import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from textwrap import dedent
from threading import Lock, RLock
from time import monotonic
from typing import Any, Self

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.result import Failure, ResultMeta
from celeriac.node.backend import Backend
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.result import AsyncResult
from celeriac.node.result_set import ResultSet
from celeriac.node.slot import Slot
from celeriac.programs.process import wait_until
from celeriac.runtime.base import Flag
from celeriac.runtime.threads import Threads
from celeriac.transport.result_link import Arrived, Confirmed, News

__all__ = [
    "NEVER",
    "PATIENCE",
    "SIZE",
    "Link",
    "Still",
    "Store",
    "StoreBackend",
    "failed",
    "meta",
    "quick",
    "run_program",
    "settled",
    "slot_for",
    "waiting",
]

#: Far more than needed, for a busy machine.
PATIENCE = 60.0
#: Settings by which nothing is tried again within a test.
NEVER = {"broker_retry_base": 3600.0, "broker_retry_cap": 3600.0}
#: How long every result is on the wire.
SIZE = 100
_RING, _LOST = object(), object()
_ROOT = Path(__file__).parents[1]


def meta(task_id: str = "a", status: str = "SUCCESS", result: object = 42, **fields: Any) -> ResultMeta:
    return ResultMeta(task_id, status, result, **fields)


def failed(task_id: str = "a", text: str = "no") -> ResultMeta:
    return ResultMeta(task_id, "FAILURE", Failure("ValueError", (text,), "builtins"), traceback="Traceback")


def quick(**settings: Any) -> Settings:
    """Return settings with short waits, so that who waits for a link to be back does not wait for long."""
    return Settings(**{"broker_retry_base": 0.001, "broker_retry_cap": 0.01, **settings})


def slot_for(*task_ids: str, wants_all: bool = False) -> Slot:
    """Return a slot for a thread that waits for these tasks."""
    return Slot(Threads().flag(), task_ids, wants_all=wants_all)


def settled(condition: Callable[[], object]) -> bool:
    """Wait until something holds; say whether it came to hold."""
    return wait_until(lambda: bool(condition()), patience=PATIENCE)


def run_program(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own to its end, and return how it ended and what it printed.

    For what can be done to a process but once: patching, forking, ending.
    """
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", dedent(code), *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    print(done.stdout, done.stderr)  # pytest shows it if the test failed
    return done


class Store:
    """Where results are kept and told of, or a queue of them if it is no store.

    It is used by any number of threads. What goes wrong, and when, is for the test to say.
    """

    def __init__(self, *, has_store: bool = True) -> None:
        self.has_store = has_store
        #: Whether confirmations of subscriptions, and the subscriptions themselves, are held back.
        self.holds_confirmations = False
        #: Whether answers to reads are held back; they tell what was stored when it was asked.
        self.holds_answers = False
        #: Whether nobody is told of what is stored.
        self.drops_notices = False
        #: How often each is told.
        self.copies = 1
        #: Whether whoever opens a link is refused.
        self.refuses = False
        #: What the next calls of a name raise, one each.
        self.faults: dict[str, deque[BaseException]] = {}
        #: What is called before each call of a name.
        self.before: dict[str, Callable[[], object]] = {}
        #: How often each call was made, of what, and how long each wait was to be.
        self.asked: Counter[str] = Counter()
        self.log: list[tuple[str, tuple[str, ...]]] = []
        self.waits: deque[float] = deque(maxlen=1000)
        #: Calls that came while another thread was at the same link.
        self.intrusions: list[str] = []
        self._mutex = RLock()
        self._is_up = True
        self._stored: dict[str, ResultMeta] = {}
        self._backlog: deque[News] = deque()
        self._links: list[Link] = []

    # -- what a test does to it

    def put(self, *metas: ResultMeta) -> None:
        """Store results, and tell who wants to know."""
        with self._mutex:
            for each in metas:
                self._stored[each.task_id] = each
                if self.drops_notices:
                    continue
                for _ in range(self.copies):
                    self._tell(each)

    def finish(self, *task_ids: str) -> None:
        """Store a success for each task: what it returned is its id."""
        self.put(*(meta(task_id, result=task_id) for task_id in task_ids))

    def cut(self) -> None:
        """Lose every link; new ones can be made at once."""
        with self._mutex:
            for link in self._links:
                link.lose()
            self._links.clear()

    def stop(self) -> None:
        """Go away: lose every link, and let none be made until :meth:`start`."""
        with self._mutex:
            self._is_up = False
            self.cut()

    def start(self) -> None:
        with self._mutex:
            self._is_up = True

    def fail(self, call: str, error: BaseException, *, times: int = 1) -> None:
        """Have the next calls of a name raise."""
        with self._mutex:
            self.faults.setdefault(call, deque()).extend([error] * times)

    def release(self) -> None:
        """Let go what was held back, and hold no more."""
        with self._mutex:
            self.holds_confirmations = self.holds_answers = False
            for link in self._links:
                link.release()

    # -- what it is at

    @property
    def subscribed(self) -> set[str]:
        """The tasks that some link is told of."""
        with self._mutex:
            return {task_id for link in self._links for task_id in link.told_of}

    @property
    def open_links(self) -> int:
        with self._mutex:
            return len(self._links)

    def link(self) -> "Link":
        """Return a link, not yet open."""
        return Link(self)

    def look(self, task_ids: Sequence[str]) -> dict[str, ResultMeta]:
        """Return what is stored of these tasks; raises ConnectionLost while it is away."""
        with self.called("look", task_ids):
            self.check()
            return {task_id: self._stored[task_id] for task_id in task_ids if task_id in self._stored}

    def write(self, stored: ResultMeta) -> bool:
        """Store a result, as a worker does; False if a success is there already."""
        with self.called("write", [stored.task_id]):
            self.check()
            known = self._stored.get(stored.task_id)
            if known is not None and known.status == "SUCCESS":
                return False
            self.put(stored)
            return True

    def remove(self, task_id: str) -> None:
        with self.called("remove", [task_id]):
            self.check()
            self._stored.pop(task_id, None)

    # -- for links

    @contextmanager
    def called(self, name: str, task_ids: Iterable[str] = ()) -> Iterator[None]:
        """Note a call, and let go wrong in it what is to go wrong."""
        before = self.before.get(name)
        if before is not None:
            before()
        with self._mutex:
            self.asked[name] += 1
            self.log.append((name, tuple(task_ids)))
            faults = self.faults.get(name)
            if faults:
                raise faults.popleft()
            yield

    def check(self) -> None:
        if not self._is_up:
            raise ConnectionLost("the store is away")
        if self.refuses:
            raise AccessRefused("access refused by the store")

    def attach(self, link: "Link") -> None:
        with self._mutex:
            self._links.append(link)
            while self._backlog:
                link.inbox.put(self._backlog.popleft())

    def detach(self, link: "Link", untaken: Iterable[News] = ()) -> None:
        with self._mutex:
            if link in self._links:
                self._links.remove(link)
            if not self.has_store:
                self._backlog.extend(untaken)

    def _tell(self, told: ResultMeta) -> None:
        news = Arrived(told, SIZE)
        if self.has_store:
            for link in self._links:
                if told.task_id in link.told_of:
                    link.inbox.put(news)
        elif self._links:
            self._links[-1].inbox.put(news)
        else:
            self._backlog.append(news)


class Link:
    """A link to a store in this process. It notes whether more than one thread is at it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        #: What comes. Whoever puts something in is never made to wait, not even a finalizer.
        self.inbox: SimpleQueue[object] = SimpleQueue()
        self.told_of: set[str] = set()
        self._held: list[News] = []
        self._is_open = self._is_lost = False
        self._user = Lock()

    @property
    def address(self) -> str:
        return "store://test"

    @property
    def has_store(self) -> bool:
        return self.store.has_store

    def open(self) -> None:
        with self._used("open", is_open=False):
            self.store.check()
            self._is_open = True
            self.store.attach(self)

    def subscribe(self, task_ids: Sequence[str]) -> None:
        with self._used("subscribe", task_ids):
            confirmed = Confirmed(tuple(task_ids))
            if self.store.holds_confirmations:
                self._held.append(confirmed)
            else:
                self._confirm(confirmed)

    def unsubscribe(self, task_ids: Sequence[str]) -> None:
        with self._used("unsubscribe", task_ids):
            self.told_of.difference_update(task_ids)

    def read(self, task_ids: Sequence[str]) -> None:
        with self._used("read", task_ids):
            stored = self.store._stored
            answers = [Arrived(stored[task_id], SIZE) for task_id in task_ids if task_id in stored]
            if self.store.holds_answers:
                self._held += answers
            else:
                for answer in answers:
                    self.inbox.put(answer)

    def drain(self, timeout: float) -> list[News]:
        with self._used("drain"):
            self.store.waits.append(timeout)
        with self._alone("drain"):
            return self._drain(monotonic() + timeout)

    def interrupt(self) -> None:
        self.inbox.put(_RING)
        self.store.before.get("interrupt", bool)()

    def close(self) -> None:
        self.store.asked["close"] += 1
        self._is_open = False
        self.store.detach(self, self._untaken())

    def delete(self) -> None:
        with self.store.called("delete"):
            self.close()

    def clone(self) -> Self:
        with self.store.called("clone"):
            return type(self)(self.store)

    # -- for the store

    def lose(self) -> None:
        self._is_lost = True
        self.inbox.put(_LOST)

    def release(self) -> None:
        held, self._held = self._held, []
        for news in held:
            if isinstance(news, Confirmed):
                self._confirm(news)
            else:
                self.inbox.put(news)

    def _confirm(self, confirmed: Confirmed) -> None:
        self.told_of.update(confirmed.task_ids)
        self.inbox.put(confirmed)

    def _drain(self, deadline: float) -> list[News]:
        news: list[News] = []
        is_rung = False
        while True:
            try:
                wait = 0.0 if news or is_rung else max(0.0, deadline - monotonic())
                came = self.inbox.get(timeout=wait) if wait else self.inbox.get_nowait()
            except Empty:
                return news
            if isinstance(came, Arrived | Confirmed):
                news.append(came)
            is_rung = is_rung or came is _RING
            if came is _LOST:
                if news:
                    self.inbox.put(_LOST)  # what came before is told first
                    return news
                raise ConnectionLost("the link was cut")

    def _untaken(self) -> list[News]:
        left: list[News] = []
        while not self.inbox.empty():
            came = self.inbox.get()
            if isinstance(came, Arrived):
                left.append(came)
        return left

    @contextmanager
    def _used(self, name: str, task_ids: Iterable[str] = (), *, is_open: bool = True) -> Iterator[None]:
        with self._alone(name), self.store.called(name, task_ids):
            if self._is_lost or (is_open and not self._is_open):
                raise ConnectionLost("the link is not open")
            yield

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        is_alone = self._user.acquire(blocking=False)
        if not is_alone:
            self.store.intrusions.append(name)
        try:
            yield
        finally:
            if is_alone:
                self._user.release()


class StoreBackend(Backend):
    """A backend on a store in this process."""

    def __init__(self, store: Store | None = None, **settings: Any) -> None:
        super().__init__(quick(**settings))
        self.store = store or Store()

    def result(self, task_id: str = "a", parent: AsyncResult | None = None) -> AsyncResult:
        return AsyncResult(task_id, backend=self, parent=parent)

    def results(self, *task_ids: str) -> ResultSet:
        return ResultSet([self.result(task_id) for task_id in task_ids], backend=self)

    def read(self, task_ids: Sequence[str], *, timeout: float) -> dict[str, ResultMeta]:
        if self.store.has_store:
            if timeout <= 0:
                raise ConnectionLost("the store did not answer in time")
            return self.store.look(task_ids)
        self.consumer.wait_until_up(self.drainer().runtime.flag(), timeout)
        found = {task_id: self.consumer.recall(task_id) for task_id in task_ids}
        return {task_id: known for task_id, known in found.items() if known is not None}

    def forget(self, task_id: str) -> None:
        self.store.remove(task_id)
        self.consumer.forget(task_id)

    def _new_link(self) -> Link:
        return self.store.link()

    def _write(self, meta: ResultMeta, *, reply_to: str, correlation_id: str, timeout: float) -> bool:  # noqa: ARG002
        return self.store.write(meta)


class Still:
    """A runtime where nothing runs by itself: what is spawned is there to be looked at."""

    def __init__(self, flag: Callable[[], Flag] | None = None) -> None:
        self.spawned: list[Callable[[], object]] = []
        self._flag = flag

    def flag(self) -> Flag:
        return Threads().flag() if self._flag is None else self._flag()

    def spawn(self, run: Callable[[], object], *, name: str) -> "Still":  # noqa: ARG002
        self.spawned.append(run)
        return self

    def join(self, timeout: float | None = None) -> None:
        """Return at once: nothing was running."""


@contextmanager
def waiting(consumer: BaseResultConsumer, *waits: Callable[[], Any]) -> Iterator[list["Future[Any]"]]:
    """Have so many wait, each in a thread; the block begins once all are on the list."""
    before = consumer.health().waiters
    with ThreadPoolExecutor(len(waits)) as pool:
        futures = [pool.submit(wait) for wait in waits]
        assert settled(lambda: consumer.health().waiters == before + len(waits) or _ended(futures))
        yield futures


def _ended(futures: list["Future[Any]"]) -> bool:
    return all(future.done() for future in futures)
