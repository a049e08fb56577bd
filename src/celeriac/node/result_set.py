"""Many results at once."""

from asyncio import to_thread
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from celeriac.model.result import ResultMeta
from celeriac.model.states import FAILURE, PROPAGATE_STATES, SUCCESS
from celeriac.node.result import AsyncResult, value_of
from celeriac.runtime.environment import environment

if TYPE_CHECKING:
    from celeriac.node.backend import Backend

__all__ = ["Completed", "ResultSet"]


class _Options(TypedDict, total=False):
    """The options of a wait for several results, as :meth:`Backend.iter_native` takes them."""

    timeout: float | None
    interval: float | None
    on_message: Callable[[ResultMeta], object] | None
    on_interval: Callable[[], object] | None


class ResultSet:
    """Results that are waited for together, in the order they were added; an empty one is fine.

    ``for`` goes through them as they stand; ``async for`` and :meth:`as_completed` as they end.
    """

    def __init__(
        self,
        results: Iterable[AsyncResult] = (),
        *,
        backend: "Backend",
        id: str | None = None,  # noqa: A002 - the name Celery gave it
        parent: "AsyncResult | ResultSet | None" = None,
    ) -> None:
        #: The id of the group, if they are one, and what was before it in a chain.
        self.id = id
        self.parent = parent
        self._backend = backend
        # By id: a result that was added twice is waited for once.
        self._by_id: dict[str, AsyncResult] = {}
        self.update(results)

    @property
    def results(self) -> list[AsyncResult]:
        """The results in the set."""
        return list(self._by_id.values())

    def add(self, result: AsyncResult) -> None:
        """Add a result; one that is in the set already changes nothing."""
        self._by_id.setdefault(result.id, result)

    def update(self, results: Iterable[AsyncResult]) -> None:
        """Add results."""
        for result in results:
            self.add(result)

    def remove(self, result: AsyncResult) -> None:
        """Take a result out; KeyError if it is not in."""
        del self._by_id[result.id]

    def discard(self, result: AsyncResult) -> None:
        """Take a result out, if it is in."""
        self._by_id.pop(result.id, None)

    # -- waiting

    def join(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float | None = None,
        callback: Callable[[str, Any], object] | None = None,
        *,
        on_message: Callable[[ResultMeta], object] | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Any:
        """Wait for the end of all tasks, and return their results in the order of the set.

        ``timeout`` is for all of them together. With ``propagate`` the first failure is raised immediately.
        With ``callback`` each result is passed as ``callback(id, value)`` when it arrives, and an empty list
        is returned. Inside an event loop this method returns an awaitable.
        """
        gathered = _Gathered(self, propagate=propagate, callback=callback)
        options = _Options(timeout=timeout, interval=interval, on_message=on_message, on_interval=on_interval)
        if environment() == "asyncio":
            return self._join_async(gathered, **options)
        for task_id, meta in self._iter(**options):
            gathered.add(task_id, meta)
        return gathered.values()

    get = join
    join_native = join

    def __await__(self) -> Generator[Any, None, list[Any]]:
        gathered = _Gathered(self, propagate=True, callback=None)
        return self._join_async(gathered).__await__()

    async def _join_async(self, gathered: "_Gathered", **options: Unpack[_Options]) -> list[Any]:
        ended = self._iter_async(**options)
        async with aclosing(ended):
            async for task_id, meta in ended:
                gathered.add(task_id, meta)
        return gathered.values()

    def iter_native(
        self,
        timeout: float | None = None,
        interval: float | None = None,
        on_message: Callable[[ResultMeta], object] | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Iterator[tuple[str, ResultMeta]]:
        """Yield the id of each task and how it ended, as they end; nothing for an empty set."""
        return self._iter(timeout=timeout, interval=interval, on_message=on_message, on_interval=on_interval)

    def _iter(self, **options: Unpack[_Options]) -> Iterator[tuple[str, ResultMeta]]:
        awaited = _Awaited(self._by_id)
        yield from awaited.known
        if awaited.members:
            for task_id, meta in self._backend.iter_native(awaited.ids(), **options):
                yield from awaited.decide(task_id, meta)
                if not awaited.members:
                    return

    async def _iter_async(self, **options: Unpack[_Options]) -> AsyncGenerator[tuple[str, ResultMeta]]:
        awaited = _Awaited(self._by_id)
        for each in awaited.known:
            yield each
        if not awaited.members:
            return
        ended = self._backend.iter_native_async(awaited.ids(), **options)
        async with aclosing(ended):
            async for task_id, meta in ended:
                for each in awaited.decide(task_id, meta):
                    yield each
                if not awaited.members:
                    return

    def as_completed(self, timeout: float | None = None) -> "Completed":
        """Return the results as they end, for ``for`` and for ``async for``."""
        return Completed(self, timeout)

    def __aiter__(self) -> AsyncIterator[AsyncResult]:
        return aiter(self.as_completed())

    # -- what is known now

    def ready(self) -> bool:
        """Say whether all have ended."""
        return all(meta.is_ready for meta in self.metas())

    def waiting(self) -> bool:
        """Say whether one has not ended."""
        return not self.ready()

    def successful(self) -> bool:
        """Say whether all have ended well."""
        return all(meta.status == SUCCESS for meta in self.metas())

    def failed(self) -> bool:
        """Say whether one has failed."""
        return any(meta.status == FAILURE for meta in self.metas())

    def completed_count(self) -> int:
        """Return how many have ended well."""
        return sum(meta.status == SUCCESS for meta in self.metas())

    def metas(self) -> list[ResultMeta]:
        """Return the current state of each task, read with one request."""
        if environment() == "asyncio":
            return [result.meta for result in self]
        known = self._learn()
        return [known[result.id] for result in self]

    async def fetch(self) -> "ResultSet":
        """Read the current state of all tasks, without waiting for their ends."""
        await to_thread(self._learn)
        return self

    # -- the tasks themselves

    def forget(self) -> None:
        """Delete all results, here and where they are stored."""
        for result in self:
            result.forget()

    def revoke(self, *, terminate: bool = False, signal: str = "SIGTERM") -> None:
        """Ask all workers not to run these tasks, or to end them."""
        for result in self:
            result.revoke(terminate=terminate, signal=signal)

    def __iter__(self) -> Iterator[AsyncResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, index: int) -> AsyncResult:
        return self.results[index]

    def __contains__(self, result: object) -> bool:
        return isinstance(result, AsyncResult) and result.id in self._by_id

    def __repr__(self) -> str:
        return f"<ResultSet of {len(self)}{f', group {self.id}' if self.id else ''}>"

    def _learn(self) -> dict[str, ResultMeta]:
        known = {result.id: result.meta for result in self if not result.is_pending}
        known |= self._backend.get_task_metas([task_id for task_id in self._by_id if task_id not in known])
        for task_id, meta in known.items():
            self._by_id[task_id].receive(meta)
        return known


class Completed:
    """Results as they end."""

    def __init__(self, results: ResultSet, timeout: float | None) -> None:
        self._results = results
        self._by_id = {result.id: result for result in results}
        self._timeout = timeout

    def __iter__(self) -> Iterator[AsyncResult]:
        for task_id, _ in self._results._iter(timeout=self._timeout):  # noqa: SLF001 - a part of the set
            yield self._by_id[task_id]

    async def __aiter__(self) -> AsyncGenerator[AsyncResult]:
        ended = self._results._iter_async(timeout=self._timeout)  # noqa: SLF001
        async with aclosing(ended):
            async for task_id, _ in ended:
                yield self._by_id[task_id]


class _Awaited:
    """The members of a set whose ends are not known, and what will decide them."""

    def __init__(self, results: Mapping[str, AsyncResult]) -> None:
        #: The ends that are known.
        self.known: list[tuple[str, ResultMeta]] = []
        self.members: dict[str, AsyncResult] = {}
        #: The members that come after a task in a chain: should it fail, they will never run.
        self._after: dict[str, list[str]] = {}
        for task_id, result in results.items():
            meta = result.known_end()
            if meta is not None:
                self.known.append((task_id, meta))
                continue
            self.members[task_id] = result
            for ancestor in result.lineage()[1:]:
                self._after.setdefault(ancestor, []).append(task_id)

    def ids(self) -> list[str]:
        """Return whose ends are to be waited for."""
        return [*self.members, *self._after]

    def decide(self, task_id: str, meta: ResultMeta) -> list[tuple[str, ResultMeta]]:
        """Return the members whose ends are known by the end of a task, and await them no more."""
        decided = []
        member = self.members.pop(task_id, None)
        if member is not None:
            member.receive(meta)
            decided.append((task_id, meta))
        if meta.status in PROPAGATE_STATES:
            after = [each for each in self._after.get(task_id, ()) if self.members.pop(each, None)]
            decided += [(each, meta) for each in after]
        return decided


class _Gathered:
    """What the tasks of a set returned, so far."""

    def __init__(
        self, results: ResultSet, *, propagate: bool, callback: Callable[[str, Any], object] | None
    ) -> None:
        self._order = [result.id for result in results]
        self._propagate = propagate
        self._callback = callback
        self._values: dict[str, Any] = {}

    def add(self, task_id: str, meta: ResultMeta) -> None:
        """Take how a task ended; raise it if it failed and failures are to be raised."""
        value = value_of(meta, propagate=self._propagate)
        if self._callback is not None:
            self._callback(task_id, value)
        else:
            self._values[task_id] = value

    def values(self) -> list[Any]:
        """Return them in the order of the set."""
        return [] if self._callback is not None else [self._values[task_id] for task_id in self._order]
