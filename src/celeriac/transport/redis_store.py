"""Results in Redis, read and written by whoever calls: a link is taken for each call, and put back."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

from celeriac.config import MIB, Settings
from celeriac.errors import AccessRefused, ConnectionLost, NetworkError
from celeriac.masking import sanitize_url
from celeriac.model.result import ResultMeta
from celeriac.model.states import PROPAGATE_STATES, SUCCESS
from celeriac.transport.redis_dial import StoreDialer, batched
from celeriac.transport.redis_link import Command, RedisLink, wait_for
from celeriac.transport.redis_script import STORE_RESULT, STORED, SUCCEEDED
from celeriac.wire.result import decode, encode, encode_many, key_prefix, task_key

__all__ = ["Call", "RedisResultStore"]

_T = TypeVar("_T")

#: Links kept for the next calls: more are needed for a moment only.
_MAX_IDLE: Final = 8
#: Results, and bytes of them, that are written in one go: more would only keep others waiting.
_MAX_BATCH, _MAX_BATCH_BYTES = 500, 4 * MIB


class RedisResultStore:
    """The results in Redis, for any number of threads and greenlets at once.

    ``timeout`` bounds a call as a whole, with making a link if one is needed; then it raises
    ConnectionLost. AccessRefused says that to try again is no use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dialer = StoreDialer(settings)
        #: What every key begins with.
        self.prefix = key_prefix(settings.result_backend_transport_options)
        # A deque needs no lock: it is left and entered at one end in one step.
        self._idle: deque[RedisLink] = deque()
        self._is_closed = False
        #: Whether the server lets us run scripts, as far as we know.
        self.has_scripts = True

    @property
    def address(self) -> str:
        """Where it is, for people: a URL without its password."""
        return sanitize_url(self._settings.result_backend or "")

    @property
    def options(self) -> Mapping[str, object]:
        """What the operator chose for it."""
        return self._settings.result_backend_transport_options

    @property
    def expires(self) -> int:
        """For how many whole seconds a result is kept that is no failure; 0 for ever."""
        return math.ceil(self._settings.result_expires)

    def read(self, task_ids: Sequence[str], *, timeout: float) -> dict[str, ResultMeta]:
        """Return what is stored of these tasks; those of which nothing is are left out."""
        found: dict[str, ResultMeta] = {}

        def read(call: Call) -> None:
            for batch in batched(task_ids):
                (documents,) = call.exchange(("MGET", *map(self._key, batch)))
                for task_id, document in zip(batch, documents, strict=True):
                    if document is not None:
                        found[task_id] = self._decode(task_id, document)

        if task_ids:
            self.do(read, timeout)
        return found

    def write(self, meta: ResultMeta, *, timeout: float) -> bool:
        """Store a result and tell everybody who listens; say whether it is stored.

        It is not if a success is stored for the task already: that is never overwritten.
        """
        document = encode(meta, compression=self._settings.result_compression)
        return self.do(lambda call: self._write(call, meta, document), timeout)

    def write_many(self, metas: Sequence[ResultMeta], *, timeout: float) -> list[bool]:
        """Store results as :meth:`write` does, in one round trip for many; say of each whether it is stored.

        Those of one task are stored in the order given. If it raises ConnectionLost some may be stored,
        and to write all of them again is right. One that cannot be spelled keeps no other from being
        stored: CallerError is raised after that.
        """
        documents, unspellable = encode_many(metas, compression=self._settings.result_compression)
        writes = [
            (meta, document) for meta, document in zip(metas, documents, strict=True) if document is not None
        ]
        done = self._write_all(writes, timeout) if writes else []
        if unspellable is not None:
            raise unspellable
        return done

    def delete(self, task_ids: Sequence[str], *, timeout: float) -> int:
        """Delete what is stored of these tasks; return of how many something was."""

        def delete(call: Call) -> int:
            return sum(int(call.exchange(("DEL", *map(self._key, batch)))[0]) for batch in batched(task_ids))

        return self.do(delete, timeout) if task_ids else 0

    def close(self) -> None:
        """End the links; those in use end with their calls. Closing twice is fine."""
        self._is_closed = True
        while (link := self._taken()) is not None:
            link.close()

    def _write(self, call: "Call", meta: ResultMeta, document: bytes) -> bool:
        key = self._key(meta.task_id)
        expires = self._expires(meta.status)
        store: Command = ("SETEX", key, expires, document) if expires else ("SET", key, document)
        while True:
            _, (stored,) = call.exchange(("WATCH", key), ("MGET", key))
            if stored is not None and self._decode(meta.task_id, stored).status == SUCCESS:
                call.exchange(("UNWATCH",))
                # It may be our own: if a link was lost in a call, that is done once more.
                return bool(stored == document)
            *_, done = call.exchange(("MULTI",), store, ("PUBLISH", key, document), ("EXEC",))
            if done is not None:  # nobody else wrote in between
                return True

    def _write_all(self, writes: "list[_Write]", timeout: float) -> list[bool]:
        deadline = monotonic() + timeout
        if self.has_scripts:
            try:
                return self.do(lambda call: self._run_script(call, writes), timeout)
            except NetworkError as error:
                # Perhaps it is scripts only that are refused, or have no name. If not, the other way says so.
                if not isinstance(error, AccessRefused) and "unknown command" not in str(error):
                    raise
                self.has_scripts = False
        left = _left(deadline, self.address)
        return self.do(lambda call: [self._write(call, *write) for write in writes], left)

    def _run_script(self, call: "Call", writes: "list[_Write]") -> list[bool]:
        answers: list[object] = []
        for batch in _in_batches(writes):
            arguments: list[Command] = [
                (1, self._key(meta.task_id), document, self._expires(meta.status)) for meta, document in batch
            ]
            answers += call.exchange(*STORE_RESULT.calls(arguments))
        return [
            # What a script cannot say is seen to after the batch. Nothing is stored of such a task by
            # then, so that the order of its results stays what it was.
            answer == STORED if answer in (STORED, SUCCEEDED) else self._write(call, *write)
            for answer, write in zip(answers, writes, strict=True)
        ]

    def _expires(self, status: str) -> int:
        """Return for how many whole seconds a result is kept; 0 for ever."""
        expires = self._settings.result_failure_expires if status in PROPAGATE_STATES else None
        return self.expires if expires is None else math.ceil(expires)

    def _decode(self, task_id: str, document: bytes) -> ResultMeta:
        return decode(document, task_id=task_id, max_bytes=self._settings.result_max_bytes)

    def _key(self, task_id: str) -> str:
        return task_key(task_id, self.prefix)

    # -- links

    def do(self, work: "Callable[[Call], _T]", timeout: float) -> _T:
        """Do something with a link: one that is idle or else a new one; twice, if the idle one is lost."""
        deadline = monotonic() + timeout
        idle = self._taken()
        # A link that has something to say while nobody asked has been closed.
        while idle is not None and wait_for([idle], 0.0):
            idle.close()
            idle = self._taken()
        if idle is not None:
            try:
                return self._use(idle, work, deadline)
            except ConnectionLost:
                # It may have been gone for long, where nobody told us.
                if monotonic() >= deadline:
                    raise
        return self._use(self._dialer.dial(_left(deadline, self.address)), work, deadline)

    def _use(self, link: RedisLink, work: "Callable[[Call], _T]", deadline: float) -> _T:
        try:
            done = work(Call(link, deadline))
        except BaseException:
            # What is still on its way, if the call was left halfway, must not be taken for the next answer.
            link.close()
            raise
        self._idle.append(link)
        while len(self._idle) > (0 if self._is_closed else _MAX_IDLE):
            with suppress(IndexError):  # another was quicker
                self._idle.popleft().close()
        return done

    def _taken(self) -> RedisLink | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


class Call:
    """One call, with a link and an end."""

    def __init__(self, link: RedisLink, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def exchange(self, *commands: Command) -> list[Any]:
        """Write commands and return their answers, within what is left of the time."""
        return self._link.exchange(commands, timeout=_left(self._deadline, self._link.address))


#: A result and its document.
_Write = tuple[ResultMeta, bytes]


def _in_batches(writes: list[_Write]) -> Iterator[list[_Write]]:
    batch: list[_Write] = []
    size = 0
    for write in writes:
        batch.append(write)
        size += len(write[1])
        if len(batch) >= _MAX_BATCH or size >= _MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _left(deadline: float, address: str) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise ConnectionLost(f"the result store at {address} did not answer in time")
    return left
