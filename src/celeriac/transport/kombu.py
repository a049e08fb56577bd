"""Any broker that kombu speaks to, by the URLs Celery takes.

Only what all of kombu's transports share is used here. RabbitMQ and Redis have
quicker ways of their own: :mod:`celeriac.transport.amqp`, :mod:`celeriac.transport.redis`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple, Self

import kombu
import kombu.transport.virtual
from kombu.exceptions import KombuError

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost, ImproperlyConfigured, NetworkError
from celeriac.masking import sanitize_url
from celeriac.model.message import Exchange, Message, Queue
from celeriac.transport.base import Deliver

__all__ = ["KombuConnection", "Peer", "translated"]

#: How often, within one heartbeat interval of the broker, a link that waits shows that it lives.
_HEARTBEAT_RATE: Final = 4
#: Messages that may be on their way to us before we acknowledge the first of them.
_PREFETCH: Final = 1000
#: What a broker says to who may not, or asked for what cannot be: to try again is no use.
_REFUSALS: Final = frozenset(
    {
        "AccessRefused",
        "AuthenticationError",
        "NoPermissionError",
        "NotAllowed",
        "PreconditionFailed",
    }
)


class Peer(NamedTuple):
    """What a link leads to, as messages and settings name it."""

    name: str = "broker"
    url: str = "broker_url"
    options: str = "broker_transport_options"


class KombuConnection:
    """One link to a broker through kombu."""

    peer: ClassVar = Peer()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._publisher: Any = None
        self._declared: set[str] = set()
        self._beat_at = 0.0
        #: What ended the link. Nothing may use it any more: kombu would make another, with no subscriptions.
        self._lost: ConnectionLost | None = None
        self._subscribers: list[Deliver] = []
        #: What came and was not delivered yet.
        self._waiting: deque[tuple[Deliver, Message]] = deque()
        try:
            self._kombu = self._new_kombu()
            transport = self._kombu.transport
        except (KeyError, ImportError) as error:
            raise ImproperlyConfigured(
                f"{self.peer.url} {self.address!r} names a transport that is not here ({error}): "
                "check its spelling, or install the library it needs"
            ) from error
        except ValueError:
            # Without what was raised: that may quote a password.
            raise ImproperlyConfigured(
                f"{self.peer.url} {self.address!r} cannot be read: check its port, and spell what is special "
                "in a password as %40 for @, %2F for / and so on"
            ) from None
        except TypeError:
            raise self._unusable() from None
        #: The family of the broker.
        self.driver: str = transport.driver_type
        #: The library that speaks to it.
        self.library: str = transport.driver_name
        #: Whether the broker asked us to publish nothing for now.
        self.is_blocked = False
        self._errors: tuple[type[Exception], ...] = (
            *transport.connection_errors,
            *transport.channel_errors,
            KombuError,
            OSError,
        )

    @property
    def address(self) -> str:
        """Where it leads, for people: a URL without its password."""
        return sanitize_url(self.settings.broker_url)

    def open(self) -> None:
        """Connect now; any other call does so by itself."""
        try:
            with self._translated():
                # Each URL once, and no pause: when to try again is for who called us to say.
                self._kombu.ensure_connection(
                    max_retries=max(len(self._kombu.alt), 1) - 1,
                    interval_start=0,
                    interval_step=0,
                    reraise_as_library_errors=False,
                )
        except (ValueError, TypeError):
            raise self._unusable() from None

    def publish(
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
        replies = {"correlation_id": correlation_id, "reply_to": reply_to}
        with self._translated():
            channel = self._publishing_channel(exchange)
            message = channel.prepare_message(
                body.decode(),
                priority=0,
                content_type="application/json",
                content_encoding="utf-8",
                headers=dict(headers or {}),
                properties={
                    **{name: value for name, value in replies.items() if value},
                    "delivery_mode": 2 if is_persistent else 1,
                },
            )
            self._send(channel, message, exchange, routing_key)

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        """Return 0: here a message has arrived when publishing returns."""
        return 0

    def subscribe(self, queue: Queue, deliver: Deliver, *, acknowledges: bool = False) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`.

        With ``acknowledges``, no more than a thousand messages may lie about that ``deliver``
        failed on: the broker then waits for what becomes of them.
        """
        with self._translated():
            # Celery: kombu's virtual transports know one queue for each exchange and channel,
            # so every subscription has a channel of its own.
            channel = self._new_channel()
            bound = kombu.Queue(
                queue.name,
                exchange=_exchange(queue.exchange),
                routing_key=queue.routing_key,
                durable=queue.is_durable,
                exclusive=queue.is_exclusive,
                auto_delete=queue.is_auto_deleted,
                message_ttl=queue.message_ttl,
                expires=queue.expires,
                max_length=queue.max_length,
            )(channel)
            bound.declare()
            if acknowledges:
                channel.basic_qos(0, _PREFETCH, False)
            self._consume(channel, bound, queue, deliver, acknowledges=acknowledges)

    def delete_queue(self, name: str) -> None:
        """Delete a queue and what waits in it."""
        with self._translated():
            channel = self._new_channel()
            # Celery: kombu's virtual transports leave a queue alone that is bound by its name only.
            if isinstance(channel, kombu.transport.virtual.Channel):
                channel.queue_purge(name)
            channel.queue_delete(name)
            channel.close()

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = None if timeout is None else monotonic() + timeout
        # An exception out of a callback leaves the messages after it here.
        while not self._waiting:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            patience = self._show_life()
            try:
                self._read(min((span for span in (left, patience) if span is not None), default=None))
            except ConnectionLost:
                # What came before the loss is delivered first; the next call says that it is lost.
                if not self._waiting:
                    raise
            if deadline is not None and monotonic() >= deadline:
                break
        return self._deliver()

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        with suppress(*self._errors):
            self._kombu.release()

    def clone(self) -> Self:
        """Return a new link to the same broker, not yet open."""
        return type(self)(self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what the quicker ways do otherwise

    def _options(self) -> dict[str, object]:
        """Return options of the transport, for what the settings leave open."""
        return {}

    def _tls(self) -> bool | Mapping[str, object]:
        """Say whether to speak TLS, or with which options."""
        return self.settings.broker_use_ssl

    def _consume(
        self,
        channel: Any,  # noqa: ARG002
        bound: Any,
        queue: Queue,
        deliver: Deliver,
        *,
        acknowledges: bool,
    ) -> None:
        self._subscribers.append(deliver)

        def receive(message: Any) -> None:
            # Delivered later, by ourselves: what a callback raises is no word of the broker's library.
            ours = _to_message(message)
            self._waiting.append((partial(settle, message) if acknowledges else deliver, ours))

        def settle(theirs: Any, message: Message) -> None:
            deliver(message)
            # If the link is lost the next call says so, and the message comes again.
            with suppress(ConnectionLost), self._translated():
                theirs.ack()

        bound.consume(f"celeriac.{queue.name}", receive, no_ack=not acknowledges)

    def _send(self, channel: Any, message: Any, exchange: Exchange, routing_key: str) -> None:
        channel.basic_publish(message, exchange.name, routing_key)

    def _read(self, timeout: float | None) -> None:
        """Take one message; none when the time passed."""
        try:
            with self._translated(), suppress(TimeoutError):
                self._kombu.drain_events(timeout=timeout)
        except (LookupError, TypeError, AttributeError, ValueError):
            # kombu stumbles over an envelope that a peer spelled badly. Whose it was is not known.
            if not self._subscribers:
                raise
            self._waiting.append((self._subscribers[0], Message(b"", fault="envelope")))

    # -- shared

    def _new_kombu(self, url: str | None = None) -> Any:
        settings = self.settings
        return kombu.Connection(
            url or settings.broker_url,
            ssl=self._tls(),
            connect_timeout=settings.broker_connection_timeout,
            heartbeat=settings.broker_heartbeat,
            login_method=settings.broker_login_method,
            # A copy, because kombu writes into it.
            transport_options=self._options() | dict(settings.broker_transport_options),
        )

    def _unusable(self) -> ImproperlyConfigured:
        # Without what was raised: that may quote a part of a password.
        return ImproperlyConfigured(
            f"{self.peer.name} {self.address} cannot be used: check its URL and {self.peer.options}, such as "
            "a database that is no number, or Sentinel without master_name"
        )

    def _new_channel(self) -> Any:
        self.open()
        return self._kombu.channel()

    def _publishing_channel(self, exchange: Exchange) -> Any:
        if self._publisher is None:
            self._publisher = self._new_channel()
        if exchange.name and exchange.name not in self._declared:
            _exchange(exchange)(self._publisher).declare()
            self._declared.add(exchange.name)
        return self._publisher

    def _deliver(self) -> int:
        """Deliver what came; return how many messages that were."""
        # No more than these: a callback may publish, and then more can come.
        delivered = len(self._waiting)
        for _ in range(delivered):
            deliver, message = self._waiting.popleft()
            deliver(message)
        return delivered

    def _show_life(self) -> float | None:
        """Send a heartbeat if it is time, and return how long the next one can wait."""
        if not self._kombu.supports_heartbeats or not self._kombu.get_heartbeat_interval():
            return None
        interval = float(self._kombu.get_heartbeat_interval()) / _HEARTBEAT_RATE
        if monotonic() >= self._beat_at:
            with self._translated():
                self._kombu.heartbeat_check(rate=_HEARTBEAT_RATE)
            self._beat_at = monotonic() + interval
        return interval

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what the broker's library raises into our own errors."""
        if self._lost is not None:
            raise ConnectionLost(str(self._lost))
        try:
            yield
        except ConnectionLost as error:
            self._lost = error
            raise
        except NetworkError:
            raise
        except self._errors as error:
            ours = translated(error, self.address, self.peer.name)
            if isinstance(ours, ConnectionLost):
                self._lost = ours
            raise ours from error


def translated(error: Exception, address: str, peer: str = "broker") -> ConnectionLost | AccessRefused:
    """Return what a broker's library raised as an error of our own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _REFUSALS:
        return AccessRefused(f"the {peer} at {address} refused us: {_text(error)}")
    return ConnectionLost(f"lost the {peer} at {address}: {_text(error)}")


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _exchange(exchange: Exchange) -> Any:
    return kombu.Exchange(exchange.name, type=exchange.type, durable=exchange.is_durable)


def _to_message(message: Any) -> Message:
    body = message.body
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if not isinstance(body, bytes | bytearray | memoryview):
        return Message(b"", fault="envelope")
    return Message(
        bytes(body),
        str(message.content_type),
        str(message.content_encoding),
        message.headers if isinstance(message.headers, dict) else {},
        str((message.delivery_info or {}).get("routing_key", "")),
        "",
        *(_property(message, name) for name in ("correlation_id", "reply_to")),
    )


def _property(message: Any, name: str) -> str:
    value = (message.properties or {}).get(name)
    return value if isinstance(value, str) else ""
