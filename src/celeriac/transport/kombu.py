"""Any broker that kombu speaks to, by the URLs Celery takes.

Only what all of kombu's transports share is used here. RabbitMQ and Redis have
quicker ways of their own: :mod:`celeriac.transport.amqp`, :mod:`celeriac.transport.redis`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import kombu
from kombu.exceptions import KombuError

from celeriac.config import Settings, sanitize_url
from celeriac.errors import AccessRefused, ConnectionLost, ImproperlyConfigured
from celeriac.model.message import Exchange, Message, Queue
from celeriac.transport.base import Deliver

__all__ = ["KombuConnection", "to_message", "translated"]

#: How often, within one heartbeat interval of the broker, a link that waits shows that it lives.
_HEARTBEAT_RATE: Final = 4
#: What a broker says to who may not, or asked for what cannot be: to try again is no use.
_REFUSALS: Final = frozenset(
    {
        "AccessRefused",
        "AuthenticationError",
        "NoPermissionError",
        "NotAllowed",
        "PreconditionFailed",
        "ResourceLocked",
    }
)


class KombuConnection:
    """One link to a broker through kombu."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # A copy, because kombu writes into it.
        self._kombu = kombu.Connection(
            settings.broker_url,
            ssl=settings.broker_use_ssl,
            connect_timeout=settings.broker_connection_timeout,
            heartbeat=settings.broker_heartbeat,
            login_method=settings.broker_login_method,
            transport_options=dict(settings.broker_transport_options),
        )
        self._publisher: Any = None
        self._declared: set[str] = set()
        self._beat_at = 0.0
        try:
            transport = self._kombu.transport
        except (KeyError, ImportError) as error:
            raise ImproperlyConfigured(
                f"broker_url {self.address!r} names a transport that is not here ({error}): "
                "check its spelling, or install the library it needs"
            ) from error
        #: The family of the broker.
        self.driver: str = transport.driver_type
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
        with self._translated():
            self._kombu.ensure_connection(max_retries=1, timeout=self.settings.broker_connection_timeout)

    def publish(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        routing_key: str = "",
        headers: Mapping[str, object] | None = None,
        is_persistent: bool = False,
    ) -> None:
        """Send one JSON message."""
        with self._translated():
            channel = self._publishing_channel(exchange)
            message = channel.prepare_message(
                body.decode(),
                priority=0,
                content_type="application/json",
                content_encoding="utf-8",
                headers=dict(headers or {}),
                properties={"delivery_mode": 2 if is_persistent else 1},
            )
            self._send(channel, message, exchange, routing_key)

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        """Return 0: here a message has arrived when publishing returns."""
        return 0

    def subscribe(self, queue: Queue, deliver: Deliver) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`."""
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
            self._consume(channel, bound, deliver)

    def drain(self, timeout: float | None = None) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            patience = self._show_life()
            wait = min((span for span in (left, patience) if span is not None), default=None)
            delivered = self._read(wait)
            if delivered or (deadline is not None and monotonic() >= deadline):
                return delivered

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

    def _new_channel(self) -> Any:
        return self._kombu.channel()

    def _consume(self, channel: Any, queue: Any, deliver: Deliver) -> None:  # noqa: ARG002
        queue.consume(f"celeriac.{queue.name}", to_message(deliver), no_ack=True)

    def _send(self, channel: Any, message: Any, exchange: Exchange, routing_key: str) -> None:
        channel.basic_publish(message, exchange.name, routing_key)

    def _read(self, timeout: float | None) -> int:
        """Deliver one message; 0 when the time passed."""
        with self._translated():
            try:
                self._kombu.drain_events(timeout=timeout)
            except TimeoutError:
                return 0
        return 1

    # -- shared

    def _publishing_channel(self, exchange: Exchange) -> Any:
        if self._publisher is None:
            self._publisher = self._new_channel()
        if exchange.name and exchange.name not in self._declared:
            _exchange(exchange)(self._publisher).declare()
            self._declared.add(exchange.name)
        return self._publisher

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
        try:
            yield
        except self._errors as error:
            raise translated(error, self.address) from error


def translated(error: Exception, address: str) -> ConnectionLost | AccessRefused:
    """Return what a broker's library raised as an error of our own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _REFUSALS:
        return AccessRefused(f"the broker at {address} refused us: {_text(error)}")
    return ConnectionLost(f"lost the broker at {address}: {_text(error)}")


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _exchange(exchange: Exchange) -> Any:
    return kombu.Exchange(exchange.name, type=exchange.type, durable=exchange.is_durable)


def to_message(deliver: Deliver) -> Callable[[Any], object]:
    """Return a callback for kombu that hands its messages on as ours."""

    def receive(message: Any) -> object:
        body = message.body
        return deliver(
            Message(
                body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body or b""),
                str(message.content_type),
                str(message.content_encoding),
                message.headers if isinstance(message.headers, dict) else {},
                str((message.delivery_info or {}).get("routing_key", "")),
            )
        )

    return receive
