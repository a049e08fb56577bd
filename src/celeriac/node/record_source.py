"""Where a recorder's events come from: a queue that waits for it, or what is said while it listens."""

from collections.abc import Callable
from typing import Final

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Delivery, Exchange, Message, Queue
from celeriac.node.reception import Reception
from celeriac.transport.base import Connection
from celeriac.wire.names import ALL_EVENTS, event_exchange

__all__ = ["RecordSource", "record_queue"]

#: Messages that may be on their way to us before the first of them is recorded. A task.multi of Celery has
#: up to 24 events, so this is about as many events as may wait.
_PREFETCH: Final = 2000
#: The brokers that keep the messages of a queue while nobody reads it.
_KEEPING: Final = frozenset({"amqp"})
#: The exchange that leads to every queue by its name.
_DEFAULT: Final = Exchange("", "direct")
#: How long the broker may take to confirm a mark.
_PATIENCE: Final = 10.0
#: A mark is asked for this many times before the broker would forget it.
_RENEWALS: Final = 4

_NO_QUEUE: Final = "no recorder ran, and no queue kept the events for it"
_FULL_QUEUE: Final = "the queue of the recorder was full, and the broker dropped the oldest (log_queue_limit)"
_RESTARTED: Final = "the broker was restarted, and keeps no events across that"
_NOBODY: Final = "no recorder ran"


def record_queue(settings: Settings, name: str, driver: str) -> Queue:
    """Return the queue that keeps events for the recorder of a name, whether it is there or not."""
    kind = settings.task_default_queue_type
    return Queue(
        f"celeriac.record.{name}",
        event_exchange(settings.event_exchange, driver),
        ALL_EVENTS,
        is_durable=True,
        is_exclusive=False,
        is_auto_deleted=False,
        expires=settings.log_queue_expires,
        max_length=settings.log_queue_limit,
        type=None if kind == "classic" else kind,
    )


class RecordSource:
    """One link at a time, and what comes over it.

    ``take`` gets each message, and, where the broker keeps it until it is told, the delivery to
    :meth:`accept`. With ``is_passing`` no queue is kept for us on any broker.
    """

    def __init__(
        self,
        connection: Connection,
        take: Callable[[Message, Delivery | None], object],
        *,
        settings: Settings,
        name: str,
        is_passing: bool = False,
    ) -> None:
        #: Whether the broker keeps what we do not take, and what we took until it is accepted.
        self.is_kept = connection.driver in _KEEPING and not is_passing
        self.link: Connection | None = None
        #: How many messages may be on their way.
        self.prefetch = min(_PREFETCH, settings.log_pending_limit)
        self._connection = connection
        self._take = take
        self._queue = record_queue(settings, name, connection.driver)
        # Celery: events are sent so that no broker keeps them when it restarts. Neither does it keep this
        # message, which is there for nothing else; so if it is gone, events are.
        self._mark = self._queue._replace(
            name=f"{self._queue.name}.mark",
            exchange=_DEFAULT,
            routing_key=f"{self._queue.name}.mark",
            max_length=1,
        )
        self._renew_every = settings.log_queue_expires / _RENEWALS
        self._renew_at = 0.0

    def open(self, reception: Reception, *, is_paused: bool, now: float) -> str:
        """Make a link, and have events come over it; return why some may be missing, or nothing.

        While ``is_paused`` they are kept, and do not come.
        """
        link = self._connection.clone()
        try:
            if self.is_kept:
                missed = self._consume(link, is_paused=is_paused)
            else:
                link.subscribe(reception.queue(link.driver), self._deliver)
                missed = _NOBODY
        except BaseException:
            link.close()
            raise
        self.link, self._renew_at = link, now + self._renew_every
        return missed

    def pause(self) -> None:
        """Take no more; what was taken is still to be accepted."""
        if self.link is not None and self.is_kept:
            self.link.stop_consuming(self._queue.name)

    def resume(self) -> None:
        """Take again what is there."""
        if self.link is not None:
            self.link.consume(self._queue, self._take_kept, prefetch=self.prefetch)

    def accept(self, deliveries: list[Delivery]) -> None:
        """Let the broker forget what is recorded."""
        if self.link is not None:
            for delivery in deliveries:
                self.link.accept(delivery)

    def drain(self, timeout: float, *, now: float) -> int:
        """Take what is there, waiting for it; how many messages came. There must be a link."""
        if self.link is None:
            raise ConnectionLost("there is no link to take events from")
        if self.is_kept and now >= self._renew_at:
            # Nobody reads the mark, and the broker would take its queue for abandoned.
            self.link.declare(self._mark)
            self._renew_at = now + self._renew_every
        return self.link.drain(timeout)

    def wake(self) -> None:
        """Let :meth:`drain` return soon; from any thread."""
        link = self.link
        if link is not None:
            link.wake()

    def close(self) -> None:
        """End the link; a queue that keeps events stays."""
        link, self.link = self.link, None
        if link is not None:
            link.close()

    def _consume(self, link: Connection, *, is_paused: bool) -> str:
        length = link.queue_length(self._queue.name)
        has_mark = bool(link.queue_length(self._mark.name))
        try:
            link.declare(self._queue)
        except AccessRefused as error:
            raise AccessRefused(
                f"{error}; if log_queue_limit or log_queue_expires was changed, set it as it was, or record "
                "what is left there, and delete the queue"
            ) from error
        if not has_mark:
            link.declare(self._mark)
            link.publish(_DEFAULT, b"{}", routing_key=self._mark.name)
            if link.unconfirmed(_PATIENCE):
                raise ConnectionLost(f"lost the broker at {link.address}: it confirms nothing")
        if not is_paused:
            link.consume(self._queue, self._take_kept, prefetch=self.prefetch)
        if length is None:
            return _NO_QUEUE
        if self._queue.max_length is not None and length >= self._queue.max_length:
            return _FULL_QUEUE
        return "" if has_mark else _RESTARTED

    def _take_kept(self, delivery: Delivery) -> None:
        self._take(delivery.message, delivery)

    def _deliver(self, message: Message) -> None:
        self._take(message, None)
