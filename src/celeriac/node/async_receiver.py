"""Receives events under asyncio: ``async for event in receiver``."""

from asyncio import sleep
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from celeriac.config import Settings
from celeriac.core.clock import LamportClock
from celeriac.errors import ConnectionLost
from celeriac.model.events import Event
from celeriac.node.clock import SharedClock
from celeriac.node.identity import anonymous_name
from celeriac.node.reception import Reception
from celeriac.node.state import State
from celeriac.transport.accept import accept_connection
from celeriac.transport.aio import AsyncConnection
from celeriac.transport.base import AnyConnection
from celeriac.wire.event import Gate
from celeriac.wire.names import ALL_EVENTS

__all__ = ["AsyncEventReceiver"]


class AsyncEventReceiver:
    """Yields the events of a cluster, one by one, indefinitely.

    Like :class:`~celeriac.EventReceiver`, it reconnects automatically and reports the gap, counts unreadable
    messages in ``gate``, and updates a ``state`` before it yields an event. It never blocks the loop. Leave
    the loop, cancel the task, or close the receiver: events that were received and not yielded come first in
    the next iteration.
    """

    def __init__(
        self,
        connection: AnyConnection,
        *,
        settings: Settings | None = None,
        clock: LamportClock | None = None,
        routing_key: str = ALL_EVENTS,
        node_id: str | None = None,
        hostname: str | None = None,
        gate: Gate | None = None,
        state: State | None = None,
        wakeup: bool = True,
    ) -> None:
        self.gate = gate or Gate()
        self._connection, settings = accept_connection(connection, settings)
        self._link: AsyncConnection | None = None
        self._wakeup = wakeup
        self._reception = Reception(
            settings=settings,
            clock=clock or SharedClock(),
            hostname=hostname or anonymous_name(),
            gate=self.gate,
            state=state,
            routing_key=routing_key,
            node_id=node_id,
        )

    @property
    def losses(self) -> int:
        """Number of disconnects."""
        return self._reception.losses

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Give out events. A broker that is not there at the start raises ConnectionLost."""
        waiting = self._reception.waiting
        if self._link is None and not self._reception.is_interrupted:
            await self._subscribe()
        while True:
            while waiting:
                yield waiting.popleft()
            await self._drain()

    async def close(self) -> None:
        """Close the connection."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _drain(self) -> None:
        try:
            if self._link is not None:
                await self._link.drain()
            else:
                await self._subscribe()
        except ConnectionLost as error:
            pause = self._reception.lose(error)
            await self.close()
            await sleep(pause)

    async def _subscribe(self) -> None:
        link = AsyncConnection(self._connection)
        try:
            await link.subscribe(self._reception.queue(link.driver), self._reception.receive)
            if self._wakeup:
                exchange, request = self._reception.wakeup()
                await link.publish(exchange, request.body, headers=request.headers)
        except BaseException:
            await link.close()
            raise
        self._link = link
        self._reception.resume()
