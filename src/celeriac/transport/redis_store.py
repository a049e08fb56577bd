"""Results in Redis, read and written by whoever calls: a link is taken for each call, and put back."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.masking import sanitize_url
from celeriac.model.result import ResultMeta
from celeriac.model.states import PROPAGATE_STATES, SUCCESS
from celeriac.transport.redis_dial import StoreDialer, batched
from celeriac.transport.redis_link import Command, RedisLink, wait_for
from celeriac.wire.result import decode, encode, key_prefix, task_key

__all__ = ["RedisResultStore"]

_T = TypeVar("_T")

#: Links kept for the next calls: more are needed for a moment only.
_MAX_IDLE: Final = 8


class RedisResultStore:
    """The results in Redis, for any number of threads and greenlets at once.

    ``timeout`` bounds a call as a whole, with making a link if one is needed; then it raises
    ConnectionLost. AccessRefused says that to try again is no use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dialer = StoreDialer(settings)
        self._prefix = key_prefix(settings.result_backend_transport_options)
        # A deque needs no lock: it is left and entered at one end in one step.
        self._idle: deque[RedisLink] = deque()
        self._is_closed = False

    @property
    def address(self) -> str:
        """Where it is, for people: a URL without its password."""
        return sanitize_url(self._settings.result_backend or "")

    def read(self, task_ids: Sequence[str], *, timeout: float) -> dict[str, ResultMeta]:
        """Return what is stored of these tasks; those of which nothing is are left out."""
        found: dict[str, ResultMeta] = {}

        def read(call: _Call) -> None:
            for batch in batched(task_ids):
                (documents,) = call.exchange(("MGET", *map(self._key, batch)))
                for task_id, document in zip(batch, documents, strict=True):
                    if document is not None:
                        found[task_id] = self._decode(task_id, document)

        if task_ids:
            self._do(read, timeout)
        return found

    def write(self, meta: ResultMeta, *, timeout: float) -> bool:
        """Store a result and tell everybody who listens; say whether it is stored.

        It is not if a success is stored for the task already: that is never overwritten.
        """
        document = encode(meta, compression=self._settings.result_compression)
        return self._do(lambda call: self._write(call, meta, document), timeout)

    def delete(self, task_ids: Sequence[str], *, timeout: float) -> int:
        """Delete what is stored of these tasks; return of how many something was."""

        def delete(call: _Call) -> int:
            return sum(int(call.exchange(("DEL", *map(self._key, batch)))[0]) for batch in batched(task_ids))

        return self._do(delete, timeout) if task_ids else 0

    def close(self) -> None:
        """End the links; those in use end with their calls. Closing twice is fine."""
        self._is_closed = True
        while (link := self._taken()) is not None:
            link.close()

    def _write(self, call: "_Call", meta: ResultMeta, document: bytes) -> bool:
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

    def _expires(self, status: str) -> int:
        """Return for how many whole seconds a result is kept; 0 for ever."""
        settings = self._settings
        expires = settings.result_failure_expires if status in PROPAGATE_STATES else None
        return math.ceil(settings.result_expires if expires is None else expires)

    def _decode(self, task_id: str, document: bytes) -> ResultMeta:
        return decode(document, task_id=task_id, max_bytes=self._settings.result_max_bytes)

    def _key(self, task_id: str) -> str:
        return task_key(task_id, self._prefix)

    # -- links

    def _do(self, work: "Callable[[_Call], _T]", timeout: float) -> _T:
        """Do something with a link: one that is idle, or else a new one."""
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

    def _use(self, link: RedisLink, work: "Callable[[_Call], _T]", deadline: float) -> _T:
        try:
            done = work(_Call(link, deadline))
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


class _Call:
    """One call, with a link and an end."""

    def __init__(self, link: RedisLink, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def exchange(self, *commands: Command) -> list[Any]:
        """Write commands and return their answers, within what is left of the time."""
        return self._link.exchange(commands, timeout=_left(self._deadline, self._link.address))


def _left(deadline: float, address: str) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise ConnectionLost(f"the result store at {address} did not answer in time")
    return left
