"""Results as they come from Redis: told by publish/subscribe, and read where that may have missed them."""

import time
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.masking import sanitize_url
from celeriac.transport.readiness import File, Wakeup
from celeriac.transport.redis_dial import StoreDialer, batched
from celeriac.transport.redis_link import RedisLink, wait_for
from celeriac.transport.result_link import Arrived, Confirmed, News
from celeriac.wire.result import decode, key_prefix, task_id_of, task_key

__all__ = ["RedisResultLink"]

#: How long what we asked may go without any sign of an answer.
_PATIENCE: Final = 10.0
#: Questions on their way at once. Answers can be long, and the server keeps them until we read.
_MAX_ASKED: Final = 8
#: Reads of a socket within one drain: who has much to tell must not keep us from what else is to do.
_MAX_READS: Final = 16
#: A hundred results or so: reading them takes less than a millisecond from whoever else wants to run.
_READ_BYTES: Final = 32 * 1024


class _Asked(NamedTuple):
    task_ids: tuple[str, ...]
    at: float


class RedisResultLink:
    """Two sockets to where results are kept: one is told of them, over the other they are asked for."""

    has_store = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dialer = StoreDialer(settings)
        self._prefix = key_prefix(settings.result_backend_transport_options)
        self._wakeup = Wakeup()
        self._listening: RedisLink | None = None
        self._asking: RedisLink | None = None
        #: What is asked for and not answered yet, in order, and what is to be asked for next.
        self._asked: deque[_Asked] = deque()
        self._to_ask: deque[tuple[str, ...]] = deque()
        #: What is confirmed, and nobody was told yet; and what came.
        self._confirmed: list[str] = []
        self._arrived: list[Arrived] = []

    @property
    def address(self) -> str:
        """Where it leads, for people: a URL without its password."""
        return sanitize_url(self._settings.result_backend or "")

    def open(self) -> None:
        """Connect; raises ConnectionLost, or AccessRefused where trying again is no use."""
        if self._asking is None:
            patience = self._settings.broker_connection_timeout
            self._listening = self._dialer.dial(patience)
            self._asking = self._dialer.dial(patience)

    def subscribe(self, task_ids: Sequence[str]) -> None:
        """Ask to be told of these tasks."""
        listening, _ = self._links()
        for batch in batched(task_ids):
            # Redis confirms each key of a command by itself.
            listening.send("SUBSCRIBE", *[self._key(task_id) for task_id in batch])
            # Confirmations are longer than what they confirm; the server closes a link that lets them lie.
            self._take(listening, listening.read())

    def unsubscribe(self, task_ids: Sequence[str]) -> None:
        """Ask to be told of these no more."""
        listening, _ = self._links()
        for batch in batched(task_ids):
            listening.send("UNSUBSCRIBE", *[self._key(task_id) for task_id in batch])
            self._take(listening, listening.read())

    def read(self, task_ids: Sequence[str]) -> None:
        """Ask what is stored of these now; a task of which nothing is stored makes no news."""
        self._links()
        self._to_ask.extend(batched(task_ids))
        self._ask_on()

    def drain(self, timeout: float) -> list[News]:
        """Return what came, waiting up to ``timeout`` seconds for the first of it."""
        links = self._links()
        files: list[File] = [*links, self._wakeup]
        deadline = monotonic() + timeout
        while True:
            patience = min(*(link.show_life() for link in links), self._patience())
            has_news = bool(self._arrived or self._confirmed)
            wait = 0.0 if has_news else min(patience, deadline - monotonic())
            ready = wait_for(files, wait)
            is_rung = self._wakeup in ready
            if is_rung:
                self._wakeup.clear()
            for link in links:
                if link in ready:
                    self._take_all(link)
            if self._arrived or self._confirmed or is_rung or monotonic() >= deadline:
                return self._told()

    def interrupt(self) -> None:
        """End a :meth:`drain` that waits now, or else the next one; from anywhere."""
        self._wakeup.ring()

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        for link in (self._listening, self._asking):
            if link is not None:
                link.close()
        self._listening = self._asking = None
        self._dialer.close()
        self._wakeup.close()

    def delete(self) -> None:
        """End the link: nothing is kept for it."""
        self.close()

    def clone(self) -> Self:
        """Return a new link to the same place, not yet open."""
        return type(self)(self._settings)

    # -- asking

    def _ask_on(self) -> None:
        """Ask what is to be asked, as far as that may be on its way at once."""
        _, asking = self._links()
        while self._to_ask and len(self._asked) < _MAX_ASKED:
            task_ids = self._to_ask.popleft()
            asking.send("MGET", *[self._key(task_id) for task_id in task_ids])
            self._asked.append(_Asked(task_ids, monotonic()))

    def _patience(self) -> float:
        """Return how long the answer to what was asked first may still take."""
        if not self._asked:
            return _PATIENCE
        _, asking = self._links()
        # A long answer comes in pieces: as long as there is another, it is on its way.
        silent_for = min(monotonic() - self._asked[0].at, asking.idle_for())
        if silent_for < _PATIENCE or wait_for([asking], 0.0):
            return max(0.0, _PATIENCE - silent_for)
        raise ConnectionLost(f"lost the result store at {self.address}: no answer within {_PATIENCE:.0f} s")

    # -- what comes

    def _take_all(self, link: RedisLink) -> None:
        """Take what a socket has, and what comes while we are at it."""
        self._take(link, link.take(_READ_BYTES))
        for _ in range(_MAX_READS - 1):
            # Others run between two pieces, an event loop above all.
            time.sleep(0)
            if not wait_for([link], 0.0):
                break
            self._take(link, link.take(_READ_BYTES))

    def _take(self, link: RedisLink, replies: list[Any]) -> None:
        if link is self._asking:
            self._take_answers(replies)
        elif replies:
            self._take_told(replies)

    def _take_answers(self, answers: list[Any]) -> None:
        for answer in answers:
            # Else it is the answer to a sign of life, or something that the server says unasked.
            if type(answer) is list and self._asked:
                asked = self._asked.popleft()
                for task_id, document in zip(asked.task_ids, answer, strict=False):
                    if document is not None:
                        self._arrive(task_id, document)
        self._ask_on()

    def _take_told(self, replies: list[Any]) -> None:
        for reply in replies:
            # Else it is the answer to a sign of life.
            kind, key, content = reply if isinstance(reply, list) and len(reply) == 3 else (b"", b"", b"")
            task_id = task_id_of(key, self._prefix)
            if kind == b"message" and task_id:
                self._arrive(task_id, content)
            elif kind == b"subscribe" and task_id:
                self._confirmed.append(task_id)

    def _arrive(self, task_id: str, document: bytes) -> None:
        meta = decode(document, task_id=task_id, max_bytes=self._settings.result_max_bytes)
        self._arrived.append(Arrived(meta, len(document)))

    def _told(self) -> list[News]:
        """Return what came, and keep none of it."""
        news: list[News] = [*self._arrived]
        if self._confirmed:
            news.append(Confirmed(tuple(self._confirmed)))
        self._arrived, self._confirmed = [], []
        return news

    # -- shared

    def _key(self, task_id: str) -> bytes:
        return task_key(task_id, self._prefix).encode()

    def _links(self) -> tuple[RedisLink, RedisLink]:
        if self._listening is None or self._asking is None:
            raise ConnectionLost(f"the connection to {self.address} is not open")
        return self._listening, self._asking
