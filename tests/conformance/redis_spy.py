"""Events as they are on Redis, read with redis-py alone."""

import json
from base64 import b64decode
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import redis

__all__ = ["RedisSpy"]

_TIMEOUT = 60.0


class RedisSpy:
    """Records every event that is published from the moment it is entered."""

    def __init__(self, url: str, exchange: str = "celeryev") -> None:
        self._prefix = f"/{urlsplit(url).path.strip('/')}.{exchange}/"
        self._client = redis.Redis.from_url(url, socket_timeout=10)
        self._pubsub = self._client.pubsub()  # type: ignore[no-untyped-call]
        #: The routing key of each message, and its body.
        self.messages: list[tuple[str, Any]] = []

    def __enter__(self) -> Self:
        self._pubsub.psubscribe(f"{self._prefix}*")
        while self._pubsub.get_message(timeout=1) is None:
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pubsub.close()
        self._client.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of all messages, in order."""
        bodies = [body if isinstance(body, list) else [body] for _, body in self.messages]
        return [event for body in bodies for event in body]

    def of(self, hostname: str) -> list[dict[str, Any]]:
        """Return the events of one node."""
        return [event for event in self.events if event["hostname"] == hostname]

    def read_until(self, condition: Callable[[], bool]) -> None:
        """Read until a condition holds."""
        deadline = monotonic() + _TIMEOUT
        while not condition():
            assert monotonic() < deadline, self.messages
            message = self._pubsub.get_message(timeout=0.5)
            if message is not None:
                body = json.loads(b64decode(json.loads(message["data"])["body"]))
                self.messages.append((message["channel"].decode().removeprefix(self._prefix), body))
