"""The facade: it assembles, and decides nothing."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celeriac.config import Settings
from celeriac.core.revoked import RevokedSet
from celeriac.core.worker import Worker
from celeriac.masking import sanitize_url
from celeriac.node.async_receiver import AsyncEventReceiver
from celeriac.node.clock import SharedClock
from celeriac.node.control import Control
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.identity import anonymous_name
from celeriac.node.mailbox import Mailbox
from celeriac.node.receiver import EventReceiver, Handler
from celeriac.node.result import AsyncResult as Result
from celeriac.node.result_set import ResultSet as Results
from celeriac.node.state import State
from celeriac.transport.base import Connection
from celeriac.transport.memory import MemoryBroker
from celeriac.wire.event import Gate

if TYPE_CHECKING:
    from celeriac.node.backend import Backend

__all__ = ["Celeriac", "Events"]


class Celeriac:
    """One program's view of a cluster: its settings, its clock, and the parts that share them.

    ``broker`` is a URL as Celery takes it, or a :class:`MemoryBroker` for tests. Everything else is
    a setting; see :class:`~celeriac.config.Settings`. What is not given here is looked up in the
    environment (``CELERIAC_*``) and in a TOML file.
    """

    def __init__(
        self,
        broker: str | MemoryBroker | None = None,
        backend: str | None = None,
        *,
        hostname: str | None = None,
        config: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self._memory = broker if isinstance(broker, MemoryBroker) else None
        given = {"broker_url": broker if isinstance(broker, str) else None, "result_backend": backend}
        #: The settings in force, where they came from included.
        self.conf = Settings.load(
            given | settings,
            environ=os.environ if environ is None else environ,
            file=None if config is None else Path(config),
        )
        #: The Lamport clock that all parts of this program share.
        self.clock = SharedClock()
        #: The name this program has in the cluster.
        self.hostname = hostname or anonymous_name()

    def __repr__(self) -> str:
        address = sanitize_url(self.conf.broker_url) if self._memory is None else self._memory.name
        return f"<Celeriac {self.hostname} on {address}>"

    def connection(self) -> Connection:
        """Return a link to the broker, not yet open."""
        if self._memory is not None:
            return self._memory.connect()
        from celeriac.transport.connect import connect  # noqa: PLC0415 - only who connects waits for kombu

        return connect(self.conf)

    @cached_property
    def events(self) -> "Events":
        """Dispatchers, receivers and states of this program."""
        return Events(self)

    @cached_property
    def control(self) -> Control:
        """Commands to the nodes of the cluster."""
        return Control(self.connection, settings=self.conf, clock=self.clock, hostname=self.hostname)

    @cached_property
    def backend(self) -> "Backend":
        """Where results are kept, by the setting ``result_backend``."""
        from celeriac.node.backend import backend_for  # noqa: PLC0415 - only who wants results loads it

        return backend_for(self.conf, self.connection)

    def AsyncResult(self, id: str, parent: Result | Results | None = None) -> Result:  # noqa: A002, N802
        """Return the result of the task of this id; see :class:`~celeriac.node.result.AsyncResult`."""
        return Result(id, backend=self.backend, control=self.control, parent=parent)

    def ResultSet(self, results: Iterable[Result | str] = ()) -> Results:  # noqa: N802
        """Return a set of results, or of those of the tasks of these ids; see :class:`ResultSet`."""
        made = [self.AsyncResult(each) if isinstance(each, str) else each for each in results]
        return Results(made, backend=self.backend)

    def close(self) -> None:
        """End what runs in the background; to use the app again starts it again."""
        if "backend" in self.__dict__:
            self.backend.close()

    def mailbox(
        self,
        hostname: str | None = None,
        *,
        handlers: Mapping[str, Callable[..., object]] | None = None,
        revoked: RevokedSet | None = None,
    ) -> Mailbox:
        """Return a mailbox that answers commands to this program; see :class:`Mailbox`."""
        return Mailbox(
            hostname or self.hostname,
            settings=self.conf,
            clock=self.clock,
            handlers=handlers,
            revoked=revoked,
        )


class Events:
    """Makes the parts that send and receive events, with the settings and the clock of one app."""

    def __init__(self, app: Celeriac) -> None:
        self._app = app

    def Dispatcher(  # noqa: N802  (the name Celery gave it)
        self,
        connection: Connection | None = None,
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
            connection or self._app.connection(),
            settings=self._app.conf,
            clock=self._app.clock,
            hostname=hostname or self._app.hostname,
            enabled=enabled,
            buffer_while_offline=buffer_while_offline,
            groups=groups,
            buffer_group=buffer_group,
            buffer_limit=buffer_limit,
            on_send_buffered=on_send_buffered,
        )

    def Receiver(  # noqa: N802
        self,
        connection: Connection | None = None,
        handlers: Mapping[str, Handler] | None = None,
        *,
        state: State | None = None,
        gate: Gate | None = None,
        routing_key: str = "#",
        node_id: str | None = None,
    ) -> EventReceiver:
        """Return a receiver; see :class:`EventReceiver`."""
        return EventReceiver(
            connection or self._app.connection(),
            handlers,
            settings=self._app.conf,
            clock=self._app.clock,
            state=state,
            gate=gate,
            routing_key=routing_key,
            node_id=node_id,
            hostname=self._app.hostname,
        )

    def AsyncReceiver(  # noqa: N802
        self,
        connection: Connection | None = None,
        *,
        state: State | None = None,
        gate: Gate | None = None,
        routing_key: str = "#",
        node_id: str | None = None,
        wakeup: bool = True,
    ) -> AsyncEventReceiver:
        """Return a receiver for asyncio; see :class:`AsyncEventReceiver`."""
        return AsyncEventReceiver(
            connection or self._app.connection(),
            settings=self._app.conf,
            clock=self._app.clock,
            state=state,
            gate=gate,
            routing_key=routing_key,
            node_id=node_id,
            hostname=self._app.hostname,
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
            max_workers_in_memory=self._app.conf.max_workers_in_memory,
            max_tasks_in_memory=self._app.conf.max_tasks_in_memory,
            on_node_join=on_node_join,
            on_node_leave=on_node_leave,
        )
