"""A task's result, wherever the task runs."""

from asyncio import to_thread
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from celeriac.errors import CallerError, CeleriacError, RemoteError, ResultUnreadable, TaskRevoked
from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.model.states import EXCEPTION_STATES, FAILURE, PENDING, PROPAGATE_STATES, REVOKED, SUCCESS
from celeriac.node.slot import LastingSlot
from celeriac.runtime.environment import environment

if TYPE_CHECKING:
    from celeriac.node.backend import Backend
    from celeriac.node.control import Control
    from celeriac.node.result_set import ResultSet

__all__ = ["AsyncResult", "value_of"]

#: Celery's ids have 36 characters; people's own are seldom much longer.
_MAX_ID_BYTES: Final = 1024


class AsyncResult:
    """The result of a task, by the task id; the task need not exist yet.

    In threads and greenlets ``get()`` blocks its caller. Inside an event loop it returns an
    awaitable, and ``await result`` is short for it; ``state``, ``ready()`` and the other properties are
    available after ``await result.fetch()``.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the name Celery gave it
        *,
        backend: "Backend",
        control: "Control | None" = None,
        parent: "AsyncResult | ResultSet | None" = None,
    ) -> None:
        self.id = _checked(id)
        #: The result of the task, or the results of the group, before it in a chain.
        self.parent = parent
        self._backend = backend
        self._control = control
        self._meta: ResultMeta | None = None
        self._slot: LastingSlot | None = None

    # -- waiting

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float | None = None,
        on_message: Callable[[ResultMeta], object] | None = None,
        *,
        on_interval: Callable[[], object] | None = None,
        callback: Callable[[str, Any], object] | None = None,
        no_ack: bool = True,
    ) -> Any:
        """Wait for the end of the task, and return its result.

        Raises ResultTimeout after ``timeout`` seconds; 0 checks once. If the task failed or was revoked,
        raises :class:`RemoteError`, or returns it with ``propagate=False``. ``on_message`` gets each received
        state; ``on_interval`` is called after each message and every ``interval`` seconds (default 1);
        ``callback`` gets the id and the value. ``no_ack`` has no effect: results are never acknowledged.
        Inside an event loop this method returns an awaitable.
        """
        wait = self._backend.wait_for_pending_async if _is_in_loop() else self._backend.wait_for_pending
        return wait(
            self,
            callback=callback,
            propagate=propagate,
            timeout=timeout,
            interval=interval,
            no_ack=no_ack,
            on_message=on_message,
            on_interval=on_interval,
        )

    wait = get

    def __await__(self) -> Generator[Any, None, Any]:
        return self._backend.wait_for_pending_async(self).__await__()

    async def fetch(self) -> "AsyncResult":
        """Read the current state of the task, without waiting for its end."""
        if self.is_pending:
            self.receive(await to_thread(self._backend.get_task_meta, self.id))
        return self

    def then(
        self,
        callback: "Callable[[AsyncResult], object]",
        on_error: Callable[[Exception], object] | None = None,
    ) -> "AsyncResult":
        """Call ``callback(result)`` after the task has ended, with success or failure.

        The callback runs in the current event loop, or in a thread or greenlet for callbacks.
        ``on_error(error)`` is called instead if the end cannot be read.
        """
        drainer = self._backend.drainer()
        call = drainer.caller()

        def receive(news: ResultMeta | Exception) -> None:
            self.receive(news)
            if isinstance(news, ResultMeta):
                call(partial(callback, self))
            elif on_error is not None:
                call(partial(on_error, news))

        if not self.is_pending:
            call(partial(callback, self))
        else:
            # Held by the consumer until the end, and the result with it.
            drainer.consumer.consume_from(LastingSlot(receive), [self.id], peek=True)
        return self

    # -- what is known now

    @property
    def meta(self) -> ResultMeta:
        """Everything that is known of the task."""
        if self.is_pending and not _is_in_loop():
            self.receive(self._backend.get_task_meta(self.id))
        if self._meta is None:
            raise CallerError(
                f"the result of task {self.id} is not loaded, and cannot be loaded synchronously in an "
                "event loop; call await result.fetch() first"
            )
        return self._meta

    @property
    def state(self) -> str:
        """The state of the task; PENDING if unknown, UNREADABLE if the stored result cannot be read."""
        meta = self.meta
        return "UNREADABLE" if meta.fault else meta.status or PENDING

    status = state

    @property
    def result(self) -> Any:
        """The return value or the progress of the task; a :class:`RemoteError` if it failed."""
        return value_of(self.meta, propagate=False)

    info = result

    @property
    def traceback(self) -> str | None:
        """Where the task failed, as text."""
        return self.meta.traceback

    @property
    def date_done(self) -> str | None:
        """When the task ended, as ISO 8601."""
        return self.meta.date_done

    @property
    def children(self) -> "list[AsyncResult | ResultSet]":
        """The results of the tasks and groups that the task started."""
        return [self._from_tree(tree) for tree in self.meta.children]

    def ready(self) -> bool:
        """Say whether the task has ended."""
        return self.meta.is_ready

    def successful(self) -> bool:
        """Say whether the task has ended well."""
        return self.meta.status == SUCCESS

    def failed(self) -> bool:
        """Say whether the task has failed."""
        return self.meta.status == FAILURE

    # -- the task itself

    def forget(self) -> None:
        """Delete the result, here and where it is stored."""
        self._backend.remove_pending_result(self)
        self._meta = None
        self._backend.forget(self.id)

    def revoke(self, *, terminate: bool = False, signal: str = "SIGTERM") -> None:
        """Ask all workers not to run the task, or to end it."""
        if self._control is None:
            raise CallerError(
                f"cannot revoke task {self.id} with this result: create the result with app.AsyncResult(id)"
            )
        self._control.revoke(self.id, terminate=terminate, signal=signal)

    # -- for the backend

    @property
    def is_pending(self) -> bool:
        """Whether the end of the task is not known here yet."""
        return self._meta is None or not self._meta.is_ready

    @property
    def is_watched(self) -> bool:
        """Whether the backend watches the task without a waiter."""
        return self._slot is not None

    def ancestors(self) -> "Iterator[AsyncResult]":
        """Yield the results of all tasks before it in its chain, the nearest first."""
        parent = self.parent
        while parent is not None:
            if isinstance(parent, AsyncResult):
                yield parent
            else:
                yield from parent
            parent = parent.parent

    def known_end(self) -> ResultMeta | None:
        """Return the known end of a wait: the end of the task, or the failure of an earlier one."""
        if self._meta is not None and self._meta.is_ready:
            return self._meta
        metas = (ancestor.known_end() for ancestor in self.ancestors())
        return next((meta for meta in metas if meta and meta.status in PROPAGATE_STATES), None)

    def lineage(self) -> list[str]:
        """Return the ids of the task and of all before it in its chain whose end is not known."""
        return [self.id, *(ancestor.id for ancestor in self.ancestors() if ancestor.is_pending)]

    def pick(self, metas: Sequence[ResultMeta]) -> ResultMeta | None:
        """Return the state that ends a wait for this result; None if there is none."""
        for meta in metas:
            if meta.task_id == self.id:
                self.receive(meta)
                if meta.is_ready:
                    return meta
            elif meta.status in PROPAGATE_STATES:
                return meta
        return None

    def receive(self, news: ResultMeta | Exception) -> None:
        """Update the state of the task; an earlier state does not override its end."""
        if isinstance(news, ResultMeta) and (news.is_ready or self.is_pending):
            self._meta = news

    def watch(self, slot: LastingSlot) -> None:
        """Keep the slot that watches for this result."""
        self._slot = slot

    def unwatch(self) -> LastingSlot | None:
        """Give up the slot that watches for this result, if there is one."""
        slot, self._slot = self._slot, None
        return slot

    def _from_tree(self, tree: ResultTree) -> "AsyncResult | ResultSet":
        from celeriac.node.result_set import ResultSet  # noqa: PLC0415 - a set is made of results

        parent = None if tree.parent is None else self._from_tree(tree.parent)
        if tree.members is None:
            return AsyncResult(tree.id, backend=self._backend, control=self._control, parent=parent)
        results = ResultSet(backend=self._backend, id=tree.id, parent=parent)
        for member in tree.members:
            made = self._from_tree(member)
            # A group in a group is waited for as its tasks.
            results.update([made] if isinstance(made, AsyncResult) else made)
        return results

    def __repr__(self) -> str:
        return f"<AsyncResult {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def value_of(meta: ResultMeta, *, propagate: bool) -> Any:
    """Return what a task returned; raise why it has not, or return that too."""
    error: CeleriacError
    if meta.fault:
        error = ResultUnreadable(f"cannot read the result of task {meta.task_id}: {meta.fault}")
    elif meta.status in EXCEPTION_STATES:
        failure = meta.result if isinstance(meta.result, Failure) else Failure(meta.status)
        kind = TaskRevoked if meta.status == REVOKED else RemoteError
        error = kind(
            f"task {meta.task_id}: {failure}",
            task_id=meta.task_id,
            exc_type=failure.exc_type,
            exc_module=failure.exc_module,
            exc_args=failure.exc_args,
            traceback=meta.traceback,
        )
    else:
        return meta.result
    if propagate and (meta.fault or meta.status in PROPAGATE_STATES):
        raise error
    return error


def _checked(task_id: object) -> str:
    try:
        if isinstance(task_id, str) and 0 < len(task_id.encode()) <= _MAX_ID_BYTES:
            return task_id
    except UnicodeEncodeError:
        pass  # no broker can spell it
    raise CallerError(f"task ids are strings of 1 to {_MAX_ID_BYTES} bytes, not {task_id!r:.80}")


def _is_in_loop() -> bool:
    return environment() == "asyncio"
