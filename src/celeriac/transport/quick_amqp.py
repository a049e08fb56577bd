"""RabbitMQ for one request and its replies: py-amqp, without kombu."""

from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import amqp
from amqp.exceptions import AMQPError

from celeriac.config import Settings
from celeriac.masking import sanitize_url
from celeriac.model.message import Exchange, Message, Queue
from celeriac.transport.base import Deliver
from celeriac.transport.quick import BrokerAddress
from celeriac.transport.translation import translated

__all__ = ["QuickAmqp"]

_ERRORS: Final = (AMQPError, OSError)


class QuickAmqp:
    """Publishes to exchanges, and takes what comes to queues of its own, until it is closed."""

    driver = "amqp"

    def __init__(self, settings: Settings, at: BrokerAddress) -> None:
        self._address = sanitize_url(settings.broker_url)
        timeout = settings.broker_connection_timeout
        # As kombu has them: the first user of a new RabbitMQ, and its first virtual host.
        self._link = amqp.Connection(
            host=f"{at.host}:{at.port}",
            userid=at.user or "guest",
            password=at.password or "guest",
            virtual_host=at.path or "/",
            connect_timeout=timeout,
            read_timeout=timeout,
            write_timeout=timeout,
        )
        self._made: Any = None
        self._declared: set[str] = set()

    def publish(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        routing_key: str = "",
        headers: Mapping[str, object] | None = None,
    ) -> None:
        """Send one JSON message."""
        try:
            channel = self._declare(exchange)
            message = amqp.Message(
                body,
                content_type="application/json",
                content_encoding="utf-8",
                application_headers=dict(headers or {}),
                delivery_mode=1,
            )
            channel.basic_publish(message, exchange=exchange.name, routing_key=routing_key)
        except _ERRORS as error:
            raise translated(error, self._address) from error

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002 - the reply is the confirmation
        """Return 0: the reply confirms the one request there is."""
        return 0

    def subscribe(self, queue: Queue, deliver: Deliver) -> None:
        """Declare and bind a queue, and hand what comes to ``deliver``, within :meth:`drain`."""
        times = {"x-message-ttl": queue.message_ttl, "x-expires": queue.expires}
        try:
            channel = self._declare(queue.exchange)
            channel.queue_declare(
                queue.name,
                durable=queue.is_durable,
                exclusive=queue.is_exclusive,
                auto_delete=queue.is_auto_deleted,
                arguments={name: int(value * 1000) for name, value in times.items() if value is not None},
            )
            channel.queue_bind(queue.name, queue.exchange.name, queue.routing_key)
            channel.basic_consume(
                queue.name, no_ack=True, callback=lambda message: deliver(_to_message(message))
            )
        except _ERRORS as error:
            raise translated(error, self._address) from error

    def drain(self, timeout: float = 0.0) -> int:
        """Deliver what is there, waiting up to ``timeout`` seconds for the first message."""
        deadline = monotonic() + timeout
        try:
            # At no time at all py-amqp would wait without end.
            self._link.drain_events(timeout=max(0.001, deadline - monotonic()))
        except TimeoutError:
            return 0
        except _ERRORS as error:
            raise translated(error, self._address) from error
        return 1

    def _declare(self, exchange: Exchange) -> Any:
        """Return the channel, on which the exchange is declared."""
        if self._made is None:
            self._link.connect()
            self._made = self._link.channel()
            self._made.auto_decode = False
        if exchange.name not in self._declared:
            self._made.exchange_declare(
                exchange.name, exchange.type, durable=exchange.is_durable, auto_delete=False
            )
            self._declared.add(exchange.name)
        return self._made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._link.close()
        except _ERRORS:
            self._link.collect()


def _to_message(message: Any) -> Message:
    body = message.body
    headers = message.properties.get("application_headers")
    return Message(
        body.encode() if isinstance(body, str) else bytes(body),
        str(message.properties.get("content_type", "")),
        str(message.properties.get("content_encoding", "")),
        headers if isinstance(headers, dict) else {},
        str(message.delivery_info.get("routing_key", "")),
    )
