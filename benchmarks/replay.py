"""Results, stored again in the way in which a worker of Celery stored them, but at full speed."""

import json
import socket
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import hiredis
from kombu import Connection

__all__ = ["RedisReplay", "RpcReplay", "key_of"]

#: What Celery keeps results for unless told otherwise: a day.
_EXPIRES: Final = b"86400"
#: What Redis answers to one result: OK, two times QUEUED, and what became of both.
_ANSWERS: Final = 4
_READ_BYTES: Final = 1 << 18


def key_of(task_id: str) -> str:
    """Return the key, and the channel, of a task's result."""
    return f"celery-task-meta-{task_id}"


class RedisReplay:
    """Stores results in Redis: MULTI, SETEX, PUBLISH, EXEC for each, as the backend of Celery does.

    All are written down before the clock starts and are sent without waiting for answers, so that
    hardly anything but Redis limits how fast they come.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def store(self, documents: Mapping[str, bytes]) -> float:
        """Store these, and return when the first was sent."""
        commands = b"".join(_transaction(task_id, document) for task_id, document in documents.items())
        begun = monotonic()
        self._socket.sendall(commands)
        self._await_answers(len(documents))
        return begun

    def store_now(self, task_id: str, document: dict[str, Any]) -> None:
        """Store one whose value is the moment at which it is stored."""
        body = json.dumps(document | {"result": monotonic()}).encode()
        self._socket.sendall(_transaction(task_id, body))
        self._await_answers(1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _await_answers(self, results: int) -> None:
        left = results * _ANSWERS
        reader = hiredis.Reader()
        while left:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise SystemExit("Redis closed the connection that stores results")
            reader.feed(data)
            while (answer := reader.gets()) is not False:
                if isinstance(answer, Exception):
                    raise SystemExit(f"Redis did not store a result: {answer}")
                left -= 1


class RpcReplay:
    """Sends results to the queue of a client, as the backend ``rpc://`` of Celery does."""

    def __init__(self, url: str, queue: str) -> None:
        self._connection = Connection(url)
        self._channel = self._connection.channel()
        self._queue = queue

    def store(self, documents: Mapping[str, bytes]) -> float:
        """Send these, and return when the first was sent."""
        messages = [
            self._channel.prepare_message(
                document,
                content_type="application/json",
                content_encoding="utf-8",
                properties={"correlation_id": task_id, "delivery_mode": 1},
            )
            for task_id, document in documents.items()
        ]
        begun = monotonic()
        for message in messages:
            self._channel.basic_publish(message, exchange="", routing_key=self._queue)
        return begun

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _transaction(task_id: str, document: bytes) -> bytes:
    key = key_of(task_id).encode()
    return b"".join(
        (
            _command((b"MULTI",)),
            _command((b"SETEX", key, _EXPIRES, document)),
            _command((b"PUBLISH", key, document)),
            _command((b"EXEC",)),
        )
    )


def _command(words: Iterable[bytes]) -> bytes:
    words = tuple(words)
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
