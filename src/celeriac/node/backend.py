"""Result backends: where results are kept, and whose link brings them."""

import atexit
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakSet, finalize

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.errors import CallerError, ConnectionLost, ImproperlyConfigured, PeerError
from celeriac.masking import sanitize_url
from celeriac.model.chord import ChordEnd, ChordPart, Gathered
from celeriac.model.result import Json, ResultMeta, ResultTree, StoredResult
from celeriac.model.states import EXCEPTION_STATES, FAILURE, PENDING, READY_STATES, SUCCESS
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.drain_health import Health
from celeriac.node.drainer import Drainer, drainer_class
from celeriac.node.per_process import PerProcess
from celeriac.node.waiting import AsyncBackendMixin
from celeriac.transport.base import Connection
from celeriac.transport.result_link import ResultLink
from celeriac.wire.chord import body_ids, chord_error, join
from celeriac.wire.result import failure_of

__all__ = ["Backend", "backend_for"]

_T = TypeVar("_T")

#: How long storing a result is tried: longer than a broker takes to restart.
_STORE_PATIENCE: Final = 60.0

#: How long "now" may take: one question and its answer.
_NOW: Final = 1.0
#: How many look for themselves at a time, each over a link of its own.
_LOOKERS: Final = 4


class Backend(AsyncBackendMixin):
    """Where results are kept. Threads and greenlets may share one; a forked child begins anew in it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._consumer_class = BaseResultConsumer
        self._running = PerProcess(self._begin)
        _open_backends.add(self)

    # -- what a kind of backend has to say

    @abstractmethod
    def _new_link(self) -> ResultLink:
        """Return a link over which results come."""

    @abstractmethod
    def _write(self, meta: ResultMeta, *, reply_to: str, correlation_id: str, timeout: float) -> bool:
        """Store a result, or raise ConnectionLost; return whether it is there now."""

    def _write_many(self, results: Sequence[StoredResult], *, timeout: float) -> None:
        """Store results, or raise ConnectionLost; those that are stored by then will be stored again.

        What cannot be spelled is raised as CallerError once the others are stored.
        """
        deadline = monotonic() + timeout
        unspellable: CallerError | None = None
        for meta, reply_to, correlation_id in results:
            left = max(deadline - monotonic(), 0.0)
            try:
                self._write(
                    meta, reply_to=reply_to, correlation_id=correlation_id or meta.task_id, timeout=left
                )
            except CallerError as error:
                unspellable = unspellable or error
        if unspellable is not None:
            raise unspellable

    def _end_part(self, part: ChordPart, *, timeout: float) -> Gathered | None:  # noqa: ARG002
        """Count a part, or raise ConnectionLost; return all of them if it was the last."""
        raise _no_chords()

    def _close_chord(self, part: ChordPart, *, timeout: float) -> None:  # noqa: ARG002
        """Forget the group of a part that was the last, or raise ConnectionLost."""
        raise _no_chords()

    @abstractmethod
    def forget(self, task_id: str) -> None:
        """Delete what is stored of a task."""

    # -- reading

    def may_look(self, timeout: float | None) -> bool:
        """Say whether :meth:`look` would look now."""
        if timeout is not None and timeout <= 0:
            return True
        running = self._running.get()
        # Where nothing is stored the consumer knows all there is.
        is_good = running.consumer.has_store and not running.consumer.is_down
        return is_good and len(running.turns) > 0

    def look(self, task_ids: list[str], timeout: float | None) -> dict[str, ResultMeta] | None:
        """Return what is known of these tasks: most results that are asked for are there already."""
        if timeout is not None and timeout <= 0:
            return self._looked(task_ids, _NOW)
        running = self._running.get()
        if not self.may_look(timeout):
            return None
        try:
            running.turns.pop()
        except IndexError:
            return None
        try:
            return self._looked(task_ids, timeout)
        finally:
            running.turns.append(None)

    def _looked(self, task_ids: list[str], timeout: float | None) -> dict[str, ResultMeta]:
        longest = self.settings.broker_connection_timeout
        try:
            return self.read(
                task_ids, timeout=longest if timeout is None else min(longest, max(timeout, _NOW))
            )
        except ConnectionLost:
            return {}  # the consumer comes back by itself, and looks then

    def get_task_meta(self, task_id: str) -> ResultMeta:
        """Return what is known of a task now; PENDING if nothing is."""
        return self.get_task_metas([task_id])[task_id]

    def get_task_metas(self, task_ids: Sequence[str]) -> dict[str, ResultMeta]:
        """Return what is known of several tasks now, with one question."""
        found = self.read(task_ids, timeout=self.settings.broker_connection_timeout)
        return {task_id: found.get(task_id) or ResultMeta(task_id, PENDING) for task_id in task_ids}

    # -- writing

    def store_result(
        self,
        task_id: str,
        result: object,
        state: str = SUCCESS,
        *,
        traceback: str | None = None,
        children: Sequence[ResultTree] = (),
        parent_id: str | None = None,
        group_id: str | None = None,
        reply_to: str = "",
        correlation_id: str = "",
        timeout: float = _STORE_PATIENCE,
    ) -> bool:
        """Store how a task is or how it ended, so that Celery's clients can read it too.

        In RETRY, FAILURE and REVOKED ``result`` is the exception, or a ``Failure``. Tried again for
        ``timeout`` seconds while the store is away; then ConnectionLost is raised, so what returns is
        stored. Returns False if nothing was: a stored SUCCESS stands, and with ``rpc://`` somebody must
        be named to send it to.
        """
        if state in EXCEPTION_STATES and isinstance(result, BaseException):
            result = failure_of(result)
        meta = ResultMeta(
            task_id,
            state,
            result,
            traceback,
            tuple(children),
            datetime.now(UTC).isoformat() if state in READY_STATES else None,
            parent_id,
            group_id,
        )
        return self._patiently(
            lambda left: self._write(
                meta, reply_to=reply_to, correlation_id=correlation_id or task_id, timeout=left
            ),
            timeout,
        )

    def store_many(self, results: Sequence[StoredResult], *, timeout: float = _STORE_PATIENCE) -> None:
        """Store results as :meth:`store_result` does, many in one go; those of one task in the order given.

        Tried again for ``timeout`` seconds while the store is away; then ConnectionLost is raised, and
        any of them may be stored or not. One that cannot be spelled keeps no other from being stored:
        CallerError is raised after that.
        """
        if results:
            self._patiently(lambda left: self._write_many(results, timeout=left), timeout)

    def end_chord_part(
        self,
        *,
        group_id: str,
        group_index: int | None,
        task_id: str,
        state: str,
        result: Json,
        chord: Mapping[str, Any],
        timeout: float = _STORE_PATIENCE,
    ) -> ChordEnd | None:
        """Count a task of a group that something waits for; return what is to follow if it was the last.

        ``chord`` is the signature that waits. If a task of the group failed, that has failed too: it is
        stored so, and the end says it. What follows, the body or its errbacks, is to be sent, and then
        :meth:`close_chord` called. To end a part again does no harm, and gives the same end until then.
        Tried again as :meth:`store_result` is. Raises ImproperlyConfigured where chords cannot be.
        """
        part = ChordPart(group_id, group_index, task_id, state, result)
        gathered = self._patiently(lambda left: self._end_part(part, timeout=left), timeout)
        if gathered is None:
            return None
        end = ChordEnd(part, chord)
        try:
            joined = join(gathered, max_bytes=self.settings.result_max_bytes)
        except PeerError as error:
            end = end._replace(error=chord_error(str(error)))
        else:
            return end._replace(results=Json(joined))
        now = datetime.now(UTC).isoformat()
        # Whoever waits for what is not sent is told.
        metas = [ResultMeta(each, FAILURE, end.error, date_done=now) for each in body_ids(chord)]
        self.store_many([StoredResult(meta) for meta in metas], timeout=timeout)
        return end

    def close_chord(self, end: ChordEnd, *, timeout: float = _STORE_PATIENCE) -> None:
        """Forget a group whose end was given to us, now that its body, or its errbacks, are sent."""
        self._patiently(lambda left: self._close_chord(end.part, timeout=left), timeout)

    def _patiently(self, write: Callable[[float], _T], timeout: float) -> _T:
        """Call ``write`` with the time that is left, again and again while the link is lost."""
        deadline = monotonic() + timeout
        backoff = self._new_backoff()
        while True:
            try:
                return write(max(deadline - monotonic(), 0.0))
            except ConnectionLost:
                wait = backoff.next()
                if monotonic() + wait >= deadline:
                    raise
            self._pause(wait)

    # -- the process we are in

    @property
    def ResultConsumer(self) -> type[BaseResultConsumer]:  # noqa: N802 - Celery's name
        """The class of :attr:`consumer`; set it to a subclass before the first wait.

        Raises CallerError while a consumer runs: it would go on as it is.
        """
        return self._consumer_class

    @ResultConsumer.setter
    def ResultConsumer(self, consumer_class: type[BaseResultConsumer]) -> None:  # noqa: N802
        if self._running.is_made:
            raise CallerError(
                "the result consumer is already running; set ResultConsumer before the first wait for a "
                "result, or after app.backend.close()"
            )
        self._consumer_class = consumer_class

    @property
    def consumer(self) -> BaseResultConsumer:
        """The consumer of this process."""
        return self._running.get().consumer

    def drainer(self) -> Drainer:
        """Return the drainer that is right where this is called from, draining."""
        drainer = self._drainer()
        drainer.start()
        return drainer

    def health(self) -> Health:
        """Return how the way to results is, for people."""
        return self.consumer.health()

    def close(self, *, tells: bool = True) -> None:
        """End the links and what runs in the background; to wait again starts both again.

        Whoever still waits is told, unless there will be nobody to hear it.
        """
        running = self._running.pop()
        if running is not None:
            running.finalizer.detach()
            running.consumer.stop(tells=tells)

    def _drainer(self) -> Drainer:
        return self._running.get().drainer(drainer_class(self.settings.result_drainer))

    def _begin(self) -> "_Running":
        consumer = self.ResultConsumer(self._new_link(), settings=self.settings)
        finalizer = finalize(self, consumer.stop_soon)
        finalizer.atexit = False
        return _Running(consumer, finalizer)

    def _new_backoff(self) -> Backoff:
        settings = self.settings
        return Backoff(base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=random.random)

    def _pause(self, seconds: float) -> None:
        self._drainer().runtime.flag().wait(seconds)


class _Running:
    """What belongs to one process: the link, and who drains it."""

    def __init__(self, consumer: BaseResultConsumer, finalizer: "finalize[..., Backend]") -> None:
        self.consumer = consumer
        self.finalizer = finalizer
        #: Who looks takes one: a thousand who come at once must not make a thousand links.
        self.turns: deque[None] = deque([None] * _LOOKERS)
        self._drainers: dict[type[Drainer], Drainer] = {}

    def drainer(self, kind: type[Drainer]) -> Drainer:
        found = self._drainers.get(kind)
        return found or self._drainers.setdefault(kind, kind(self.consumer))


def backend_for(settings: Settings, connect: Callable[[], Connection]) -> Backend:
    """Return the backend that the settings name; ``connect`` makes a link to the broker."""
    url = settings.result_backend
    if url is None:
        raise ImproperlyConfigured(
            "no result backend is set; set result_backend to the URL that the workers use, such as "
            "redis://127.0.0.1:6379/0 or rpc://"
        )
    scheme = url.partition("://")[0]
    if scheme == "rpc":
        from celeriac.node.rpc_backend import RpcBackend  # noqa: PLC0415 - only who waits loads it

        return RpcBackend(settings, connect)
    if scheme in {"redis", "rediss", "redis+socket", "sentinel"}:
        from celeriac.node.redis_backend import RedisBackend  # noqa: PLC0415 - only who waits loads it

        return RedisBackend(settings)
    raise ImproperlyConfigured(
        f"result_backend {sanitize_url(url)!r} is not supported; use redis://, rediss://, redis+socket://, "
        "sentinel:// or rpc://"
    )


def _no_chords() -> ImproperlyConfigured:
    return ImproperlyConfigured(
        "the result backend cannot count the tasks of a chord, because it stores no results; set "
        "result_backend to a Redis, such as redis://127.0.0.1:6379/0, on all workers and clients"
    )


#: Those whose links are to end before the interpreter does.
_open_backends: WeakSet[Backend] = WeakSet()


@atexit.register
def _end_all() -> None:
    for backend in list(_open_backends):
        backend.close(tells=False)
