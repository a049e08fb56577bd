"""Makes what sends and receives events, as one program does."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from celeriac.config import Settings
from celeriac.core.worker import Worker
from celeriac.node.async_receiver import AsyncEventReceiver
from celeriac.node.clock import SharedClock
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.receiver import EventReceiver, Handler
from celeriac.node.state import State
from celeriac.transport.base import AnyConnection, Connection
from celeriac.wire.event import Gate

if TYPE_CHECKING:
    from celeriac.core.redaction import Redactor

__all__ = ["Events"]


class Events:
    """Makes the parts that send and receive events, with the settings and the clock of one app."""

    def __init__(
        self, connect: Callable[[], Connection], *, settings: Settings, clock: SharedClock, hostname: str
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._hostname = hostname

    def Dispatcher(  # noqa: N802  (the name Celery gave it)
        self,
        connection: "AnyConnection | None" = None,
        hostname: str | None = None,
        *,
        enabled: bool = True,
        buffer_while_offline: bool = True,
        groups: Collection[str] | None = None,
        buffer_group: Collection[str] | None = None,
        buffer_limit: int = 24,
        on_send_buffered: Callable[[], object] | None = None,
    ) -> EventDispatcher:
        """Return a dispatcher; see :class:`EventDispatcher`."""
        return EventDispatcher(
            connection or self._connect(),
            settings=self._settings,
            clock=self._clock,
            hostname=hostname or self._hostname,
            enabled=enabled,
            buffer_while_offline=buffer_while_offline,
            groups=groups,
            buffer_group=buffer_group,
            buffer_limit=buffer_limit,
            on_send_buffered=on_send_buffered,
        )

    def Receiver(  # noqa: N802
        self,
        connection: "AnyConnection | None" = None,
        handlers: Mapping[str, Handler] | None = None,
        *,
        state: State | None = None,
        gate: Gate | None = None,
        routing_key: str = "#",
        node_id: str | None = None,
    ) -> EventReceiver:
        """Return a receiver; see :class:`EventReceiver`."""
        return EventReceiver(
            connection or self._connect(),
            handlers,
            settings=self._settings,
            clock=self._clock,
            state=state,
            gate=gate,
            routing_key=routing_key,
            node_id=node_id,
            hostname=self._hostname,
        )

    def AsyncReceiver(  # noqa: N802
        self,
        connection: "AnyConnection | None" = None,
        *,
        state: State | None = None,
        gate: Gate | None = None,
        routing_key: str = "#",
        node_id: str | None = None,
        wakeup: bool = True,
    ) -> AsyncEventReceiver:
        """Return a receiver for asyncio; see :class:`AsyncEventReceiver`."""
        return AsyncEventReceiver(
            connection or self._connect(),
            settings=self._settings,
            clock=self._clock,
            state=state,
            gate=gate,
            routing_key=routing_key,
            node_id=node_id,
            hostname=self._hostname,
            wakeup=wakeup,
        )

    def State(  # noqa: N802
        self,
        callback: Callable[[State, Any], object] | None = None,
        *,
        on_node_join: Callable[[Worker], object] | None = None,
        on_node_leave: Callable[[Worker], object] | None = None,
    ) -> State:
        """Return an empty state, as large as the settings say; see :class:`State`."""
        return State(
            callback,
            max_workers_in_memory=self._settings.max_workers_in_memory,
            max_tasks_in_memory=self._settings.max_tasks_in_memory,
            on_node_join=on_node_join,
            on_node_leave=on_node_leave,
            redactor=self._redactor,
        )

    def _redactor(self) -> "Redactor":
        from celeriac.node.history import redactor_of  # noqa: PLC0415 - only who saves a state loads it

        return redactor_of(self._settings)
