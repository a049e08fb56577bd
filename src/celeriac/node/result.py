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
    """The result of a task, by the task's id; the task need not exist yet.

    In threads and greenlets ``get()`` blocks its caller. Inside an event loop it gives an
    awaitable, and ``await result`` is short for it; what is known without waiting (``state``, ``ready()``
    and the rest) is there after ``await result.fetch()``.
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
        """Wait until the task has ended, and return what it returned.

        Raises ResultTimeout after ``timeout`` seconds; 0 means now. If the task failed or was revoked,
        raises :class:`RemoteError`, or returns it with ``propagate=False``. ``on_message`` gets each
        state that comes; ``on_interval`` is called whenever something came or ``interval`` seconds (1) have
        passed; ``callback`` gets the id and the value. ``no_ack`` changes nothing: results are never
        acknowledged. Inside an event loop this gives an awaitable.
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
        """Learn what is known of the task now, without waiting for its end."""
        if self.is_pending:
            self.receive(await to_thread(self._backend.get_task_meta, self.id))
        return self

    def then(
        self,
        callback: "Callable[[AsyncResult], object]",
        on_error: Callable[[Exception], object] | None = None,
    ) -> "AsyncResult":
        """Call ``callback(result)`` once the task has ended, well or not.

        It runs beside the caller: in the event loop this was called in, else in a thread or greenlet for
        callbacks. ``on_error(error)`` is called instead if the end cannot be learned.
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
                f"what is known of task {self.id} must be read first, and an event loop cannot wait for "
                "that; await result.fetch(), then ask"
            )
        return self._meta

    @property
    def state(self) -> str:
        """The state of the task; PENDING if nothing is known of it, UNREADABLE if what is cannot be read."""
        meta = self.meta
        return "UNREADABLE" if meta.fault else meta.status or PENDING

    status = state

    @property
    def result(self) -> Any:
        """What the task returned or said of its progress; a :class:`RemoteError` if it failed."""
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
            raise CallerError(f"to revoke task {self.id}, make its result with app.AsyncResult(id)")
        self._control.revoke(self.id, terminate=terminate, signal=signal)

    # -- for the backend

    @property
    def is_pending(self) -> bool:
        """Whether the end of the task is not known here yet."""
        return self._meta is None or not self._meta.is_ready

    @property
    def is_watched(self) -> bool:
        """Whether the backend watches for it, though nobody waits."""
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
        """Return what is known to end a wait for it: its end, or the failure of one before it."""
        if self._meta is not None and self._meta.is_ready:
            return self._meta
        metas = (ancestor.known_end() for ancestor in self.ancestors())
        return next((meta for meta in metas if meta and meta.status in PROPAGATE_STATES), None)

    def lineage(self) -> list[str]:
        """Return the ids of the task and of all before it in its chain whose end is not known."""
        return [self.id, *(ancestor.id for ancestor in self.ancestors() if ancestor.is_pending)]

    def pick(self, metas: Sequence[ResultMeta]) -> ResultMeta | None:
        """Return what ends a wait for this result, out of what came; None if nothing does."""
        for meta in metas:
            if meta.task_id == self.id:
                self.receive(meta)
                if meta.is_ready:
                    return meta
            elif meta.status in PROPAGATE_STATES:
                return meta
        return None

    def receive(self, news: ResultMeta | Exception) -> None:
        """Learn how the task is, or ended; what was read before the end does not undo it."""
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
        error = ResultUnreadable(f"the result of task {meta.task_id} cannot be read: {meta.fault}")
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
    raise CallerError(f"the id of a task is a text of 1 to {_MAX_ID_BYTES} bytes, not {task_id!r:.80}")


def _is_in_loop() -> bool:
    return environment() == "asyncio"
