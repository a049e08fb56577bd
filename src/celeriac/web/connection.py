"""Bounds on connections to the dashboard: how many there are, and how long and slow a request may be.

Without them one client takes the dashboard away from all others: each half-sent request holds an open file,
and when the process may open no more, nobody gets in. So one address gets a share of the connections, all of
them stay below the limit on open files, and a client whose request does not arrive in time is cut off.

A refused client gets the reason with status 503, 431 or 408. The log gets one line a minute for each status.
"""

import logging
import resource
from asyncio import TimerHandle, Transport
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.web.proxy import TrustedProxies, network_of

__all__ = ["MAX_HEAD_BYTES", "ConnectionLimits", "bounded_protocols", "limited_server_log"]

logger = logging.getLogger(__name__)

#: Of the first line and the headers of a request; browsers and proxies send a few thousand.
MAX_HEAD_BYTES: Final = 32_768
#: Seconds for a request, which has a few thousand bytes. Lower, and slow networks are cut off; higher, and
#: a slow client holds its share longer.
_REQUEST_SECONDS: Final = 10.0
#: Connections in all, if the limit on open files allows; memory is some 50 kB for each.
_MAX_CONNECTIONS: Final = 4096
#: Files that the process needs for other things: the broker, the log, the tables.
_OTHER_FILES: Final = 256
#: Parts of a WebSocket message. Browsers divide long messages into parts of some 10 kB or more.
_MAX_FRAGMENTS: Final = 64
_REASONS: Final = {
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class ConnectionLimits:
    """Counts the connections of a server; for the thread of its event loop.

    Half of the connections, by default, may have the same address: of IPv6 the same /64, which one client may
    have. Trusted proxies may have all of them: the connections of a proxy are those of many clients.
    """

    def __init__(
        self,
        total: int | None = None,
        per_address: int | None = None,
        request_seconds: float = _REQUEST_SECONDS,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self.total = _default_total() if total is None else total
        self.per_address = max(1, self.total // 2) if per_address is None else per_address
        self.request_seconds = request_seconds
        self.proxies = proxies or TrustedProxies()
        self._open: Counter[str] = Counter()
        self._log = RateLimitedLog(logger)

    @property
    def count(self) -> int:
        """The number of open connections."""
        return self._open.total()

    def refusal(self, address: str) -> str:
        """Return why an address may not connect; an empty text if it may."""
        if self._open[network_of(address)] >= self.per_address and address not in self.proxies:
            return f"{self.per_address} connections are open from this address"
        if self.count >= self.total:
            return f"{self.total} connections are open"
        return ""

    def add(self, address: str) -> None:
        """Count a connection."""
        self._open[network_of(address)] += 1

    def remove(self, address: str) -> None:
        """Count a connection no more."""
        network = network_of(address)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def log_refusal(self, status: int, address: str, reason: str) -> None:
        """Log a refusal, once a minute for each status."""
        self._log.write(logging.WARNING, str(status), "web: refused %s with %d: %s", address, status, reason)


def _default_total() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(files - _OTHER_FILES, files // 2))


@contextmanager
def limited_server_log() -> Iterator[None]:
    """Let uvicorn write each line once a minute: clients without a login cause some with every request."""
    server_logger, limit = logging.getLogger("uvicorn.error"), RateLimitedLog(logger)

    def is_due(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return record.levelno < logging.WARNING or limit.is_due(f"{record.msg} {error!r}")

    server_logger.addFilter(is_due)
    try:
        yield
    finally:
        server_logger.removeFilter(is_due)


def bounded_protocols(limits: ConnectionLimits) -> tuple[type[H11Protocol], type[WebSocketsSansIOProtocol]]:
    """Return the protocols of HTTP and of WebSockets for a server with these limits."""

    class Http(_BoundedHttp):
        """HTTP of one server."""

    class WebSocket(_CountedWebSocket):
        """WebSockets of one server."""

    Http.limits = WebSocket.limits = limits
    return Http, WebSocket


class _BoundedHttp(H11Protocol):
    limits: ConnectionLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address = ""
        self._is_counted = False
        #: Ends the connection unless a whole request has come; None while none is due.
        self._deadline: TimerHandle | None = None
        #: The end of what came of a head, and its size.
        self._tail = b""
        self._head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        refusal = self.limits.refusal(self._address)
        self._count(+1)
        if refusal:
            self._refuse(503, refusal)
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_request()
        self._count(-1)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self._is_too_long(data):
            self._refuse(431, f"request head longer than {MAX_HEAD_BYTES} bytes")
            return
        super().data_received(data)
        if self.transport.get_protocol() is not self:
            # From here on a WebSocket has the connection, and counts it.
            self._end_request()
            self._count(-1)
            return
        if self.conn.their_state is not h11.IDLE:
            self._tail, self._head_bytes = b"", 0
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_request()
        elif self._deadline is None and not self.transport.is_closing():
            self._expect_request()

    def _is_too_long(self, data: bytes) -> bool:
        """Return whether a head is too long, also if all of it comes at once."""
        end = (self._tail + data).find(b"\r\n\r\n")
        self._head_bytes += len(data) if end < 0 else end - len(self._tail)
        self._tail = (self._tail + data)[-3:]
        return self._head_bytes > MAX_HEAD_BYTES

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(
            self.limits.request_seconds,
            self._refuse,
            408,
            f"no complete request within {self.limits.request_seconds:g} seconds",
        )

    def _end_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, reason: str) -> None:
        self._end_request()
        if self.transport.is_closing():
            return
        self.limits.log_refusal(status, self._address, reason)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else the answer is on its way
            self._write_refusal(status, reason)
        self.transport.close()

    def _write_refusal(self, status: int, reason: str) -> None:
        body = f"{reason}\n".encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self.transport.write(
            f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
        )

    def _count(self, change: int) -> None:
        """Count this connection, or no more, once each."""
        if change > 0 and not self._is_counted:
            self.limits.add(self._address)
        elif change < 0 and self._is_counted:
            self.limits.remove(self._address)
        self._is_counted = change > 0


class _CountedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that counts, and whose client cannot have us keep more and more in memory for it."""

    limits: ConnectionLimits

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.limits.add(self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.remove(self._address)
        super().connection_lost(exc)

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the app; after a refusal uvicorn would log an error for each that is refused."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def _answer_ping(self) -> None:
        """Answer a ping, unless the client has read no answers for a while: they would fill the memory."""
        pong = self.conn.data_to_send()
        if self.writable.is_set():
            self.transport.write(b"".join(pong))

    def _take_part(self, event: Frame) -> None:
        """Take a part of a message; each is an object, and an empty one does not count for the size."""
        if self.close_sent:
            return
        if len(self.frames) < _MAX_FRAGMENTS:
            super().handle_cont(event)
        else:
            self._fail(CloseCode.POLICY_VIOLATION, "too many fragments")

    def send_receive_event_to_app(self) -> None:
        """Pass on a whole message; uvicorn would log a trace for each text that is not UTF-8."""
        try:
            if self.curr_msg_data_type == "text":
                b"".join(self.frames).decode()
        except UnicodeDecodeError:
            self._fail(CloseCode.INVALID_DATA, "invalid UTF-8")
        else:
            super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """Cut off a client that does not answer; one that reads nothing would never take the rest."""
        super().keepalive_timeout()
        self.transport.abort()

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.frames = []
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    # The names that uvicorn calls.
    handle_ping = _answer_ping
    handle_cont = _take_part
