"""Waiting for results: the way from a store to whoever waits."""

from abc import ABC, abstractmethod
from asyncio import sleep, to_thread
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import finalize, ref

from celeriac.config import Settings
from celeriac.errors import CallerError, CeleriacError, ResultTimeout
from celeriac.model.result import ResultMeta
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.drainer import AsyncioDrainer, Drainer, TimeIsUp
from celeriac.node.result import AsyncResult, value_of
from celeriac.node.slot import LastingSlot

__all__ = ["AsyncBackendMixin"]

#: Thirty years: more than the system can wait is as good as for ever.
_LONGEST: Final = 1e9
#: What an event loop does at a time: a fraction of the milliseconds that its other tasks can spare.
_MOST_AT_ONCE: Final = 100
_T = TypeVar("_T")
#: More often than this is for machines that have nothing else to do.
_SHORTEST: Final = 0.01
#: How often ``on_interval`` is called unless said otherwise.
# Celery: the same, whatever ``interval`` says.
_INTERVAL: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of one wait."""

    #: Seconds; 0 means now, None indefinitely.
    timeout: float | None = None
    #: How often ``on_interval`` is called at least; each second, unless given.
    interval: float | None = None
    #: Gets each state that comes, in the thread, greenlet or task that waits.
    on_message: Callable[[ResultMeta], object] | None = None
    #: Called whenever something came, or an interval has passed.
    on_interval: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.on_interval is not None and self.interval is None:
            object.__setattr__(self, "interval", _INTERVAL)
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
    """Interface of a result store for results: registers, wakes and removes waiters."""

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
        """Return the current states of these tasks; raises ConnectionLost if they cannot be read."""

    @abstractmethod
    def may_look(self, timeout: float | None) -> bool:
        """Say whether :meth:`look` would look now."""

    @abstractmethod
    def look(self, task_ids: list[str], timeout: float | None) -> dict[str, ResultMeta] | None:
        """Return the current states of these tasks, for a wait of ``timeout`` seconds.

        None if the consumer should read them instead, which has a connection and reads many at once.
        """

    # -- results that nobody waits for yet

    def add_pending_result(self, result: AsyncResult) -> AsyncResult:
        """Watch for a result as long as the caller holds it; a wait is then a lookup."""
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

    def add_pending_results(self, results: Iterable[AsyncResult]) -> list[AsyncResult]:
        """Watch for several."""
        return [self.add_pending_result(result) for result in results]

    def remove_pending_result(self, result: AsyncResult) -> AsyncResult:
        """Watch no more."""
        slot = result.unwatch()
        if slot is not None:
            self.consumer.cancel_for(slot)
        return result

    # -- waiting

    def wait_for_pending(
        self,
        result: AsyncResult,
        callback: Callable[[str, Any], object] | None = None,
        propagate: bool = True,
        *,
        timeout: float | None = None,
        interval: float | None = None,
        no_ack: bool = True,  # noqa: ARG002 - Celery: passed by its callers; results are never acknowledged
        on_message: Callable[[ResultMeta], object] | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Any:
        """Wait until a task, or one before it in its chain, has ended; return its value, or raise its error.

        Of those before it only a failure counts: the task will then never run. ``callback`` gets the id and
        the value. The other arguments are those of :meth:`AsyncResult.get`.
        """
        end = result.known_end() or self._wait_for_end(
            result, _Options(timeout, interval, on_message, on_interval)
        )
        value = value_of(end, propagate=propagate)
        if callback is not None:
            callback(result.id, value)
        return value

    async def wait_for_pending_async(
        self,
        result: AsyncResult,
        callback: Callable[[str, Any], object] | None = None,
        propagate: bool = True,
        *,
        timeout: float | None = None,
        interval: float | None = None,
        no_ack: bool = True,  # noqa: ARG002 - as above
        on_message: Callable[[ResultMeta], object] | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Any:
        """Like :meth:`wait_for_pending`, in an event loop; a cancelled wait leaves nothing behind."""
        end = result.known_end() or await self._wait_for_end_async(
            result, _Options(timeout, interval, on_message, on_interval)
        )
        value = value_of(end, propagate=propagate)
        if callback is not None:
            callback(result.id, value)
        return value

    def iter_native(
        self,
        task_ids: Collection[str],
        *,
        timeout: float | None = None,
        interval: float | None = None,
        on_message: Callable[[ResultMeta], object] | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Iterator[tuple[str, ResultMeta]]:
        """Yield id and result of each task as it ends. None of them yields nothing."""
        options = _Options(timeout, interval, on_message, on_interval)
        try:
            for metas in self._drain(task_ids, options):
                for meta in metas:
                    if meta.is_ready:
                        yield meta.task_id, meta
        except TimeIsUp:
            raise self._late(f"some of {len(task_ids)} tasks", options) from None

    async def iter_native_async(
        self,
        task_ids: Collection[str],
        *,
        timeout: float | None = None,
        interval: float | None = None,
        on_message: Callable[[ResultMeta], object] | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> AsyncGenerator[tuple[str, ResultMeta]]:
        """Like :meth:`iter_native`, in an event loop."""
        options = _Options(timeout, interval, on_message, on_interval)
        drained = self._drain_async(task_ids, options)
        try:
            async with aclosing(drained):
                async for metas in drained:
                    for meta in metas:
                        if meta.is_ready:
                            yield meta.task_id, meta
        except TimeIsUp:
            raise self._late(f"some of {len(task_ids)} tasks", options) from None

    def _wait_for_end(self, result: AsyncResult, options: _Options) -> ResultMeta:
        try:
            for metas in self._drain(result.lineage(), options):
                ended = result.pick(metas)
                if ended is not None:
                    return ended
        except TimeIsUp:
            raise self._late(f"task {result.id}", options) from None
        raise CeleriacError(f"the wait for task {result.id} ended without a result")

    async def _wait_for_end_async(self, result: AsyncResult, options: _Options) -> ResultMeta:
        drained = self._drain_async(result.lineage(), options)
        try:
            async with aclosing(drained):
                async for metas in drained:
                    ended = result.pick(metas)
                    if ended is not None:
                        return ended
        except TimeIsUp:
            raise self._late(f"task {result.id}", options) from None
        raise CeleriacError(f"the wait for task {result.id} ended without a result")

    # -- the one way of waiting behind them

    def _drain(self, task_ids: Collection[str], options: _Options) -> Iterator[list[ResultMeta]]:
        deadline = options.deadline()
        ids = dict.fromkeys(task_ids)
        found = self.look(list(ids), options.timeout)
        known = found or {}
        self.consumer.show_found(known.values())
        yield options.tell(list(known.values()))
        rest = [task_id for task_id in ids if task_id not in known or not known[task_id].is_ready]
        if not rest:
            return
        left = options.left(deadline)
        drainer = self.drainer()
        if isinstance(drainer, AsyncioDrainer):
            raise CallerError(
                "cannot wait synchronously in an event loop; use await, async for or as_completed()"
            )
        slot = drainer.slot(rest, wants_all=options.on_message is not None)
        try:
            # Of the drainer: that of the backend is another one, should it be closed meanwhile.
            drainer.consumer.consume_from(slot, rest, deadline=deadline, peek=found is None)
            for _ in drainer.drain_events_until(slot, left, options.interval, options.on_interval):
                # Who looked knows some of it.
                yield options.tell([meta for meta in slot.take() if meta != known.get(meta.task_id)])
            _raise_again(slot.error)
        finally:
            if not slot.ready:
                # This may run in a finalizer, at any moment: nothing may be locked.
                drainer.consumer.drop(slot)

    async def _drain_async(
        self, task_ids: Collection[str], options: _Options
    ) -> AsyncGenerator[list[ResultMeta]]:
        deadline = options.deadline()
        ids = list(dict.fromkeys(task_ids))
        # In a thread, and by the consumer: the loop must not wait for a socket.
        found = (
            await to_thread(self.look, ids, options.timeout)
            if ids and self.may_look(options.timeout)
            else None
        )
        known = found or {}
        self.consumer.show_found(known.values())
        async for part in _in_parts(list(known.values())):
            yield options.tell(part)
        rest = [task_id for task_id in ids if task_id not in known or not known[task_id].is_ready]
        if not rest:
            return
        left = options.left(deadline)
        drainer = self.drainer()
        if not isinstance(drainer, AsyncioDrainer):
            raise CallerError(
                "cannot await a result with this result_drainer; set result_drainer to 'asyncio', or to "
                "None to choose the drainer automatically"
            )
        slot = drainer.slot(rest, wants_all=options.on_message is not None)
        drained = drainer.drain_events_async(slot, left, options.interval, options.on_interval)
        try:
            async for few in _in_parts(rest):
                drainer.consumer.consume_from(slot, few, deadline=deadline, peek=found is None)
            async with aclosing(drained):
                async for _ in drained:
                    # Who looked knows some of it.
                    news = [meta for meta in slot.take() if meta != known.get(meta.task_id)]
                    async for part in _in_parts(news):
                        yield options.tell(part)
            _raise_again(slot.error)
        finally:
            if not slot.ready:
                # This may run in a finalizer, at any moment: nothing may be locked.
                drainer.consumer.drop(slot)

    def _late(self, whose: str, options: _Options) -> ResultTimeout:
        text = f"no result of {whose} within {options.timeout:g} s"
        health = self.consumer.health()
        if health.phase == "up" or health.last_error is None:
            return ResultTimeout(text)
        return ResultTimeout(f"{text}; last error of the result connection: {health.last_error}")


async def _in_parts(whole: list[_T]) -> AsyncGenerator[list[_T]]:
    """Yield a long list in short parts, and let the loop's other tasks run between them."""
    for start in range(0, max(len(whole), 1), _MOST_AT_ONCE):
        if start:
            await sleep(0)
        yield whole[start : start + _MOST_AT_ONCE]


def _raise_again(error: Exception | None) -> None:
    # A new one each time: one exception raised in many threads would mix their traces.
    if error is not None:
        raise type(error)(str(error)) from error.__cause__ or error
