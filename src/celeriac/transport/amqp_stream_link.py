"""A link to RabbitMQ that reads and writes streams: queues that keep what was read, each in its place."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Exchange, Message
from celeriac.transport.amqp import AmqpConnection
from celeriac.transport.amqp_consumer import AmqpConsumer
from celeriac.transport.amqp_reader import read_by_amqp
from celeriac.transport.kombu_link import Peer, error_text

__all__ = ["ArbiterLink", "Follow", "StreamBehind", "StreamLink", "arbiter_settings"]

#: What is done with each message of a stream: its place, and its body.
Follow = Callable[[int, bytes], object]

#: Messages that may be on their way before we acknowledge: many, since thousands are read at once at first.
_PREFETCH: Final = 2000
#: Waits in making a link, and in a call: to be connected, and for an answer.
_STEPS: Final = 3
#: What a queue is refused with; of a type that is switched off, RabbitMQ 3.10 says that it failed itself.
_ABOUT_QUEUES: Final = frozenset({"PreconditionFailed", "AMQPNotImplementedError", "InternalError"})
_NO_STREAMS: Final = re.compile(r"feature flag|queue.type")
#: What it says of a stream that a node has not yet. Where many make one in the same moment it may not even
#: say that, but fail: a stream that was there a moment ago is not yet to be followed in either case.
_NOT_YET: Final = re.compile(r"replica|INTERNAL_ERROR")
#: The header that RabbitMQ adds.
_PLACE: Final = "x-stream-offset"
#: The exchange that leads to every queue by its name.
DEFAULT_EXCHANGE: Final = Exchange("", "direct")


class StreamBehind(ConnectionLost):
    """A node of the broker has a stream not yet: it was made, or the node was started, a moment ago."""


def arbiter_settings(settings: Settings) -> Settings:
    """Return settings whose broker is who decides elections.

    Of another one than the broker, the URL says all: options of the broker may be of another family.
    """
    if settings.election_url is None:
        return settings
    return replace(
        settings, broker_url=settings.election_url, broker_use_ssl=False, broker_transport_options={}
    )


class ArbiterLink(AmqpConnection):
    """A link to who decides elections, of which no step takes longer than a part of ``timeout``."""

    peer = Peer("arbiter")

    def __init__(self, settings: Settings, *, timeout: float) -> None:
        steps = _STEPS + settings.broker_url.count(";")
        self._step = max(0.05, min(settings.broker_connection_timeout, timeout / steps))
        super().__init__(replace(settings, broker_connection_timeout=self._step))

    def _options(self) -> dict[str, object]:
        return {"read_timeout": self._step, "write_timeout": self._step}


class _StreamConsumer(AmqpConsumer):
    """Reads one stream; each message has a header of its own."""

    is_for_tasks = True


class StreamLink(ArbiterLink):
    """A link that follows streams, and publishes to them by :meth:`write`."""

    def __init__(self, settings: Settings, *, timeout: float) -> None:
        super().__init__(settings, timeout=timeout)
        #: One channel for each stream: what is acknowledged on a channel is all that came by it.
        self._reading: list[Any] = []

    def declare_stream(self, name: str, arguments: Mapping[str, object]) -> bool:
        """Make a stream, unless it is there; say whether the broker has such a thing at all."""
        with self._translated():
            channel = self._new_channel()
            try:
                channel.queue_declare(
                    name, durable=True, auto_delete=False, arguments={"x-queue-type": "stream", **arguments}
                )
            except self._errors as error:
                text = error_text(error)
                if type(error).__name__ not in _ABOUT_QUEUES:
                    raise
                if "inequivalent" in text:
                    # To read on would be wrong: who keeps records for another time judges otherwise.
                    raise AccessRefused(
                        f"the arbiter at {self.address} has a queue {name!r} with other arguments "
                        f"({text}): use the same election_retain on all nodes, or delete the queue while "
                        "no node runs"
                    ) from error
                if _NO_STREAMS.search(text):
                    return False
                raise
            channel.close()
            return True

    def follow(self, name: str, *, start: int | str, max_bytes: int, follow: Follow) -> None:
        """Hand what a stream has from a place on to ``follow``, within :meth:`drain`."""
        with self._translated():
            channel = self._new_channel()
            channel.basic_qos(0, _PREFETCH, False)
            self._reading.append(channel)

            def deliver(message: Message) -> None:
                place = message.headers.get(_PLACE)
                if not isinstance(place, int):
                    raise AccessRefused(
                        f"the arbiter at {self.address} did not create {name!r} as a stream: use RabbitMQ "
                        "3.9 or later, or name another arbiter in election_url"
                    )
                follow(place, message.body)

            consumer = _StreamConsumer(channel, deliver, max_bytes=max_bytes, acknowledges=True)

            def receive(message: Any) -> None:
                number = message.delivery_info["delivery_tag"]
                self._put_in_line(consumer.receiver(number), read_by_amqp(message))

            tag = f"celeriac.{name}"
            self._reader.consumers[channel.channel_id, tag.encode()] = consumer
            self._acknowledging.append(consumer)
            try:
                # py-amqp takes by itself what comes while it waits for an answer of the broker.
                channel.basic_consume(
                    name, consumer_tag=tag, callback=receive, no_ack=False, arguments={_PLACE: start}
                )
            except self._errors as error:
                if not _NOT_YET.search(error_text(error)):
                    raise
                raise StreamBehind(
                    f"the stream {name!r} of the arbiter at {self.address} is not available "
                    f"({error_text(error)}): wait until it is, or use the URL of a node that stores it"
                ) from error

    def write(self, name: str, body: bytes) -> None:
        """Publish to a stream."""
        self.publish(DEFAULT_EXCHANGE, body, routing_key=name, is_persistent=True)

    def catch_up(self) -> None:
        """Deliver all that the broker had for us when it was asked."""
        is_behind = True
        while is_behind:
            with self._translated():
                for channel in self._reading:
                    # It changes nothing; but what was on its way comes before the answer.
                    channel.basic_qos(0, _PREFETCH, False)
            is_behind = self._deliver() > 0
