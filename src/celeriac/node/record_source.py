"""Where a recorder's events come from: a queue that waits for it, or what is said while it listens."""

from collections.abc import Callable
from typing import Final

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Delivery, Exchange, Message, Queue
from celeriac.node.reception import Reception
from celeriac.transport.base import Connection
from celeriac.wire.names import ALL_EVENTS, event_exchange

__all__ = ["NameTaken", "RecordSource", "record_queue"]

#: Messages that may be on their way to us before the first of them is recorded. A task.multi of Celery has
#: up to 24 events, so this is about as many events as may wait.
_PREFETCH: Final = 2000
#: The brokers that keep the messages of a queue while nobody reads it.
_KEEPING: Final = frozenset({"amqp"})
#: The exchange that leads to every queue by its name.
_DEFAULT: Final = Exchange("", "direct")
#: How long the broker may take to confirm a mark.
_PATIENCE: Final = 10.0
#: Our queues are asked for this many times before the broker would forget them.
_RENEWALS: Final = 4
#: How often it is looked whether the queue is full.
_LOOK_EVERY: Final = 2.0
#: A broker gives a link up that has missed two beats, and RabbitMQ wants one a minute, unless told otherwise.
_BEATS: Final = 2.5
_LONGEST_BEAT: Final = 60.0
#: What RabbitMQ says of a queue that is another link's.
_LOCKED: Final = "RESOURCE_LOCKED"

#: What is left of a message once it is read.
_SETTLED: Final = Message(b"")

_NO_QUEUE: Final = "no queue stored events for the recorder"
_FULL_QUEUE: Final = "the recorder queue was full, so the broker dropped the oldest events (log_queue_limit)"
_RESTARTED: Final = (
    "the broker restarted and does not persist events, or a recorder stopped before it could report a gap"
)
_NOBODY: Final = "no recorder was running"


class NameTaken(ConnectionLost):
    """Another link has the name of this recorder: one of ours that the broker still holds, or another's."""


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

    A link that keeps events has the name of the recorder to itself: else two recorders with two logs
    would each get a part of them, and neither would know.
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
        #: To be accepted once the gap is recorded that :meth:`open` told of, and at once if there is none.
        self.owed: Delivery | None = None
        #: How long a broker may hold a link of ours that is gone.
        self.longest_hold = _BEATS * min(settings.broker_heartbeat or _LONGEST_BEAT, _LONGEST_BEAT)
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
        # It is there for as long as the link is, whether events come over that or not.
        self._lock = self._mark._replace(
            name=f"{self._queue.name}.lock",
            routing_key=f"{self._queue.name}.lock",
            is_durable=False,
            is_exclusive=True,
            expires=None,
            type=None,
        )
        self._name = name
        self._is_paused = False
        #: How many messages came since the queue was last looked at.
        self._taken = 0
        self._renew_every = settings.log_queue_expires / _RENEWALS
        self._look_every = min(_LOOK_EVERY, self._renew_every)
        self._renew_at = self._look_at = 0.0

    def open(self, reception: Reception, *, is_paused: bool, now: float) -> str:
        """Make a link, and have events come over it; return why some may be missing, or nothing.

        While ``is_paused`` they are kept, and do not come. Until :attr:`owed` is accepted, every link
        that is made tells that some are missing. Raises NameTaken if the name is another link's.
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
        self.link, self._is_paused, self._taken = link, is_paused, 0
        self._renew_at, self._look_at = now + self._renew_every, now + self._look_every
        return missed

    def pause(self) -> None:
        """Take no more; what was taken is still to be accepted."""
        if self.link is not None and self.is_kept:
            self._is_paused = True
            self.link.stop_consuming(self._queue.name)

    def resume(self) -> str:
        """Take again what is there; return why some may be missing, or nothing."""
        if self.link is None:
            return ""
        # Before any is taken: what was dropped meanwhile was dropped because the queue is full.
        is_full = self._is_full(self._length(self.link))
        self._is_paused, self._taken = False, 0
        self.link.consume(self._queue, self._take_kept, prefetch=self.prefetch)
        return _FULL_QUEUE if is_full else ""

    def accept(self, deliveries: list[Delivery]) -> None:
        """Let the broker forget what is recorded."""
        if self.link is not None:
            for delivery in deliveries:
                if delivery is self.owed:
                    self._set_mark(self.link)
                else:
                    self.link.accept(delivery)

    def look(self, *, now: float) -> str:
        """See, now and then, how our queue is; return why events may be missing, or nothing."""
        if self.link is None or not self.is_kept or now < self._look_at:
            return ""
        self._look_at = now + self._look_every
        length = self._length(self.link)
        if now >= self._renew_at:
            # Nobody reads the mark, nor the queue while we pause: the broker would take them for abandoned.
            self.link.declare(self._queue)
            self.link.declare(self._mark)
            self._renew_at = now + self._renew_every
        if self._is_paused:  # what is dropped now is told when we resume: until then the queue stays full
            return ""
        # If it is behind, it was longer by what was taken from it since.
        taken, self._taken = self._taken, 0
        return _FULL_QUEUE if length and self._is_full(length + taken) else ""

    def drain(self, timeout: float) -> int:
        """Take what is there, waiting for it; how many messages came. There must be a link."""
        if self.link is None:
            raise ConnectionLost("not connected to a broker")
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
        self._claim(link)
        length = link.queue_length(self._queue.name)
        has_mark = bool(link.queue_length(self._mark.name))
        if length is None and has_mark:
            # The queue is there again in a moment: until the gap is recorded nothing else tells of it.
            link.delete_queue(self._mark.name)
            has_mark = False
        self.owed = None if has_mark else Delivery(_SETTLED, self._mark.name, None)
        try:
            link.declare(self._queue)
        except AccessRefused as error:
            raise AccessRefused(
                f"{error}; if log_queue_limit or log_queue_expires was changed, restore it, or record the "
                "remaining events and delete the queue"
            ) from error
        if not is_paused:
            link.consume(self._queue, self._take_kept, prefetch=self.prefetch)
        if length is None:
            return _NO_QUEUE
        if self._is_full(length):
            return _FULL_QUEUE
        return "" if has_mark else _RESTARTED

    def _claim(self, link: Connection) -> None:
        try:
            link.declare(self._lock)
        except ConnectionLost as error:
            if _LOCKED not in str(error):
                raise
            raise NameTaken(
                f"another recorder named {self._name!r} is recording from {link.address}, or the broker "
                "has not detected yet that it stopped: give each recorder a unique name with --name or "
                "log_recorder"
            ) from error

    def _set_mark(self, link: Connection) -> None:
        link.declare(self._mark)
        link.publish(_DEFAULT, b"{}", routing_key=self._mark.name)
        if link.unconfirmed(_PATIENCE):
            raise ConnectionLost(f"lost the broker at {link.address}: no confirmation received")
        self.owed = None

    def _length(self, link: Connection) -> int:
        length = link.queue_length(self._queue.name)
        if length is None:  # a new link makes another, and tells of the gap
            raise ConnectionLost(f"the queue {self._queue.name!r} at {link.address} was deleted")
        return length

    def _is_full(self, length: int) -> bool:
        return self._queue.max_length is not None and length >= self._queue.max_length

    def _take_kept(self, delivery: Delivery) -> None:
        self._taken += 1
        # What is in it is in its events: that it waits to be settled is no reason to hold it twice.
        self._take(delivery.message, delivery._replace(message=_SETTLED))

    def _deliver(self, message: Message) -> None:
        self._take(message, None)
