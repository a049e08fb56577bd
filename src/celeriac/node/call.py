"""Requests to the nodes of a cluster, and the wait for their replies."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from math import isfinite
from threading import Lock
from time import monotonic, time
from typing import Final, Self
from uuid import uuid4

from celeriac.config import MIB, Settings
from celeriac.errors import CallerError, ConnectionLost, PeerError
from celeriac.model.events import WorkerEvent, WorkerOffline
from celeriac.model.message import Message
from celeriac.node.clock import SharedClock
from celeriac.node.identity import OUR_IDENT
from celeriac.transport.accept import accept_connection
from celeriac.transport.base import AnyConnection, Connection
from celeriac.wire.control import (
    Reply,
    ReplyError,
    ReplyTo,
    Request,
    decode_reply,
    decode_request,
    encode_request,
    is_addressed,
    reply_limits,
)
from celeriac.wire.envelope import body_of
from celeriac.wire.event import Gate
from celeriac.wire.names import (
    WORKER_EVENTS,
    control_exchange,
    event_exchange,
    event_queue,
    reply_exchange,
    reply_queue,
)

__all__ = ["Call", "Callback", "Caller", "Destination"]

Callback = Callable[[dict[str, object]], object]
#: One node or several, by name; None or none of them for all.
Destination = str | Iterable[str] | None

#: Nodes that one call takes replies and signs of life from: as many as a cluster state holds.
MAX_NODES: Final = 5000
#: Replies that one call keeps. A thousand nodes with a hundred long tasks each are within it.
MAX_REPLY_BYTES: Final = 256 * MIB
#: A name as long as any that patterns are tried on when they are given.
_LONG_NAME: Final = "x" * 64

_FIXES: Final = {
    "method": "command names have 1 to 64 letters, digits, underscores, dots and dashes",
    "destination": "destination must be a list of node names, such as 'celery@web1'",
    "pattern": "the pattern is invalid, too long or too expensive to match; simplify it",
    "matcher": "matcher must be 'glob' or 'pcre'",
    "size": "the command is longer than 64 KiB; split it",
    "items": "the command has more than 2,048 items; split it",
    "depth": "the arguments are nested deeper than 32 levels; flatten them",
}


class Call:
    """One request that was made, and what came of it."""

    def __init__(
        self,
        request: Request,
        *,
        clock: SharedClock,
        count: Callable[[str], None],
        callback: Callback | None = None,
        most: int = MAX_NODES,
    ) -> None:
        self.request = request
        #: Nodes that may answer; those after them came too late.
        self.most = most
        #: ``{node: value}`` for each reply, in the order they came.
        self.replies: list[dict[str, object]] = []
        #: Nodes whose reply could not be taken, and why.
        self.refusals: dict[str, str] = {}
        #: Nodes that answered, with whatever it was.
        self.answered: set[str] = set()
        #: Nodes that showed themselves by an event while we waited.
        self.heard: set[str] = set()
        #: Those of them that told to be ours.
        self.ours: set[str] = set()
        #: Whether the time passed before enough nodes had answered.
        self.has_timed_out = False
        self.gate = Gate()
        self._bytes_left = MAX_REPLY_BYTES
        self._limits = reply_limits(request.method)
        self._clock = clock
        self._count = count
        self._callback = callback

    def receive_reply(self, message: Message) -> None:
        """Take one message from the reply queue."""
        try:
            reply = decode_reply(message, self._limits)
        except ReplyError as error:
            self._clock.forward()
            self._count(str(error))
            if self._refusal(error.node, error.ticket) is None:
                self.answered.add(error.node)
                self.refusals[error.node] = str(error)
            return
        except PeerError as error:
            self._clock.forward()
            self._count(str(error))
            return
        self._clock.receive(reply.clock, peer=reply.node)
        self._bytes_left -= reply.size
        refusal = self._refusal(reply.node, reply.ticket)
        if refusal is None:
            self._take(reply)
        else:
            self._count(refusal)

    def receive_event(self, message: Message) -> None:
        """Take one message from the event queue: a sign of life, or of leaving."""
        try:
            body = body_of(message)
        except PeerError as error:
            self._count(str(error))
            return
        for event in self.gate.decode(body, time()):
            if event.group != "worker":
                continue
            self._clock.receive(event.clock, peer=event.hostname)
            if isinstance(event, WorkerOffline):
                self.heard.discard(event.hostname)
            elif len(self.heard) < MAX_NODES:
                self.heard.add(event.hostname)
                if isinstance(event, WorkerEvent) and event.sw_ident == OUR_IDENT:
                    self.ours.add(event.hostname)

    def _take(self, reply: Reply) -> None:
        self.answered.add(reply.node)
        answer = {reply.node: reply.value}
        self.replies.append(answer)
        if self._callback is not None:
            self._callback(answer)

    def _refusal(self, node: str, ticket: str | None) -> str | None:
        """Return why the reply of a node is not for us, None if it is."""
        # Celery: a reply without a ticket counts, as the queue it came by is ours alone.
        if ticket is not None and ticket != self.request.ticket:
            return "ticket"
        if self.request.destination and node not in self.request.destination:
            return "unasked"
        if len(self.answered) >= self.most or self._bytes_left < 0:
            return "too-many"
        return None


class Caller:
    """Makes calls, each on a link of its own; several threads may share it."""

    def __init__(
        self, connect: Callable[[], Connection], *, settings: Settings, clock: SharedClock, hostname: str
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.hostname = hostname
        #: Replies and events that were not taken, by reason.
        self.refused: Counter[str] = Counter()
        self._connect = connect
        self._mutex = Lock()

    def at(self, connection: "AnyConnection | None") -> Self:
        """Return a caller for the broker of a connection, with links of its own; None for the same broker."""
        if connection is None:
            return self
        link, settings = accept_connection(connection, self.settings)
        caller = copy(self)
        caller.settings, caller._connect = settings, link.clone  # noqa: SLF001 - our own
        return caller

    def request(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        destination: Destination = None,
        pattern: str | None = None,
        matcher: str | None = None,
    ) -> Request:
        """Return a request that nodes will take; raise :class:`CallerError` if they would refuse it."""
        names = (destination,) if isinstance(destination, str) else tuple(dict.fromkeys(destination or ()))
        # Celery: ignores a pattern without a matcher, so that a command for some goes to all.
        language = (matcher or "glob") if pattern else None
        request = Request(command, dict(arguments or {}), names, pattern or None, language)
        try:
            headers, body = encode_request(request)
            decode_request(Message(body, headers=headers))
            is_addressed(request._replace(destination=()), _LONG_NAME)
        except PeerError as error:
            reason = str(error)
            raise CallerError(f"invalid command {command!r}: {_FIXES.get(reason, reason)}") from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CallerError(f"cannot encode the command {command!r} as JSON: {error}") from error
        return request

    def send(self, request: Request, *, timeout: float) -> None:
        """Send a request that needs no reply."""
        _check_timeout(timeout)
        with self._connect() as connection:
            self._publish(connection, request, timeout=timeout)
            _check_confirmed(connection, request, timeout=max(1.0, timeout))

    def ask(
        self,
        request: Request,
        *,
        timeout: float,
        limit: int | None = None,
        callback: Callback | None = None,
        is_listening: bool = False,
        is_enough: Callable[[Call], bool] = lambda _: False,
    ) -> Call:
        """Send a request, and wait for replies until ``timeout`` seconds have passed.

        Ends sooner once ``limit`` nodes have answered, or all that the request names, or if ``is_enough``.
        With ``is_listening`` the nodes are also asked for a heartbeat, and heard. Raises ConnectionLost if
        no node has answered and the broker has not confirmed the request.
        """
        _check_timeout(timeout)
        oid = str(uuid4())
        request = request._replace(
            ticket=str(uuid4()), reply_to=ReplyTo(reply_exchange(self.settings).name, oid)
        )
        enough = len(request.destination) if limit is None else limit
        call = Call(
            request,
            clock=self.clock,
            count=self._count,
            callback=callback,
            most=min(limit or MAX_NODES, MAX_NODES),
        )
        try:
            with self._connect() as connection:
                connection.subscribe(reply_queue(self.settings, oid), call.receive_reply)
                if is_listening:
                    self._listen(connection, call, timeout=timeout)
                self._publish(connection, request, timeout=timeout)
                _wait(connection, call, deadline=monotonic() + timeout, enough=enough, is_enough=is_enough)
                if not call.answered and timeout:
                    _check_confirmed(connection, request, timeout=max(1.0, timeout))
        finally:
            with self._mutex:
                self.refused.update(call.gate.refused)
        return call

    def _listen(self, connection: Connection, call: Call, *, timeout: float) -> None:
        exchange = event_exchange(self.settings.event_exchange, connection.driver)
        queue = event_queue(self.settings, exchange, unique=str(uuid4()), routing_key=WORKER_EVENTS)
        connection.subscribe(queue, call.receive_event)
        heartbeat = call.request._replace(method="heartbeat", arguments={}, ticket=None, reply_to=None)
        self._publish(connection, heartbeat, timeout=timeout)

    def _publish(self, connection: Connection, request: Request, *, timeout: float) -> None:
        stamped = request._replace(
            clock=self.clock.forward(), expires_at=time() + timeout if timeout else 0.0
        )
        headers, body = encode_request(stamped)
        connection.publish(control_exchange(self.settings), body, headers=headers)

    def _count(self, reason: str) -> None:
        with self._mutex:
            self.refused[reason] += 1


def _check_confirmed(connection: Connection, request: Request, *, timeout: float) -> None:
    if connection.unconfirmed(timeout):
        raise ConnectionLost(
            f"the broker did not confirm the command {request.method!r}; the command may or may not have "
            "been sent"
        )


def _wait(
    connection: Connection,
    call: Call,
    *,
    deadline: float,
    enough: int,
    is_enough: Callable[[Call], bool],
) -> None:
    # Celery: gives each reply the whole time anew, so that a slow trickle of replies keeps the
    # caller for as long as it lasts. Here the time is that of the call.
    while True:
        connection.drain(max(0.0, deadline - monotonic()))
        if enough and len(call.answered) >= enough:
            return
        if is_enough(call):
            return
        if monotonic() >= deadline:
            call.has_timed_out = True
            return


def _check_timeout(timeout: object) -> None:
    if not isinstance(timeout, int | float) or not isfinite(timeout) or timeout < 0:
        raise CallerError(f"timeout must be a number of seconds, 0 or more, not {timeout!r}")
