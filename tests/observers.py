"""Who sees what a dispatcher sent, by libraries that are not ours, over every end of the broker."""

import json
from base64 import b64decode
from contextlib import suppress
from threading import Event as Flag
from threading import Lock, Thread
from typing import Protocol
from uuid import uuid4

import amqp
import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer, RedisServer

__all__ = ["Observer", "RabbitObserver", "RedisObserver", "Sightings"]

_read_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode

#: Where an event comes from, and its number there.
Identity = tuple[str, int, int]


class Sightings:
    """The events that were seen, by identity, each with every spelling it came in."""

    def __init__(self) -> None:
        self.spellings: dict[Identity, set[bytes]] = {}
        #: How often an event came that was seen before.
        self.doubles = 0
        self._mutex = Lock()

    def add(self, body: bytes) -> None:
        """Note the events of one message."""
        events = [bytes(event) for event in _read_batch(body)] if body.startswith(b"[") else [body]
        with self._mutex:
            for spelled in events:
                event = json.loads(spelled)
                identity = event["hostname"], event["pid"], event["clock"]
                self.doubles += identity in self.spellings
                self.spellings.setdefault(identity, set()).add(spelled)

    @property
    def clocks(self) -> set[int]:
        with self._mutex:
            return {clock for _, _, clock in self.spellings}

    @property
    def changed(self) -> list[Identity]:
        """Those that came in more than one spelling."""
        with self._mutex:
            return [identity for identity, spellings in self.spellings.items() if len(spellings) > 1]


class Observer(Protocol):
    """Sees every event that reaches a broker while it watches."""

    sightings: Sightings

    def watch(self) -> None:
        """Watch, from now on; again after each end of the broker."""

    def catch_up(self) -> None:
        """See what has come, for brokers that keep it."""

    def stop(self) -> None:
        """Watch no more."""


class RedisObserver:
    """One subscriber by redis-py, which notes every message until its connection is lost.

    It never reconnects: a subscriber that came back late would receive the mark of :meth:`catch_up`
    without the messages before it, while the current subscriber still has to read them.
    """

    def __init__(self, server: RedisServer) -> None:
        self.sightings = Sightings()
        self._server = server
        self._stopping = Flag()
        self._thread: Thread | None = None
        #: The last mark that came by.
        self._mark = b""

    def watch(self) -> None:
        """Subscribe; on return everything that is published is seen.

        The previous subscriber first reads all that it received.
        """
        if self._thread is not None:
            self._thread.join()
        client = self._server.client()
        client.set_retry(Retry(NoBackoff(), 0))
        listener = client.pubsub()  # type: ignore[no-untyped-call]
        listener.psubscribe("/0.celeryev/*")
        while listener.get_message(timeout=10) is None:
            pass
        self._thread = Thread(target=self._read, args=(client, listener))
        self._thread.start()

    def catch_up(self) -> None:
        """Wait for a mark: all that was published before it came before it."""
        mark = uuid4().hex.encode()
        with self._server.client() as client:
            assert client.publish("/0.celeryev/mark", mark) > 0
        assert wait_until(lambda: self._mark == mark, patience=60)

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _read(self, client: redis.Redis, listener: "redis.client.PubSub") -> None:
        with client, listener, suppress(redis.ConnectionError):
            while not self._stopping.is_set():
                message = listener.get_message(timeout=0.1)
                if message is None or message["type"] != "pmessage":
                    continue
                if message["channel"] == b"/0.celeryev/mark":
                    self._mark = message["data"]
                else:
                    self.sightings.add(b64decode(json.loads(message["data"])["body"]))


class RabbitObserver:
    """A queue that keeps whatever was confirmed, over kill -9 too, and is read at the end.

    It is a quorum queue: those write every message to the disk before they confirm it.
    """

    def __init__(self, server: RabbitServer) -> None:
        self.sightings = Sightings()
        self._server = server
        self._is_declared = False

    def watch(self) -> None:
        """Declare the queue; after an end of the broker, see to it that the queue works again."""
        if self._is_declared:
            # RabbitMQ 3.10 at times leaves such a queue without a leader, and then confirms nothing.
            queue = "{'%2F_observer', node()}"
            self._server.evaluate(
                f"ok = ra:trigger_election({queue}), {{ok, _, _}} = ra:members({queue}, 10000)"
            )
            return
        with self._connect() as connection:
            channel = connection.channel()
            channel.exchange_declare("celeryev", "topic", durable=True, auto_delete=False)
            arguments = {"x-queue-type": "quorum"}
            channel.queue_declare("observer", durable=True, auto_delete=False, arguments=arguments)
            channel.queue_purge("observer")
            channel.queue_bind("observer", "celeryev", "#")
        # That there is such a queue reaches the disk seconds later by itself; a kill may come sooner.
        self._server.evaluate("ok = mnesia:sync_log(), [ok = dets:sync(Table) || Table <- dets:all()]")
        self._is_declared = True

    def catch_up(self) -> None:
        """Read the queue."""
        with self._connect() as connection:
            channel = connection.channel()
            _, waiting, _ = channel.queue_declare("observer", passive=True)
            # py-amqp decodes what says that it is a text.
            channel.basic_consume(
                "observer", no_ack=True, callback=lambda message: self.sightings.add(message.body.encode())
            )
            for _ in range(waiting):
                connection.drain_events(timeout=30)

    def stop(self) -> None:
        """Do nothing: it is not connected."""

    def _connect(self) -> amqp.Connection:
        return amqp.Connection(f"{LOOPBACK}:{self._server.port}", read_timeout=30)
