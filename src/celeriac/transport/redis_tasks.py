"""Tasks from queues on Redis: taken in one step with being written down, and waited for without asking.

A message leaves its queue and enters the table of what is unsettled at once, so that it is never in
our hands alone. While the queues are empty Redis tells us when one of them changes: it tracks
the keys that a client has read, and asked to be told of.
"""

import logging
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from random import random
from time import monotonic
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import uuid4

from celeriac.model.message import Delivery, Queue
from celeriac.transport.base import Take
from celeriac.transport.redis_clock import RedisClock
from celeriac.transport.redis_link import Command, RedisLink
from celeriac.transport.redis_names import RedisNames
from celeriac.transport.redis_pipe import RedisPipe
from celeriac.transport.redis_steps import RETURN_DUE, TAKE
from celeriac.transport.redis_unsettled import Unsettled
from celeriac.wire.envelope import MAX_ENVELOPE_BYTES, envelope_bytes, opened
from celeriac.wire.unacked import sheltered, unacked_ending

__all__ = ["RedisTasks", "is_own_tag"]

logger = logging.getLogger(__name__)

#: Messages taken in one step, and bytes after which it takes no more: others wait for Redis meanwhile.
_MAX_TAKEN: Final = 100
_MAX_TAKEN_BYTES: Final = 1024 * 1024
#: How often to look where Redis does not tell us of changes, and where it does: something may swap
#: databases, of which it tells nothing.
_LOOK_EVERY, _LOOK_AGAIN = 0.2, 5.0
#: How often to look for messages that were set aside and are to return: while there are some, and while there
#: may be some of others. No more of them return at a time, so that Redis has time for others.
_RETURN_EVERY, _RETURN_LOOK, _MAX_RETURNED = 1.0, 10.0, 1000
#: All who wait are told of a task, and one gets it. Who came too late waits by chance before it asks again,
#: up to so many seconds for each time that it did: so many who wait ask seldom, and one of them soon.
_WAIT_EACH, _WAIT_MOST = 0.0005, 0.05
#: How long putting back may take.
_PATIENCE: Final = 10.0
#: Asks to be told when a key changes that the next command reads.
_TELL_OF_NEXT: Final[Command] = ("CLIENT", "CACHING", "YES")
#: How tags of ours begin.
_MARK: Final = "celeriac."


class _Consumer(NamedTuple):
    take: Take
    max_bytes: int


class _Round(NamedTuple):
    """The queues in one order, and what is asked to take from them so."""

    queues: tuple[str, ...]
    keys: tuple[str, ...]
    endings: tuple[bytes, ...]


class _Asked(NamedTuple):
    """Who was asked for messages, and for how many; their tags are counted from a number."""

    queues: tuple[str, ...]
    first: int
    room: int


class RedisTasks:
    """A socket that takes from any number of queues, no more than may be unsettled at a time."""

    def __init__(
        self,
        link: RedisLink,
        names: RedisNames,
        *,
        queues_of: Callable[[str, str], list[str]],
        visibility_timeout: float,
        clock: RedisClock,
        left_over: Mapping[str, bool],
    ) -> None:
        self.link = link
        self.clock = clock
        self.prefetch = 0
        self._names = names
        self._pipe = RedisPipe(link, self._notice)
        self.unsettled = Unsettled(
            self._pipe,
            names,
            queues_of=queues_of,
            visibility_timeout=visibility_timeout,
            clock=clock,
            left_over=left_over,
        )
        self._consumers: dict[str, _Consumer] = {}
        #: Each queue has its turn to be the first.
        self._rounds: list[_Round] = []
        self._arrived: list[tuple[Take, Delivery]] = []
        self._tag_prefix = f"{_MARK}{uuid4().hex}."
        self._number = 0
        self._asked: _Asked | None = None
        #: Whether the last time as many came as could: there may be more.
        self._was_full = False
        #: When to ask again.
        self._ask_at = 0.0
        #: Whether we ask because we were told, and how often that was in vain: less once it was not.
        self._is_hopeful = False
        self._vain = 0
        #: When to look for what is to return.
        self._return_at = monotonic() + _RETURN_LOOK
        # What is taken and settled changes, too, but of that nobody wants to be told.
        refusal = link.attempt(("HELLO", 3), ("CLIENT", "TRACKING", "ON", "OPTIN"), _TELL_OF_NEXT)
        self._is_told = not refusal
        if refusal:
            _tell(link.address, refusal)

    def consume(self, queue: Queue, take: Take) -> None:
        """Hand what comes in a queue to ``take``."""
        max_bytes = MAX_ENVELOPE_BYTES if queue.max_bytes is None else envelope_bytes(queue.max_bytes)
        self._consumers[queue.name] = _Consumer(take, max_bytes)
        self._set_rounds()

    def stop(self, queue: str) -> None:
        """Take no more from a queue; what is on its way from there goes back."""
        self._consumers.pop(queue, None)
        self._set_rounds()

    def prepare(self) -> float:
        """Settle, renew and ask for more; return how long the socket may stay silent.

        Nothing here waits, except for what goes back to its queue.
        """
        wait = self.unsettled.prepare(is_consuming=bool(self._consumers))
        while self.unsettled.is_returning:  # what goes back must be there before more is taken
            self._pipe.finish(_PATIENCE)
            wait = self.unsettled.prepare(is_consuming=bool(self._consumers))
        wait = min(wait, self._return_due(), self._ask())
        self._pipe.flush()
        return min(wait, self._pipe.patience())

    def receive(self, replies: list[Any]) -> list[tuple[Take, Delivery]]:
        """Return the deliveries in what was read, each with who is to get it."""
        self._pipe.receive(replies)
        self._pipe.flush()
        return self.arrived()

    def arrived(self) -> list[tuple[Take, Delivery]]:
        """Return the deliveries that came while something else was waited for."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def finish(self, timeout: float) -> None:
        """Settle what is to be settled, put back what is still held, and wait until that is done."""
        deadline = monotonic() + timeout
        self._consumers.clear()
        self._pipe.finish(timeout)  # what is on its way to us goes back as well
        self.unsettled.release()
        self.unsettled.prepare(is_consuming=False)
        self._pipe.finish(deadline - monotonic())

    def unfinished(self) -> dict[str, bool]:
        """Return the tags of what is to be settled over another link, and whether it goes back."""
        asked = self._asked
        # It may have been taken, and never reached us.
        taken = range(asked.first, asked.first + asked.room) if asked is not None else ()
        return {self._tag(number): True for number in taken} | self.unsettled.unfinished()

    def set_aside(self, tag: str, *, queue: str, priority: int, seconds: float) -> None:
        """Have a message moved out of the way for so many seconds."""
        self.unsettled.set_aside(tag, queue=queue, priority=priority, seconds=seconds)
        self._return_at = min(self._return_at, monotonic() + _RETURN_EVERY)

    # -- asking

    def _return_due(self) -> float:
        """Have what was set aside return to its queue if it is time; return when to look again."""
        if not self._consumers:
            return math.inf
        now = monotonic()
        if now >= self._return_at:
            self._return_at = now + _RETURN_LOOK
            lists = [key for queue in self._consumers for key in self._names.lists(queue)]
            asides = [key for queue in self._consumers for key in self._names.asides(queue)]
            limits = (repr(self.clock.now()), _MAX_RETURNED)
            command: Command = ("EVAL", RETURN_DUE, len(lists), *lists, *limits, *asides)
            self._pipe.ask(*command, then=self._look_soon)
        return self._return_at - now

    def _look_soon(self, left: int) -> None:
        if left:
            self._return_at = monotonic() + _RETURN_EVERY

    def _ask(self) -> float:
        """Ask for messages if some may be there, and for being told of more; return when to ask again."""
        room = min(self.prefetch - len(self.unsettled.held), _MAX_TAKEN)
        if self._asked is not None or not self._rounds or room <= 0:
            return math.inf
        if (left := self._ask_at - monotonic()) > 0:
            return left
        queues, keys, endings = self._rounds[0]
        self._rounds.append(self._rounds.pop(0))
        self._asked = asked = _Asked(queues, self._number, room)
        tables = (self._names.unacked, self._names.unacked_index)
        limits = (room, _MAX_TAKEN_BYTES, repr(self.clock.now()), self._tag_prefix, asked.first)
        command: Command = ("EVAL", TAKE, 2 + len(keys), *tables, *keys, *limits, len(queues), *endings)
        self._pipe.ask(*command, then=partial(self._open, asked))
        if self._is_told and not self._was_full:
            # Says whether more has come meanwhile; from then on we are told, once.
            self._pipe.ask(*_TELL_OF_NEXT)
            self._pipe.ask("EXISTS", *keys, then=self._rest)
        return math.inf

    def _open(self, asked: _Asked, reply: list[Any]) -> None:
        """Open what was taken."""
        self._asked = None
        taken = len(reply) // 2
        self._number += taken
        self._was_full = taken >= asked.room
        if not self._is_told and not self._was_full:
            self._ask_at = monotonic() + _LOOK_EVERY
        if self._is_hopeful:
            self._is_hopeful = False
            self._vain = self._vain // 2 if taken else self._vain + 1
        for number, at in enumerate(range(0, len(reply), 2), asked.first):
            self._arrive(self._tag(number), asked.queues[reply[at]], reply[at + 1])

    def _arrive(self, tag: str, queue: str, envelope: bytes) -> None:
        consumer = self._consumers.get(queue)
        self.unsettled.hold(tag)
        if consumer is None:  # who stopped to consume
            self.unsettled.settle(tag, goes_back=True)
            return
        message = opened(envelope, max_bytes=consumer.max_bytes)
        entry = sheltered(envelope, queue=queue, tag=tag) if message.fault else None
        if entry is not None:
            self._pipe.ask("HSET", self._names.unacked, tag, entry)
        self._arrived.append((consumer.take, Delivery(message, queue, tag)))

    def _tag(self, number: int) -> str:
        """Return the tag of a number: what was taken in one moment is sorted by its tags."""
        return f"{self._tag_prefix}{number:012}"

    def _rest(self, existing: int) -> None:
        self._ask_at = 0.0 if existing else monotonic() + _LOOK_AGAIN

    def _notice(self) -> None:
        """Be told that a queue has changed, or may have."""
        self._is_hopeful = True
        wait = min(self._vain * _WAIT_EACH, _WAIT_MOST) * random()  # noqa: S311 - no secret
        self._ask_at = min(self._ask_at, monotonic() + wait)

    def _set_rounds(self) -> None:
        names = list(self._consumers)
        self._rounds = [self._round(names[at:] + names[:at]) for at in range(len(names))]
        self._ask_at = 0.0

    def _round(self, queues: list[str]) -> _Round:
        steps = zip(*map(self._names.lists, queues), strict=True)
        return _Round(
            tuple(queues), tuple(key for step in steps for key in step), tuple(map(unacked_ending, queues))
        )


def is_own_tag(tag: object) -> TypeGuard[str]:
    """Say whether a delivery was taken by a link to Redis."""
    return isinstance(tag, str) and tag.startswith(_MARK)


@cache
def _tell(address: str, refusal: str) -> None:
    """Say once that a server does not tell us of changes."""
    logger.info(
        "broker %s: no notification of new tasks (%s), polling every %.1f s. Redis 6 and later notify if "
        "the user may call HELLO, CLIENT TRACKING and CLIENT CACHING",
        address,
        refusal,
        _LOOK_EVERY,
    )
