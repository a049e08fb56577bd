"""Results in Redis, read and written by whoever calls: a link is taken for each call, and put back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic

from celeriac.config import MIB, Settings
from celeriac.errors import AccessRefused, NetworkError
from celeriac.masking import sanitize_url
from celeriac.model.result import ResultMeta
from celeriac.model.states import PROPAGATE_STATES, SUCCESS
from celeriac.transport.redis_call import Call, RedisCaller
from celeriac.transport.redis_dial import StoreDialer, batched
from celeriac.transport.redis_link import Command
from celeriac.transport.redis_script import STORE_RESULT, STORED, SUCCEEDED
from celeriac.wire.result import decode, encode, encode_many, key_prefix, task_key

__all__ = ["RedisResultStore"]

#: Results, and bytes of them, that are written in one go: more would only keep others waiting.
_MAX_BATCH, _MAX_BATCH_BYTES = 500, 4 * MIB


class RedisResultStore(RedisCaller):
    """The results in Redis, for any number of threads and greenlets at once.

    ``timeout`` bounds a call as a whole, with making a link if one is needed; then it raises
    ConnectionLost. AccessRefused says that to try again is no use.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(StoreDialer(settings))
        self._settings = settings
        #: What every key begins with.
        self.prefix = key_prefix(settings.result_backend_transport_options)
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

    def _write(self, call: Call, meta: ResultMeta, document: bytes) -> bool:
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
        # Where no time is left, that is told by the call.
        left = deadline - monotonic()
        return self.do(lambda call: [self._write(call, *write) for write in writes], left)

    def _run_script(self, call: Call, writes: "list[_Write]") -> list[bool]:
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
