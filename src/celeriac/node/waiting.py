"""Waiting for results: the way from a store to whoever waits."""

from abc import ABC, abstractmethod
from asyncio import sleep, to_thread
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import finalize, ref

from celeriac.config import Settings
from celeriac.errors import CallerError, CeleriacError, ResultTimeout
from celeriac.model.result import ResultMeta
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.drainer import AsyncioDrainer, Drainer, TimeIsUp
from celeriac.node.slot import LastingSlot

if TYPE_CHECKING:
    from celeriac.node.result import AsyncResult

__all__ = ["AsyncBackendMixin", "Terms"]

#: Thirty years: more than the system can wait is as good as for ever.
_LONGEST: Final = 1e9
#: What an event loop does at a time: a fraction of the milliseconds that its other tasks can spare.
_MOST_AT_ONCE: Final = 100
_T = TypeVar("_T")
#: More often than this is for machines that have nothing else to do.
_SHORTEST: Final = 0.01


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms somebody waits."""

    #: Seconds; 0 means now, None for ever.
    timeout: float | None = None
    #: How often ``on_interval`` is called at least.
    interval: float | None = None
    #: Gets each state that comes, in the thread, greenlet or task that waits.
    on_message: Callable[[ResultMeta], object] | None = None
    #: Called whenever something came, or an interval has passed.
    on_interval: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        for name, least in (("timeout", 0.0), ("interval", _SHORTEST)):
            value = getattr(self, name)
            if value is None:
                continue
            if not value == value:  # noqa: PLR0124 - only NaN is not
                raise CallerError(f"{name} is {value}; give a number of seconds, or None")
            object.__setattr__(self, name, min(max(value, least), _LONGEST))

    def deadline(self) -> float | None:
        """Return when the time is up, if the wait begins now."""
        return None if self.timeout is None else monotonic() + self.timeout

    def left(self, deadline: float | None) -> float | None:
        """Return how long there is until a deadline; raises TimeIsUp when it has passed."""
        left = None if deadline is None else deadline - monotonic()
        if left is not None and left <= 0:
            raise TimeIsUp(f"no result within {self.timeout:g} s")
        return left

    def tell(self, metas: list[ResultMeta]) -> list[ResultMeta]:
        """Hand states to who wants to see them all, and return them."""
        if self.on_message is not None:
            for meta in metas:
                self.on_message(meta)
        return metas


class AsyncBackendMixin(ABC):
    """A store's face to results: who waits is put on the list, woken, and taken off it."""

    settings: Settings

    @property
    @abstractmethod
    def consumer(self) -> BaseResultConsumer:
        """The consumer of this process."""

    @abstractmethod
    def drainer(self) -> Drainer:
        """Return the drainer that is right where this is called from, draining."""

    @abstractmethod
    def read(self, task_ids: Sequence[str], *, timeout: float) -> dict[str, ResultMeta]:
        """Return what is known of these tasks now; raises ConnectionLost if that cannot be learned."""

    @abstractmethod
    def may_look(self, timeout: float | None) -> bool:
        """Say whether :meth:`look` would look now."""

    @abstractmethod
    def look(self, task_ids: list[str], timeout: float | None) -> dict[str, ResultMeta] | None:
        """Return what is known of these tasks, for who would wait ``timeout`` seconds for their ends.

        None if somebody else had better look: the consumer, which has a link and looks for many at once.
        """

    # -- results that nobody waits for yet

    def add_pending_result(self, result: "AsyncResult") -> "AsyncResult":
        """Watch for a result from now on, for as long as somebody holds it; a wait is then a look."""
        if not result.is_pending or result.is_watched:
            return result
        weak = ref(result)

        def receive(news: ResultMeta | Exception) -> None:
            held = weak()
            if held is not None:
                held.receive(news)

        consumer = self.drainer().consumer
        slot = LastingSlot(receive)
        result.watch(slot)
        finalize(result, consumer.drop, slot).atexit = False
        consumer.consume_from(slot, [result.id], peek=True)
        return result

    def add_pending_results(self, results: Iterable["AsyncResult"]) -> list["AsyncResult"]:
        """Watch for several."""
        return [self.add_pending_result(result) for result in results]

    def remove_pending_result(self, result: "AsyncResult") -> "AsyncResult":
        """Watch no more."""
        slot = result.unwatch()
        if slot is not None:
            self.consumer.cancel_for(slot)
        return result

    # -- waiting

    def wait_for_pending(
        self,
        result: "AsyncResult",
        terms: Terms = Terms(),  # noqa: B008 - it does not change
    ) -> ResultMeta:
        """Wait until a task, or one before it in its chain, has ended, and return how.

        Of those before it only a failure counts: the task will then never run.
        """
        try:
            for metas in self._drain(result.lineage(), terms):
                ended = result.pick(metas)
                if ended is not None:
                    return ended
        except TimeIsUp:
            raise self._late(f"task {result.id}", terms) from None
        raise CeleriacError(f"waiting for task {result.id} ended without its result")

    async def wait_for_pending_async(
        self,
        result: "AsyncResult",
        terms: Terms = Terms(),  # noqa: B008 - it does not change
    ) -> ResultMeta:
        """Do what :meth:`wait_for_pending` does, in an event loop; a cancelled wait leaves nothing behind."""
        drained = self._drain_async(result.lineage(), terms)
        try:
            async with aclosing(drained):
                async for metas in drained:
                    ended = result.pick(metas)
                    if ended is not None:
                        return ended
        except TimeIsUp:
            raise self._late(f"task {result.id}", terms) from None
        raise CeleriacError(f"waiting for task {result.id} ended without its result")

    def iter_native(
        self,
        task_ids: Collection[str],
        terms: Terms = Terms(),  # noqa: B008 - it does not change
    ) -> Iterator[tuple[str, ResultMeta]]:
        """Yield id and result of each task as it ends. None of them yields nothing."""
        try:
            for metas in self._drain(task_ids, terms):
                for meta in metas:
                    if meta.is_ready:
                        yield meta.task_id, meta
        except TimeIsUp:
            raise self._late(f"some of {len(task_ids)} tasks", terms) from None

    async def iter_native_async(
        self,
        task_ids: Collection[str],
        terms: Terms = Terms(),  # noqa: B008 - it does not change
    ) -> AsyncGenerator[tuple[str, ResultMeta]]:
        """Do what :meth:`iter_native` does, in an event loop."""
        drained = self._drain_async(task_ids, terms)
        try:
            async with aclosing(drained):
                async for metas in drained:
                    for meta in metas:
                        if meta.is_ready:
                            yield meta.task_id, meta
        except TimeIsUp:
            raise self._late(f"some of {len(task_ids)} tasks", terms) from None

    # -- the one way of waiting behind them

    def _drain(
        self,
        task_ids: Collection[str],
        terms: Terms,
    ) -> Iterator[list[ResultMeta]]:
        deadline = terms.deadline()
        ids = dict.fromkeys(task_ids)
        found = self.look(list(ids), terms.timeout)
        known = found or {}
        yield terms.tell(list(known.values()))
        rest = [task_id for task_id in ids if task_id not in known or not known[task_id].is_ready]
        if not rest:
            return
        left = terms.left(deadline)
        drainer = self.drainer()
        if isinstance(drainer, AsyncioDrainer):
            raise CallerError("an event loop cannot wait like this; use await, async for or as_completed()")
        slot = drainer.slot(rest, wants_all=terms.on_message is not None)
        try:
            # Of the drainer: that of the backend is another one, should it be closed meanwhile.
            drainer.consumer.consume_from(slot, rest, deadline=deadline, peek=found is None)
            for _ in drainer.drain_events_until(slot, left, terms.interval, terms.on_interval):
                # Who looked knows some of it.
                yield terms.tell([meta for meta in slot.take() if meta != known.get(meta.task_id)])
            _raise_again(slot.error)
        finally:
            if not slot.ready:
                # This may run in a finalizer, at any moment: nothing may be locked.
                drainer.consumer.drop(slot)

    async def _drain_async(
        self,
        task_ids: Collection[str],
        terms: Terms,
    ) -> AsyncGenerator[list[ResultMeta]]:
        deadline = terms.deadline()
        ids = list(dict.fromkeys(task_ids))
        # In a thread, and by the consumer: the loop must not wait for a socket.
        found = (
            await to_thread(self.look, ids, terms.timeout) if ids and self.may_look(terms.timeout) else None
        )
        known = found or {}
        async for part in _in_parts(list(known.values())):
            yield terms.tell(part)
        rest = [task_id for task_id in ids if task_id not in known or not known[task_id].is_ready]
        if not rest:
            return
        left = terms.left(deadline)
        drainer = self.drainer()
        if not isinstance(drainer, AsyncioDrainer):
            raise CallerError(
                "to await a result, set result_drainer to 'asyncio', or leave it to us with None"
            )
        slot = drainer.slot(rest, wants_all=terms.on_message is not None)
        drained = drainer.drain_events_async(slot, left, terms.interval, terms.on_interval)
        try:
            async for few in _in_parts(rest):
                drainer.consumer.consume_from(slot, few, deadline=deadline, peek=found is None)
            async with aclosing(drained):
                async for _ in drained:
                    # Who looked knows some of it.
                    news = [meta for meta in slot.take() if meta != known.get(meta.task_id)]
                    async for part in _in_parts(news):
                        yield terms.tell(part)
            _raise_again(slot.error)
        finally:
            if not slot.ready:
                # This may run in a finalizer, at any moment: nothing may be locked.
                drainer.consumer.drop(slot)

    def _late(self, whose: str, terms: Terms) -> ResultTimeout:
        text = f"no result of {whose} within {terms.timeout:g} s"
        health = self.consumer.health()
        if health.phase == "up" or health.last_error is None:
            return ResultTimeout(text)
        return ResultTimeout(f"{text}; the way to results is broken: {health.last_error}")


async def _in_parts(whole: list[_T]) -> AsyncGenerator[list[_T]]:
    """Yield a long list in short parts, and let the loop's other tasks run between them."""
    for start in range(0, max(len(whole), 1), _MOST_AT_ONCE):
        if start:
            await sleep(0)
        yield whole[start : start + _MOST_AT_ONCE]


def _raise_again(error: Exception | None) -> None:
    # A new one each time: one exception raised in many threads would mix their traces.
    if error is not None:
        raise type(error)(str(error)) from error
