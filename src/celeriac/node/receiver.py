"""Receives events, for ever: across restarts of the broker, and without mistaking silence for calm."""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Self

from celeriac.config import Settings
from celeriac.core.clock import CLIENT_CLOCK_SKEW, LamportClock
from celeriac.errors import ConnectionLost
from celeriac.model.events import Event
from celeriac.node.clock import SharedClock
from celeriac.node.identity import anonymous_name
from celeriac.node.reception import Reception
from celeriac.node.state import State
from celeriac.transport.accept import accept_connection
from celeriac.transport.base import AnyConnection, Connection
from celeriac.wire.event import Gate
from celeriac.wire.names import ALL_EVENTS

__all__ = ["CLIENT_CLOCK_SKEW", "EventReceiver", "Handler"]

#: What is done with an event.
Handler = Callable[[Event], object]

#: How long one wait lasts, so that a request to stop is heeded soon.
_SLICE: Final = 0.5
_NAP: Final = 0.05


class EventReceiver:
    """Receives the events of a cluster and calls a handler with each event.

    ``handlers`` maps types, as ``task-failed``, to functions of one event; ``*`` gets every
    type without a handler. The receiver reconnects automatically, and then emits an event
    ``cluster-gap``, with ``since``, ``until`` and ``reason``: events of this time
    may be missing. Unreadable messages are counted in ``gate`` and ignored.

    A ``state`` is updated before any handler is called; this is faster than ``state.event`` as
    a handler.

    ``connection`` selects the broker, and may be a ``kombu.Connection``; the receiver opens its own
    connections. Without ``settings`` it uses those of the connection (which are those of its app) or the
    defaults; without a ``clock`` it has its own. Between two calls of :meth:`capture` it stays subscribed,
    until :meth:`close`.
    """

    def __init__(
        self,
        connection: AnyConnection,
        handlers: Mapping[str, Handler] | None = None,
        *,
        settings: Settings | None = None,
        clock: LamportClock | None = None,
        routing_key: str = ALL_EVENTS,
        node_id: str | None = None,
        hostname: str | None = None,
        gate: Gate | None = None,
        state: State | None = None,
    ) -> None:
        self.handlers = dict(handlers or {})
        #: Called with all events that came at once, where there are no handlers.
        self.on_events: Callable[[list[Event]], object] | None = None
        self.gate = gate or Gate()
        #: The logical clock, which moves past each event, and its two moves.
        self.clock = clock = clock or SharedClock()
        self.adjust_clock = clock.adjust
        self.forward_clock = clock.forward
        #: Set to True to end the running capture and every later one. Only the program sets it back.
        # Plain flags: a signal handler that sets an Event can wait for the thread that it interrupts.
        self.should_stop = False
        #: Ends one capture: set by ``stop()``, cleared by the capture that returns.
        self._stop_requested = False
        self._connection, settings = accept_connection(connection, settings)
        self._link: Connection | None = None
        self._reception = Reception(
            settings=settings,
            clock=clock,
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

    @property
    def is_subscribed(self) -> bool:
        """Whether everything that is published now arrives."""
        return self._link is not None

    @property
    def deaf_since(self) -> float | None:
        """Time of the last message before the disconnect, by the local clock; None if connected."""
        return self._reception.heard_at if self._reception.is_interrupted else None

    def capture(self, limit: int | None = None, timeout: float | None = None, wakeup: bool = True) -> None:
        """Handle events until ``limit`` were handled, :meth:`stop` is called or ``should_stop`` is set.

        Raises TimeoutError if no event is received for ``timeout`` seconds, and ConnectionLost if the broker
        is unreachable at the start; later the receiver reconnects automatically. With
        ``wakeup`` all workers are asked for a heartbeat at the start.
        """
        waiting = self._reception.waiting
        left = inf if limit is None else limit
        for _ in self._messages(timeout, wakeup=wakeup):
            if not self.handlers:
                # The state has them already, and nobody looks at single events.
                events = [waiting.popleft() for _ in range(int(min(len(waiting), left)))]
                left -= len(events)
                if self.on_events is not None:
                    self.on_events(events)
            while waiting and left > 0 and not self._is_stopping:
                left -= 1
                self.process(waiting.popleft())
            if left <= 0:
                break
        self._stop_requested = False

    def itercapture(
        self, limit: int | None = None, timeout: float | None = None, wakeup: bool = True
    ) -> Iterator[Event]:
        """Handle events as :meth:`capture` does, and give each one out."""
        waiting = self._reception.waiting
        left = inf if limit is None else limit
        for _ in self._messages(timeout, wakeup=wakeup):
            while waiting and left > 0 and not self._is_stopping:
                left -= 1
                event = waiting.popleft()
                self.process(event)
                yield event
            if left <= 0:
                break
        self._stop_requested = False

    def _messages(self, timeout: float | None, *, wakeup: bool) -> Iterator[None]:
        """Receive until told to stop, and pause whenever events wait."""
        if self._link is not None:
            if wakeup:
                self._wake_again(self._link)
        elif not self._reception.is_interrupted:
            self._subscribe(wakeup=wakeup)
        heard_at = monotonic()
        while not self._is_stopping:
            if self._reception.waiting:
                yield
                heard_at = monotonic()
                continue
            left = _SLICE if timeout is None else heard_at + timeout - monotonic()
            if left <= 0:
                raise TimeoutError(f"no event received for {timeout:g} seconds")
            self._drain(min(left, _SLICE), wakeup=wakeup)

    def event_from_message(
        self, body: Mapping[str, object], localize: bool | None = None
    ) -> tuple[str, Event]:
        """Decode the body of one event as a received event; return its type and the event.

        The clock advances, and the event gets its time of receipt; no handler is called, and no state
        changes. With ``localize`` the timestamp is converted to the local time zone; None uses the setting
        ``event_localize``. Raises CallerError for an invalid body.
        """
        event = self._reception.read_body(body, localize=localize)
        return event.type, event

    def process(self, event: Event) -> None:
        """Hand one event to its handler."""
        handler = self.handlers.get(event.type) or self.handlers.get("*")
        if handler is not None:
            handler(event)

    def wakeup_workers(self) -> None:
        """Ask all workers to send a heartbeat now, so that we need not wait for the next one."""
        with self._connection.clone() as link:
            self._wake(link)

    def stop(self) -> None:
        """End one capture soon: the running one, or the next one if none is running.

        The capture after it handles the events that were received and not handled yet. Safe to call from
        another thread or a signal handler.
        """
        self._stop_requested = True

    def close(self) -> None:
        """Close the connection. Events that were received and not handled are handled by the next capture."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the link

    @property
    def _is_stopping(self) -> bool:
        return self.should_stop or self._stop_requested

    def _drain(self, patience: float, *, wakeup: bool) -> None:
        """Receive what is there, waiting for it; make the link again if it is lost."""
        try:
            if self._link is not None:
                self._link.drain(patience)
            else:
                self._subscribe(wakeup=wakeup)
        except ConnectionLost as error:
            pause = self._reception.lose(error)
            self.close()
            self._sleep(pause)

    def _sleep(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self._is_stopping and (left := until - monotonic()) > 0:
            sleep(min(left, _NAP))

    def _subscribe(self, *, wakeup: bool) -> None:
        """Make a link and subscribe on it. Everything published from then on arrives."""
        link = self._connection.clone()
        try:
            link.subscribe(self._reception.queue(link.driver), self._reception.receive)
            if wakeup:
                self._wake(link)
        except BaseException:
            link.close()
            raise
        self._link = link
        self._reception.resume()

    def _wake_again(self, link: Connection) -> None:
        try:
            self._wake(link)
        except ConnectionLost as error:
            self._reception.lose(error)
            self.close()

    def _wake(self, link: Connection) -> None:
        exchange, request = self._reception.wakeup()
        link.publish(exchange, request.body, headers=request.headers)
