"""Results as messages: each comes once, to a queue of the client that sent the task."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, Self

from celeriac.config import Settings
from celeriac.errors import CallerError, ConnectionLost, NetworkError, PeerError
from celeriac.model.message import Exchange, Message, Queue
from celeriac.model.result import ResultMeta, StoredResult
from celeriac.transport.base import Connection
from celeriac.transport.result_link import Arrived, News
from celeriac.wire.envelope import body_of
from celeriac.wire.result import decode, encode_many

__all__ = ["RpcResultLink", "RpcResultSender"]

#: The exchange that leads to every queue by its name.
_DEFAULT: Final = Exchange("", "direct")
#: How long results wait for a client that is away; then it is taken to be gone for good.
_QUEUE_EXPIRES: Final = 3600.0
#: How long one look at the broker takes at most: somebody may want to interrupt.
_SLICE: Final = 0.5
#: Links kept for the next sends: each is a connection that the broker keeps too.
_MAX_IDLE: Final = 4
#: Why a message is refused, and what to do about it.
_TOO_LONG: Final = "too long: raise result_max_bytes, or return less from the task"
_FIXES: Final = {
    "body-size": _TOO_LONG,
    "envelope-size": _TOO_LONG,
    "content-type": "not JSON: set result_serializer to json on the workers",
    "content-encoding": "not UTF-8: set result_serializer to json on the workers",
    "compression": "unknown compression: send results uncompressed",
}
_UNKNOWN: Final = "invalid message: send results as Celery does"


class RpcResultLink:
    """A link to the queue where the results of one client wait.

    The queue outlives the link, so that a link that is lost loses nothing. What is lost with a
    broker that restarts is what was not sent as persistent.
    """

    has_store = False

    def __init__(self, connection: Connection, *, queue_name: str, settings: Settings) -> None:
        #: How many messages were refused, by reason.
        self.refused: Counter[str] = Counter()
        self._connection = connection
        self._settings = settings
        self._queue = Queue(
            queue_name,
            _DEFAULT,
            queue_name,
            is_durable=True,
            is_exclusive=False,
            is_auto_deleted=False,
            expires=_QUEUE_EXPIRES,
            max_bytes=settings.result_max_bytes,
        )
        self._is_open = False
        self._is_rung = False
        self._news: list[News] = []

    @property
    def address(self) -> str:
        """Where it leads, for people: a URL without its password."""
        return self._connection.address

    def open(self) -> None:
        """Connect and declare the queue; raises ConnectionLost, or AccessRefused."""
        if not self._is_open:
            self._connection.subscribe(self._queue, self._receive, acknowledges=True)
            self._is_open = True

    def subscribe(self, task_ids: Sequence[str]) -> None:
        """Do nothing: every result comes by itself."""

    def unsubscribe(self, task_ids: Sequence[str]) -> None:
        """Do nothing."""

    def read(self, task_ids: Sequence[str]) -> None:
        """Do nothing: there is nowhere to read."""

    def drain(self, timeout: float) -> list[News]:
        """Return what came, waiting up to ``timeout`` seconds for the first of it."""
        if not self._is_open:
            raise ConnectionLost(f"the connection to {self.address} is not open")
        deadline = monotonic() + timeout
        while True:
            is_rung = self._is_rung
            if is_rung:
                self._is_rung = False
            left = 0.0 if is_rung else deadline - monotonic()
            self._connection.drain(min(_SLICE, max(0.0, left)))
            if self._news or left <= 0:
                break
        news, self._news = self._news, []
        return news

    def interrupt(self) -> None:
        """End a :meth:`drain` that waits now, within half a second, or else the next one; from anywhere."""
        self._is_rung = True

    def close(self) -> None:
        """End the link and leave the queue; closing twice is fine, and no error comes out of it."""
        self._is_open = False
        self._connection.close()

    def delete(self) -> None:
        """End the link for good: delete the queue too, if the broker can be reached."""
        with suppress(NetworkError):
            self._connection.delete_queue(self._queue.name)
        self.close()

    def clone(self) -> Self:
        """Return a new link to the same queue, not yet open."""
        return type(self)(self._connection.clone(), queue_name=self._queue.name, settings=self._settings)

    def _receive(self, message: Message) -> None:
        max_bytes = self._settings.result_max_bytes
        try:
            meta = decode(body_of(message, max_bytes=max_bytes), task_id=None, max_bytes=max_bytes)
        except PeerError as error:
            self.refused[str(error)] += 1
            meta = ResultMeta("", "", fault=_FIXES.get(str(error), _UNKNOWN))
        # Celery: who replies says for which task.
        task_id = meta.task_id or message.correlation_id
        if task_id:
            self._news.append(Arrived(meta._replace(task_id=task_id), len(message.body)))
        else:
            self.refused["task-id"] += 1


class RpcResultSender:
    """Sends results to the clients that wait for them, from any number of threads and greenlets at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # A deque needs no lock: it is left and entered at one end in one step.
        self._idle: deque[Connection] = deque()
        self._is_closed = False

    def send(
        self, meta: ResultMeta, *, reply_to: str, correlation_id: str, is_persistent: bool, timeout: float
    ) -> None:
        """Send a result to a queue; on return the broker has it.

        Raises ConnectionLost if it does not confirm that within ``timeout`` seconds; the result may
        have arrived all the same. If nobody has such a queue any more it goes nowhere.
        """
        self.send_many(
            [StoredResult(meta, reply_to, correlation_id)], is_persistent=is_persistent, timeout=timeout
        )

    def send_many(self, results: Sequence[StoredResult], *, is_persistent: bool, timeout: float) -> None:
        """Send results to their queues as :meth:`send` does, and wait for the broker once.

        One that cannot be spelled keeps no other from being sent: CallerError is raised after that.
        """
        documents, unspellable = encode_many(result.meta for result in results)
        deadline = monotonic() + timeout

        def publish(link: Connection) -> None:
            nonlocal unspellable
            for (meta, reply_to, correlation_id), body in zip(results, documents, strict=True):
                if body is None:
                    continue
                try:
                    link.publish(
                        _DEFAULT,
                        body,
                        routing_key=reply_to,
                        is_persistent=is_persistent,
                        correlation_id=correlation_id or meta.task_id,
                    )
                except CallerError as error:  # such as an id that is too long for RabbitMQ
                    unspellable = unspellable or error
            if link.unconfirmed(max(0.0, deadline - monotonic())):
                raise ConnectionLost(
                    f"the broker at {link.address} did not confirm a result within {timeout:.3g} s"
                )

        if any(document is not None for document in documents):
            self._publish(publish, deadline)
        if unspellable is not None:
            raise unspellable

    def close(self) -> None:
        """End the links; those in use end with their sends. Closing twice is fine."""
        self._is_closed = True
        while (link := self._taken()) is not None:
            link.close()

    def _publish(self, publish: Callable[[Connection], None], deadline: float) -> None:
        idle = self._taken()
        if idle is not None:
            try:
                return self._use(idle, publish)
            except ConnectionLost:
                # It may have been gone for long, where nobody told us. Who gets a result twice takes one.
                if monotonic() >= deadline:
                    raise
        return self._use(self._connection.clone(), publish)

    def _use(self, link: Connection, publish: Callable[[Connection], None]) -> None:
        try:
            publish(link)
        except BaseException:
            link.close()
            raise
        self._idle.append(link)
        while len(self._idle) > (0 if self._is_closed else _MAX_IDLE):
            with suppress(IndexError):  # another was quicker
                self._idle.popleft().close()

    def _taken(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
