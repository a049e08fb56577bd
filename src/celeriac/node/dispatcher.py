"""Sends events: stamped, in order, and kept until the broker has them."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from threading import Condition
from time import time
from types import TracebackType
from typing import Final, Self

import msgspec

from celeriac.config import Limits, Settings
from celeriac.core.clock import LamportClock
from celeriac.core.outbox import Outbox, Parcel
from celeriac.errors import CallerError
from celeriac.node.clock import SharedClock
from celeriac.node.courier import Courier
from celeriac.node.identity import anonymous_name, hours_west
from celeriac.node.unsent import CLOSE_TIMEOUT
from celeriac.transport.accept import accept_connection
from celeriac.transport.base import AnyConnection
from celeriac.wire.names import event_exchange

__all__ = ["EventDispatcher"]

#: Celery: brokers that have no fan-out, and so no events.
_SILENT_DRIVERS: Final = frozenset({"sql"})
#: A routing key of AMQP holds no more.
_MAX_TYPE_BYTES: Final = 255
#: Fields that the dispatcher fills in by itself.
_OURS: Final = frozenset({"type", "hostname", "utcoffset", "pid", "clock"})


class EventDispatcher:
    """Sends events of one node, from any number of threads.

    Each event is stamped when it is sent, and events leave in that order. The dispatcher keeps an event until
    the broker has confirmed it: after a reconnect, unconfirmed events are sent again with the same stamp, and
    a :class:`State` that gets one twice counts it once. While the broker is unreachable, up to
    ``settings.event_offline_limit`` events are buffered; beyond it the oldest are dropped and counted in
    ``dropped``.

    Programs that end without :meth:`close` send the remaining events at exit, within five seconds for all
    dispatchers together; a connection attempt at that time may take ``broker_connection_timeout`` longer.

    ``connection`` selects the broker, and may be a ``kombu.Connection``; the dispatcher opens its own
    connection. Without ``settings`` it uses those of the connection (which are those of its app) or the
    defaults; without a ``clock`` it has its own.
    """

    def __init__(
        self,
        connection: AnyConnection,
        hostname: str | None = None,
        *,
        settings: Settings | None = None,
        clock: LamportClock | None = None,
        enabled: bool = True,
        buffer_while_offline: bool = True,
        groups: Collection[str] | None = None,
        buffer_group: Collection[str] | None = None,
        buffer_limit: int = 24,
        on_send_buffered: Callable[[], object] | None = None,
    ) -> None:
        link, settings = accept_connection(connection, settings)
        self.hostname = hostname or anonymous_name()
        self.clock = clock or SharedClock()
        self.buffer_while_offline = buffer_while_offline
        #: Only events of these groups are sent; all of them if it is empty.
        self.groups = set(groups or ())
        #: Events of these groups are gathered and sent ``buffer_limit`` at a time.
        self.buffer_group = frozenset(buffer_group or ())
        #: Called when an event was gathered and its batch is not full yet.
        self.on_send_buffered = on_send_buffered
        self.on_enabled: set[Callable[[], object]] = set()
        self.on_disabled: set[Callable[[], object]] = set()
        self.enabled = enabled and link.driver not in _SILENT_DRIVERS
        self._courier = Courier(
            link,
            Outbox(limit=settings.event_offline_limit, batch_limit=buffer_limit),
            exchange=event_exchange(settings.event_exchange, link.driver),
            headers={"hostname": self.hostname},
            settings=settings,
        )
        self._outbox = self._courier.outbox
        self._most_bytes = Limits().event_bytes

    @property
    def _changed(self) -> Condition:
        return self._courier.changed

    @property
    def dropped(self) -> Counter[str]:
        """Events that had to go for want of room, by group."""
        return self._outbox.dropped

    @property
    def buffered(self) -> int:
        """How many events no broker has confirmed yet."""
        return len(self._outbox)

    def open(self) -> None:
        """Connect now, so that the next event leaves at once; nothing if we are not enabled.

        Events wait for a broker that is away. Raises AccessRefused if the broker does not let us in.
        """
        if self.enabled:
            self._courier.check_process()
            self._courier.open()

    def send(
        self,
        type: str,  # noqa: A002  (the word of the wire)
        *,
        blind: bool = False,
        **fields: object,
    ) -> None:
        """Send one event, or gather it with others of its group; nothing if we are not enabled.

        A ``blind`` event carries no clock. Raises ConnectionLost only if nothing is kept
        while offline, and AccessRefused if the broker does not let us publish; the event is then kept.
        """
        group = type.partition("-")[0]
        if not self._takes(group):
            return
        self._courier.check_process()
        if group not in self.buffer_group:
            self._post(type, fields, blind=blind)
            return
        with self._changed:
            if not self.enabled:
                return
            is_full = self._outbox.put_in_batch(group, self._spell(type, fields, blind=blind))
            self._courier.track()
        if is_full:
            self._courier.carry()
        elif self.on_send_buffered is not None:
            self.on_send_buffered()

    def publish(self, type: str, fields: Mapping[str, object], *, blind: bool = False) -> None:  # noqa: A002
        """Send one event as a message of its own, whatever its group."""
        if self.enabled:
            self._courier.check_process()
            self._post(type, fields, blind=blind)

    def flush(self, timeout: float = 0.0) -> int:
        """Send all buffered events, and return the number of unconfirmed events.

        Waits up to ``timeout`` seconds until there are none.
        """
        self._courier.flush(timeout)
        return self.buffered

    def enable(self) -> None:
        """Start sending, and call the registered callbacks."""
        self._courier.resume()
        self.enabled = True
        for callback in list(self.on_enabled):
            callback()

    def disable(self) -> None:
        """Stop sending after the buffered events, and call the registered callbacks."""
        if self.enabled:
            self.close()
            for callback in list(self.on_disabled):
                callback()

    def extend_buffer(self, other: "EventDispatcher") -> None:
        """Take over the unsent events of another dispatcher."""
        if other is self:
            return
        for each in (self, other):
            each._courier.check_process()  # noqa: SLF001
        # In one order, whoever takes over from whom: two that do so at once must not wait for each other.
        first, second = sorted((self, other), key=id)
        with first._changed, second._changed:  # noqa: SLF001
            self._outbox.adopt(other._outbox)  # noqa: SLF001
            self._courier.track()
            other._courier.track()  # noqa: SLF001

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Send the remaining events for up to ``timeout`` seconds, and close the connection.

        Nothing is sent afterwards, unless the dispatcher is enabled again.
        """
        self._courier.check_process()
        with self._changed:
            # Under the lock: what is put in before this is still sent, and nothing is put in after it.
            self.enabled = False
        try:
            self.flush(timeout)
        finally:
            self._courier.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _takes(self, group: str) -> bool:
        return self.enabled and (not self.groups or group in self.groups)

    def _spell(self, type_: str, fields: Mapping[str, object], *, blind: bool) -> bytes:
        if not _OURS.isdisjoint(fields):
            names = ", ".join(sorted(_OURS & fields.keys()))
            raise CallerError(f"the dispatcher sets {names}: remove it from the fields")
        if not 0 < len(type_.encode()) <= _MAX_TYPE_BYTES:
            raise CallerError(f"event types have 1 to {_MAX_TYPE_BYTES} bytes, not {type_[:50]!r}…")
        event = {
            "hostname": self.hostname,
            "utcoffset": hours_west(),
            "pid": os.getpid(),
            # Celery: a clock of null, as its own blind events have, ends the capture of its monitors.
            **({} if blind else {"clock": self.clock.forward()}),
            "timestamp": time(),
            **fields,
            "type": type_,
        }
        try:
            spelled = msgspec.json.encode(event)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CallerError(f"cannot encode event {type_!r} as JSON: {error}") from error
        if len(spelled) > self._most_bytes:
            raise CallerError(
                f"event {type_!r} has {len(spelled):,} bytes, more than the {self._most_bytes:,} that "
                "receivers accept: shorten its fields"
            )
        return spelled

    def _post(self, type_: str, fields: Mapping[str, object], *, blind: bool) -> None:
        def put() -> Parcel | None:
            if not self.enabled:
                return None
            # Stamped under the lock: the order of clocks is the order of leaving.
            event = self._spell(type_, fields, blind=blind)
            parcel = self._outbox.put(type_.replace("-", "."), type_.partition("-")[0], event)
            self._courier.track()
            return parcel

        if not self.buffer_while_offline:
            self._courier.carry_at_once(put)
            return
        with self._changed:
            put()
        self._courier.carry()
