"""Sends messages at most once: better late, or never, than twice."""

import logging
from collections.abc import Callable
from enum import Enum, auto
from time import time
from typing import Final

from celeriac.config import Settings
from celeriac.errors import AccessRefused, CeleriacError, ConnectionLost
from celeriac.model.message import Exchange
from celeriac.model.task_request import Posting
from celeriac.transport.base import Connection
from celeriac.wire.names import task_queue
from celeriac.wire.task_request import encode

__all__ = ["Outcome", "TickSender"]

logger = logging.getLogger(__name__)

#: How long a broker may take to confirm one message.
_CONFIRM_PATIENCE: Final = 5.0
_DEFAULT: Final = Exchange("", "direct")


class Outcome(Enum):
    """What became of a message."""

    #: The broker has it.
    SENT = auto()
    #: Nothing was sent, and to try again is right.
    NOT_YET = auto()
    #: Nothing was sent, and nothing will be.
    REFUSED = auto()
    #: The link was lost before the broker confirmed it: it may have it, or not.
    UNKNOWN = auto()


class TickSender:
    """Sends messages over one link, from one thread.

    A task sender sends again what was not confirmed, and so may send twice. This one does not: it tries
    again only where nothing can have left. ``connect`` makes a link.
    """

    def __init__(self, connect: Callable[[], Connection], *, settings: Settings) -> None:
        self._connect = connect
        self._settings = settings
        self._link: Connection | None = None

    def send(self, posting: Posting, *, may_send: Callable[[], bool]) -> Outcome:
        """Send a message, if ``may_send`` says so at the last moment before."""
        try:
            link = self._opened(posting)
        except ConnectionLost as error:
            self.close()
            logger.debug("beat: cannot send now: %s", error)
            return Outcome.NOT_YET
        except CeleriacError as error:  # it would be so the next time
            self.close()
            logger.error("beat: task %s[%s] not sent: %s", posting.request.task, posting.request.id, error)  # noqa: TRY400
            return Outcome.REFUSED
        if not may_send():
            return Outcome.NOT_YET
        return self._publish(link, posting)

    def close(self) -> None:
        """End the link; to send again makes a new one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _opened(self, posting: Posting) -> Connection:
        """Return a link that worked a moment ago."""
        if self._link is not None and not posting.exchange:
            try:
                self._declare(self._link, posting)
            except AccessRefused:
                raise
            except ConnectionLost:
                pass  # it was idle, and may have been gone for long
            else:
                return self._link
        self.close()
        self._link = link = self._connect()
        link.open()
        if not posting.exchange:
            self._declare(link, posting)
        return link

    def _declare(self, link: Connection, posting: Posting) -> None:
        # The broker answers to it, and so shows that it is there before anything is sent.
        link.declare(task_queue(self._settings, posting.routing_key))

    def _publish(self, link: Connection, posting: Posting) -> Outcome:
        request, spelled = posting.request, encode(posting.request)
        try:
            link.publish(
                Exchange(posting.exchange, "direct", is_durable=True) if posting.exchange else _DEFAULT,
                spelled.body,
                routing_key=posting.routing_key,
                headers=spelled.headers,
                is_persistent=True,
                correlation_id=request.id,
                reply_to=request.reply_to,
                priority=posting.priority or 0,
                expiration=None if request.expires is None else max(0.0, request.expires - time()),
            )
            is_sent = not link.unconfirmed(_CONFIRM_PATIENCE)
        except AccessRefused as error:
            self.close()
            logger.error("beat: task %s[%s] not sent: %s", request.task, request.id, error)  # noqa: TRY400
            return Outcome.REFUSED
        except ConnectionLost:
            is_sent = False
        if not is_sent:
            self.close()
        return Outcome.SENT if is_sent else Outcome.UNKNOWN
