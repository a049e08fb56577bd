"""A dispatcher on a broker in this process, whose links fail when a test says so."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Barrier, Thread
from threading import enumerate as threads
from typing import Any, Self

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Message, Queue
from celeriac.node.clock import SharedClock
from celeriac.node.dispatcher import EventDispatcher
from celeriac.transport.memory import MemoryBroker, MemoryConnection

__all__ = ["HOST", "NEVER", "PATIENCE", "Rig", "couriers", "in_threads"]

#: Far more than needed, for a busy machine.
PATIENCE = 30.0
#: Settings by which nothing is tried again within a test.
NEVER = {"broker_retry_base": 3600.0, "broker_retry_cap": 3600.0}
HOST = "celery@web1"


def couriers() -> list[str]:
    """Return the threads of couriers that do not end. One with nothing left to do may need a moment."""
    found = [thread for thread in threads() if thread.name.startswith("celeriac-courier")]
    for thread in found:
        thread.join(PATIENCE)
    return [thread.name for thread in found if thread.is_alive()]


def in_threads(number: int, run: Callable[[int], object]) -> None:
    """Run something in so many threads at once, with the number of each."""
    barrier = Barrier(number)

    def start(mine: int) -> None:
        barrier.wait()
        run(mine)

    started = [Thread(target=start, args=(mine,)) for mine in range(number)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def nothing() -> None:
    """Do nothing."""


class Rig:
    """A broker, links to it that can be told to fail, and what came through."""

    def __init__(self, **settings: Any) -> None:
        self.broker = MemoryBroker()
        # Short waits, so that who waits for the broker to be back does not wait for long.
        self.settings = Settings(**{"broker_retry_base": 0.001, "broker_retry_cap": 0.01, **settings})
        self.clock = SharedClock()
        #: Called before a link is made, before and after a message is published, and by who asks whether
        #: it arrived. Whatever they raise, the link raises.
        self.before_open: Callable[[], object] = nothing
        self.before_publish: Callable[[], object] = nothing
        self.after_publish: Callable[[], object] = nothing
        self.unconfirmed: Callable[[], int] = int
        #: How often a link was asked to publish.
        self.attempts = 0

    def dispatcher(self, **options: Any) -> EventDispatcher:
        """Return a new dispatcher on the broker."""
        return EventDispatcher(
            Link(self), settings=self.settings, clock=self.clock, **{"hostname": HOST, **options}
        )

    @property
    def messages(self) -> list[Message]:
        """Every message that reached the broker, in order."""
        return [message for _, message in self.broker.published]

    @property
    def keys(self) -> list[str]:
        return [message.routing_key for message in self.messages]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every event that reached the broker, in order."""
        bodies = [json.loads(message.body) for message in self.messages]
        return [event for body in bodies for event in (body if isinstance(body, list) else [body])]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def clocks(self) -> list[Any]:
        return [event.get("clock") for event in self.events]

    def fail(self, *, times: int = 1, error: type[BaseException] = ConnectionLost) -> Callable[[], None]:
        """Return something that raises so many times, and then no more."""
        left = [times]

        def raise_or_not() -> None:
            if left[0]:
                left[0] -= 1
                raise error("on purpose")

        return raise_or_not

    def listen(self) -> "Arrivals":
        """Begin to wait for what comes from now on."""
        return Arrivals(self.broker)


class Arrivals:
    """Waits for messages, over every cut of the broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        exchange = Exchange("celeryev", "topic", is_durable=True)
        self._broker = broker
        self._queue = Queue(
            "arrivals", exchange, "#", is_durable=True, is_exclusive=False, is_auto_deleted=False
        )
        self._connect()
        self.count = 0

    def wait(self, number: int) -> int:
        """Wait until so many messages came in all, and return how many did."""
        while self.count < number:
            try:
                if self._link.drain(PATIENCE) == 0:
                    break
            except ConnectionLost:
                self._connect()
        return self.count

    def _connect(self) -> None:
        self._link = self._broker.connect()
        with suppress(ConnectionLost):
            self._link.subscribe(self._queue, self._receive)

    def _receive(self, _: Message) -> None:
        self.count += 1


class Link(MemoryConnection):
    """A link that asks its rig whether to fail."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.broker)
        self.rig = rig

    def open(self) -> None:
        self.rig.before_open()
        super().open()

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
        priority: int = 0,
        expiration: float | None = None,
    ) -> None:
        self.rig.attempts += 1
        self.rig.before_publish()
        super().publish(
            exchange,
            body,
            routing_key=routing_key,
            headers=headers,
            is_persistent=is_persistent,
            correlation_id=correlation_id,
            reply_to=reply_to,
            priority=priority,
            expiration=expiration,
        )
        self.rig.after_publish()

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        return self.rig.unconfirmed()

    def clone(self) -> Self:
        return type(self)(self.rig)
