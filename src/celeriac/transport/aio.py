"""Any link, for asyncio: the event loop never waits for a broker.

Each link has a thread of its own, and what comes over it crosses to the loop many
messages at a time. So every broker that kombu speaks to works under asyncio, with the code
that threads use.
"""

from asyncio import get_running_loop, shield, wrap_future
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Final, Self, TypeVar

from celeriac.errors import ConnectionLost, NetworkError
from celeriac.model.message import Exchange, Message, Queue
from celeriac.transport.base import Connection, Deliver

__all__ = ["AsyncConnection"]

_T = TypeVar("_T")

#: How long the thread waits at a time. A cancelled wait holds the link no longer than that.
_SLICE: Final = 0.25


class AsyncConnection:
    """One link to a broker, for the tasks of one event loop.

    It makes a link of its own, to the broker that ``connection`` leads to. A cancelled call
    loses nothing: messages that came meanwhile are delivered by the next :meth:`drain`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.clone()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="celeriac-link")
        self._waiting: deque[tuple[Deliver, Message]] = deque()
        self._lost: NetworkError | None = None
        self._closing: Future[None] | None = None

    @property
    def driver(self) -> str:
        """The family of the broker."""
        return self._connection.driver

    @property
    def is_blocked(self) -> bool:
        """Whether the broker asked us to publish nothing for now."""
        return self._connection.is_blocked

    @property
    def address(self) -> str:
        """Where it leads, for people."""
        return self._connection.address

    async def publish(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        routing_key: str = "",
        headers: Mapping[str, object] | None = None,
        is_persistent: bool = False,
        correlation_id: str = "",
        reply_to: str = "",
    ) -> None:
        """Send one JSON message."""
        await self._run(
            partial(
                self._connection.publish,
                exchange,
                body,
                routing_key=routing_key,
                headers=headers,
                is_persistent=is_persistent,
                correlation_id=correlation_id,
                reply_to=reply_to,
            )
        )

    async def unconfirmed(self, timeout: float = 0.0) -> int:
        """Return how many of the last published messages the broker has not confirmed yet."""
        return await self._run(partial(self._connection.unconfirmed, timeout))

    async def subscribe(self, queue: Queue, deliver: Deliver, *, acknowledges: bool = False) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`, in the loop.

        With ``acknowledges`` a message counts as taken once it is here, where nothing but the end
        of the process can lose it.
        """

        def keep(message: Message) -> None:
            self._waiting.append((deliver, message))

        await self._run(partial(self._connection.subscribe, queue, keep, acknowledges=acknowledges))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it."""
        await self._run(partial(self._connection.delete_queue, name))

    async def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = None if timeout is None else monotonic() + timeout
        while not self._waiting:
            left = _SLICE if deadline is None else min(_SLICE, max(0.0, deadline - monotonic()))
            await self._run(partial(self._drain, left))
            if deadline is not None and monotonic() >= deadline:
                break
        return self._deliver()

    async def close(self) -> None:
        """Deliver what has come, and end the link and its thread; closing twice is fine."""
        if self._closing is None:
            self._closing = self._thread.submit(self._connection.close)
            self._thread.shutdown(wait=False)
        # Who is cancelled while waiting leaves the closing to the thread.
        await shield(wrap_future(self._closing))
        self._deliver()

    def clone(self) -> Self:
        """Return a new link to the same broker, not yet open."""
        return type(self)(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _drain(self, timeout: float) -> None:
        # In the thread. Who asked may be gone by now, so a loss is kept for who asks next.
        if self._lost is not None:
            raise self._lost
        try:
            self._connection.drain(timeout)
        except NetworkError as error:
            self._lost = error
            raise

    def _deliver(self) -> int:
        delivered = 0
        while self._waiting:
            deliver, message = self._waiting.popleft()
            delivered += 1
            deliver(message)
        return delivered

    async def _run(self, call: Callable[[], _T]) -> _T:
        if self._closing is not None:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        return await get_running_loop().run_in_executor(self._thread, call)
