"""What becomes of a message of events, however it was received."""

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from time import time
from uuid import uuid4

from msgspec.structs import force_setattr

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.core.clock import LamportClock
from celeriac.errors import CallerError, PeerError
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Event, Gap, Sent
from celeriac.model.message import Exchange, Message, Queue
from celeriac.node.identity import hours_west
from celeriac.node.state import State
from celeriac.wire.control import Request, Spelled, encode_request
from celeriac.wire.envelope import body_of
from celeriac.wire.event import Gate
from celeriac.wire.names import control_exchange, event_exchange, event_queue

__all__ = ["Reception"]

logger = logging.getLogger(__name__)


class Reception:
    """Reads messages into events, moves the clock past them, and tells of gaps.

    It is the same for threads and for asyncio: no waiting happens here.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        clock: LamportClock,
        hostname: str,
        gate: Gate,
        state: State | None,
        routing_key: str,
        node_id: str | None,
        now: Callable[[], float] = time,
    ) -> None:
        self.clock = clock
        self.gate = gate
        #: Events that were received and not handed on yet.
        self.waiting: deque[Event] = deque()
        #: How long to wait before the link is made again.
        self.backoff = Backoff(
            base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=SystemRandom().random
        )
        #: Times the link was lost.
        self.losses = 0
        self._settings = settings
        self._state = state
        self._hostname = hostname
        self._routing_key = routing_key
        self._node_id = node_id
        self._now = now
        #: When a message last came, or else the subscription was confirmed.
        self.heard_at = now()
        #: How long the last message was that could be opened, in bytes, as it was before it was compressed.
        self.body_bytes = 0
        self._lost_because: str | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether the link was lost, and is to be made again."""
        return self._lost_because is not None

    def queue(self, driver: str) -> Queue:
        """Return the queue to subscribe to."""
        exchange = event_exchange(self._settings.event_exchange, driver)
        # An exclusive queue has a name of its own for each link: after a cut the broker may still hold
        # the queue of the last one.
        names = [self._node_id] if self._node_id else []
        if self._settings.event_queue_exclusive or not names:
            names.append(str(uuid4()))
        unique = ".".join(names)
        return event_queue(self._settings, exchange, unique=unique, routing_key=self._routing_key)

    def wakeup(self) -> tuple[Exchange, Spelled]:
        """Return what asks all workers to announce themselves, and where to publish it."""
        request = encode_request(Request("heartbeat", clock=self.clock.forward()))
        return control_exchange(self._settings), request

    def receive(self, message: Message) -> None:
        """Take one message: one event, a batch of them, or nothing that can be taken."""
        events = self.read(message)
        try:
            if self._state is not None and events:
                self._state.take(events, self.heard_at)
        finally:  # a callback of the state that raises keeps nothing from the handlers
            self.waiting.extend(events)

    def read(self, message: Message) -> list[Event]:
        """Return the events of a message, stamped with their receipt; none if nothing can be taken."""
        self.heard_at = received_at = self._now()
        try:
            body = body_of(message)
        except PeerError as error:
            self.gate.refuse(error, message.body)
            self.body_bytes = 0
            return []
        self.body_bytes = len(body)
        events = self.gate.decode(body, received_at)
        self._stamp(events, received_at)
        return events

    def read_body(self, body: Mapping[str, object], *, localize: bool | None = None) -> Event:
        """Return the event of a decoded body, stamped with its receipt. Raises CallerError for other bodies.

        With ``localize`` the timestamp moves to our time zone; None leaves that to the settings.
        """
        received_at = self._now()
        is_mapping = isinstance(body, Mapping)
        converted = self.gate.convert({**body, "local_received": received_at} if is_mapping else body)
        if converted is None:
            raise CallerError(
                "event_from_message takes the decoded body of one event, a dict with a type, a hostname "
                "and, for a task event, a uuid. The body was refused: see the reason in gate.refused"
            )
        event, _ = converted
        self._stamp([event], received_at, localize=localize)
        return event

    def lose(self, error: Exception) -> float:
        """Note that there is no link, and return how long to wait; the first reason counts."""
        if self._lost_because is None:
            self._lost_because = str(error)
            self.losses += 1
            logger.warning("events: receiving interrupted: %s", error)
        return self.backoff.next()

    def resume(self, *, has_missed: bool = True) -> None:
        """Note that we hear; if we did not for a while, that is an event, unless nothing was missed."""
        now = self._now()
        if self._lost_because is not None:
            if has_missed:
                gap = self.gap(self._lost_because, since=self.heard_at, until=now)
                if self._state is not None:
                    self._state.take([gap], now)
                self.waiting.append(gap)
            logger.info("events: receiving resumed after %.1f seconds", now - self.heard_at)
        self._lost_because, self.heard_at = None, now
        self.backoff.reset()

    def _stamp(self, events: Sequence[Event], received_at: float, *, localize: bool | None = None) -> None:
        """Write our side of the receipt into events, and move the clock past the message."""
        # A message is one receipt, however many events are in it.
        highest, peer, client_stamp = NO_CLOCK, "", None
        without_clock: list[Event] = []
        for event in events:
            force_setattr(event, "local_received", received_at)
            if type(event) is Sent:
                # Celery: clients never synchronise, so their clocks say nothing here.
                if client_stamp is None:
                    client_stamp = self.clock.receive_client()
                force_setattr(event, "client_clock", event.clock)
                force_setattr(event, "clock", client_stamp)
            elif event.clock > highest:
                highest, peer = event.clock, event.hostname
            elif event.clock == NO_CLOCK:
                without_clock.append(event)
        if highest != NO_CLOCK:
            self.clock.receive(highest, peer=peer)
        elif client_stamp is None and not without_clock:
            self.clock.forward()
        for event in without_clock:
            # Celery: it writes this into ``clock``. Beside it, no rule takes it for the clock of the sender.
            force_setattr(event, "local_clock", self.clock.forward())
        if self._settings.event_localize if localize is None else localize:
            own = hours_west()
            for event in events:
                shifted = event.timestamp - (event.utcoffset - own) * 3600
                force_setattr(event, "timestamp", max(0.0, shifted))

    def gap(self, reason: str, *, since: float, until: float) -> Gap:
        """Return an event that tells of a while for which events may be missing."""
        return Gap(
            timestamp=until,
            local_received=until,
            clock=self.clock.forward(),
            hostname=self._hostname,
            pid=os.getpid(),
            utcoffset=hours_west(),
            since=since,
            until=until,
            reason=reason,
            attempts=self.backoff.attempts,
        )
