"""Sends tasks: what was sent when a call returns has arrived."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import random
from time import monotonic, sleep, time
from typing import Final
from weakref import finalize

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange
from celeriac.model.task_request import Posting
from celeriac.node.per_process import PerProcess
from celeriac.transport.base import Connection
from celeriac.wire.field import is_name
from celeriac.wire.names import task_queue
from celeriac.wire.task_request import Spelled, encode

__all__ = ["SEND_PATIENCE", "TaskSender"]

#: How long sending is tried: a broker that restarts, or fails over, is mostly back by then, and whoever
#: called waits no longer than for a slow page.
SEND_PATIENCE: Final = 10.0

#: The exchange that leads to every queue by its name.
_DEFAULT: Final = Exchange("", "direct")
#: Links kept for the next calls: each is a connection that the broker keeps too.
_MAX_IDLE: Final = 4
#: Nobody shows life on an idle link, so a broker, or a wall between, may have dropped it after so long.
_MAX_IDLE_SECONDS: Final = 10.0
#: Messages on their way before confirmations are waited for.
_CHUNK: Final = 256
#: Queues known to be declared, for each link: names may come from peers.
_MAX_DECLARED: Final = 1000


class TaskSender:
    """Sends tasks over links of its own, from any number of threads and greenlets at once.

    ``connect`` makes a link to the broker. A forked child makes its own.
    """

    def __init__(self, connect: Callable[[], Connection], *, settings: Settings) -> None:
        self._connect = connect
        self._settings = settings
        self._links = PerProcess(_Links)
        # At the end of the program too: to leave without a word makes brokers complain.
        finalize(self, _end, self._links)

    def post(
        self,
        postings: Sequence[Posting],
        *,
        timeout: float = SEND_PATIENCE,
        on_published: Callable[[], object] | None = None,
    ) -> None:
        """Send messages in their order; on return the broker has them all.

        ``on_published`` is called once, when all are written and before the broker has confirmed them.

        Tried again, over a fresh link, for ``timeout`` seconds while the broker cannot be reached; then
        ConnectionLost is raised. A message may arrive twice if a link was lost before the broker confirmed
        it, with the same id, and may have arrived if this raises. AccessRefused is raised at once.
        """
        spelled = [(posting, encode(posting.request)) for posting in postings]
        mail = _Mail(spelled, monotonic() + timeout, on_published)
        settings = self._settings
        backoff = Backoff(base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=random)
        links = self._links.get()
        while mail.left:
            idle = links.take()
            link = idle or _Link(self._connect())
            try:
                self._send(link, mail)
            except ConnectionLost:
                link.close()
                # An idle link may have been gone for long, which says nothing of the broker.
                wait = 0.0 if idle else backoff.next()
                if monotonic() + wait >= mail.deadline:
                    raise
                sleep(wait)
            except BaseException:
                link.close()
                raise
            else:
                links.put_back(link)

    def close(self) -> None:
        """End the links; those in use end with their calls. To send again makes new ones."""
        _end(self._links)

    def _send(self, link: "_Link", mail: "_Mail") -> None:
        while mail.left:
            chunk = mail.left[:_CHUNK]
            for posting, spelled in chunk:
                self._publish(link, posting, spelled)
            if len(chunk) == len(mail.left):
                mail.report_published()
            missing = link.connection.unconfirmed(max(0.0, mail.deadline - monotonic()))
            # In their order: the last ones are missing.
            del mail.left[: len(chunk) - min(missing, len(chunk))]
            if missing:
                why = "is blocking publishers" if link.connection.is_blocked else "does not confirm messages"
                raise ConnectionLost(f"the broker at {link.connection.address} {why}")

    def _publish(self, link: "_Link", posting: Posting, spelled: Spelled) -> None:
        request = posting.request
        if not posting.exchange:
            link.declare(posting.routing_key, self._settings)
        correlation_id = request.correlation_id or request.id
        link.connection.publish(
            Exchange(posting.exchange, "direct", is_durable=True) if posting.exchange else _DEFAULT,
            spelled.body,
            routing_key=posting.routing_key,
            headers=spelled.headers,
            is_persistent=True,
            # AMQP has no room for a longer one, and who replies can take the id.
            correlation_id=correlation_id if is_name(correlation_id) else "",
            reply_to=request.reply_to,
            priority=posting.priority or 0,
            expiration=None if request.expires is None else max(0.0, request.expires - time()),
        )


def _end(links: "PerProcess[_Links]") -> None:
    own = links.pop()  # a forked child does not say goodbye for its parent
    if own is not None:
        own.close()


class _Mail:
    """The messages of one call, its deadline, and who wants to know that they are published."""

    def __init__(
        self,
        left: list[tuple[Posting, Spelled]],
        deadline: float,
        on_published: Callable[[], object] | None,
    ) -> None:
        self.left = left
        self.deadline = deadline
        self._on_published = on_published

    def report_published(self) -> None:
        report, self._on_published = self._on_published, None
        if report is not None:
            report()


class _Link:
    """A link, and the queues that were declared over it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.declared: set[str] = set()
        self.used_at = monotonic()

    def declare(self, queue: str, settings: Settings) -> None:
        if queue not in self.declared:
            self.connection.declare(task_queue(settings, queue))
            if len(self.declared) >= _MAX_DECLARED:
                self.declared.clear()
            self.declared.add(queue)

    def close(self) -> None:
        self.connection.close()


class _Links:
    """The idle links of one process."""

    def __init__(self) -> None:
        # A deque needs no lock: it is left and entered at one end in one step.
        self._idle: deque[_Link] = deque()
        self._is_closed = False

    def take(self) -> _Link | None:
        while True:
            link = self._popped()
            if link is None or monotonic() - link.used_at < _MAX_IDLE_SECONDS:
                return link
            link.close()

    def put_back(self, link: _Link) -> None:
        link.used_at = monotonic()
        self._idle.append(link)
        while len(self._idle) > (0 if self._is_closed else _MAX_IDLE):
            with suppress(IndexError):  # another was quicker
                self._idle.popleft().close()

    def close(self) -> None:
        self._is_closed = True
        while (link := self._popped()) is not None:
            link.close()

    def _popped(self) -> _Link | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
