"""Messages put on real brokers as they are, past every library that would mend or refuse them."""

import json
import struct
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import amqp
import redis

__all__ = ["AmqpWire", "Raw", "RedisWire", "Wire", "amqp_properties"]

#: By which a worker says that it lives.
HEARTBEAT_KEY = "worker.heartbeat"


@dataclass(frozen=True)
class Raw:
    """A message, described as its sender likes; None for what it does not say."""

    body: bytes
    content_type: str | None = "application/json"
    content_encoding: str | None = "utf-8"
    headers: Mapping[str, Any] = field(default_factory=dict)


class Wire(Protocol):
    """A way to a broker that looks at nothing."""

    def send_event(self, raw: Raw, *, routing_key: str = HEARTBEAT_KEY) -> None:
        """Send to those who receive events."""

    def send_request(self, raw: Raw) -> None:
        """Send to those who obey commands."""

    def send_task(self, queue: str, raw: Raw, **properties: Any) -> None:
        """Put into a queue of tasks, with these properties of the message in place of the usual ones."""

    def length(self, queue: str) -> int:
        """Return how many messages wait in a queue."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class RedisWire:
    """Publishes what it is given, in an envelope as kombu writes it or in none."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url, socket_timeout=10)
        self._prefix = f"/{urlsplit(url).path.strip('/')}."

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def send_event(self, raw: Raw, *, routing_key: str = HEARTBEAT_KEY) -> None:
        self.publish_event(_enveloped(raw, "celeryev", routing_key), routing_key=routing_key)

    def send_request(self, raw: Raw) -> None:
        self.publish_request(_enveloped(raw, "celery.pidbox", ""))

    def send_task(self, queue: str, raw: Raw, **properties: Any) -> None:
        usual = {"delivery_tag": token_hex(8), "delivery_mode": 2}
        self.push(queue, _enveloped(raw, "", queue, **(usual | properties)))

    def push(self, queue: str, data: bytes) -> None:
        """Put bytes that need not be an envelope into a queue of tasks."""
        self.client.lpush(queue, data)

    def publish_event(self, data: bytes, *, routing_key: str = HEARTBEAT_KEY) -> None:
        """Send bytes that need not be an envelope to those who receive events."""
        assert self.client.publish(f"{self._prefix}celeryev/{routing_key}", data), "nobody listens"

    def publish_request(self, data: bytes) -> None:
        """Send bytes that need not be an envelope to those who obey commands."""
        assert self.client.publish(f"{self._prefix}celery.pidbox", data), "nobody listens"

    def length(self, queue: str) -> int:
        waiting: Any = self.client.llen(queue)
        return int(waiting)


def _enveloped(raw: Raw, exchange: str, routing_key: str, **properties: Any) -> bytes:
    envelope = {
        "body": b64encode(raw.body).decode(),
        "content-type": raw.content_type,
        "content-encoding": raw.content_encoding,
        "headers": raw.headers,
        "properties": {
            "delivery_mode": 1,
            "delivery_info": {"exchange": exchange, "routing_key": routing_key},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": "1",
            **properties,
        },
    }
    # As kombu leaves out what is not said.
    return json.dumps({name: value for name, value in envelope.items() if value is not None}).encode()


class AmqpWire:
    """Publishes what it is given, with the properties it is given."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = amqp.Connection(
            f"{parts.hostname}:{parts.port}",
            userid=parts.username,
            password=parts.password,
            virtual_host=parts.path[1:],
        )
        self._connection.connect()
        self._channel = self._connection.channel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def send_event(self, raw: Raw, *, routing_key: str = HEARTBEAT_KEY) -> None:
        self._channel.basic_publish(_described(raw), "celeryev", routing_key)

    def send_request(self, raw: Raw) -> None:
        self._channel.basic_publish(_described(raw), "celery.pidbox", "")

    def send_task(self, queue: str, raw: Raw, **properties: Any) -> None:
        self._channel.basic_publish(_described(raw, **properties), "", queue)

    def publish_event(self, body: bytes, properties: bytes) -> None:
        """Send a body with properties that need not be any to those who receive events."""
        self._channel.basic_publish(_Verbatim(body, properties), "celeryev", "worker.heartbeat")

    def publish_request(self, body: bytes, properties: bytes) -> None:
        """Send a body with properties that need not be any to those who obey commands."""
        self._channel.basic_publish(_Verbatim(body, properties), "celery.pidbox", "")

    def length(self, queue: str) -> int:
        return int(self._channel.queue_declare(queue, durable=True, auto_delete=False).message_count)


def _described(raw: Raw, **others: Any) -> Any:
    properties = {
        "content_type": raw.content_type,
        "content_encoding": raw.content_encoding,
        "application_headers": dict(raw.headers),
        **others,
    }
    return amqp.Message(raw.body, **{name: value for name, value in properties.items() if value is not None})


class _Verbatim(amqp.Message):  # type: ignore[misc]
    """A message whose properties are bytes already."""

    def __init__(self, body: bytes, properties: bytes) -> None:
        super().__init__(body)
        self._bytes = properties

    def _serialize_properties(self) -> bytes:
        return self._bytes


#: The bits of the properties that we spell by hand.
_TYPE, _ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13


def amqp_properties(headers: bytes, *, content_type: bytes = b"application/json") -> bytes:
    """Return properties with a table of headers that is given as bytes, each entry spelled out."""
    flags = struct.pack(">H", _TYPE | _ENCODING | _HEADERS)
    texts = b"".join(bytes([len(text)]) + text for text in (content_type, b"utf-8"))
    return flags + texts + struct.pack(">I", len(headers)) + headers
