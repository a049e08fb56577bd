"""What we took from queues on Redis and did not settle yet, and what others left behind.

Kombu's table of what is unsettled is shared by all who consume. An entry that grows older than the
visibility timeout belongs to nobody who lives, and whoever sees it puts its message back.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final

from celeriac.errors import PeerError
from celeriac.transport.redis_clock import RedisClock
from celeriac.transport.redis_link import Command
from celeriac.transport.redis_names import RedisNames
from celeriac.transport.redis_pipe import RedisPipe
from celeriac.transport.redis_steps import SET_ASIDE, TAKE_BACK
from celeriac.wire.unacked import priority_of, read_unacked, returned, unacked_ending

__all__ = ["Unsettled"]

logger = logging.getLogger(__name__)

#: Entries in one command, and put back in one turn.
_PORTION: Final = 100
#: How often what others left is looked for, at most.
_LOOK_EVERY: Final = 10.0
#: A moment after all others.
_NEVER: Final = "1e18"


class Unsettled:
    """The entries that we answer for: settled, renewed while we hold them, and put back.

    ``queues_of`` returns the queues that the name of an exchange and a key lead to. ``left_over``
    are tags that a lost link could not settle, each with whether its message is to be put back.
    """

    def __init__(
        self,
        pipe: RedisPipe,
        names: RedisNames,
        *,
        queues_of: Callable[[str, str], list[str]],
        visibility_timeout: float,
        clock: RedisClock,
        left_over: Mapping[str, bool],
    ) -> None:
        self._pipe = pipe
        self._clock = clock
        self._names = names
        self._queues_of = queues_of
        self._timeout = visibility_timeout
        #: The tags of what is ours, in the order it was taken.
        self.held: dict[str, None] = {}
        #: Entries of others that could not be read, and were dropped.
        self.broken = 0
        #: What is to be settled, by tag and whether it goes back; what is written, and not answered yet.
        self._to_settle = dict(left_over)
        self._settling: dict[str, bool] = {}
        #: What of both goes back.
        self._returning = {tag for tag, goes_back in left_over.items() if goes_back}
        self._renew_at = monotonic() + self._timeout / 4
        self._look_at = 0.0

    @property
    def is_returning(self) -> bool:
        """Whether something is to go back to its queue that is not there yet."""
        return bool(self._returning)

    def hold(self, tag: str) -> None:
        """Answer for an entry until it is settled."""
        self.held[tag] = None

    def settle(self, tag: str, *, goes_back: bool) -> None:
        """Have an entry removed, and its message put back or not; what was said first holds."""
        self.held.pop(tag, None)
        if self._to_settle.setdefault(tag, goes_back):
            self._returning.add(tag)

    def set_aside(self, tag: str, *, queue: str, priority: int, seconds: float) -> None:
        """Have a message moved out of the way for so many seconds; it goes back if the link is lost."""
        self.held.pop(tag, None)
        self._settling[tag] = True
        tables = (self._names.unacked, self._names.unacked_index)
        aside = self._names.aside_of(queue, priority)
        words = (*tables, tag, repr(self._clock.now() + seconds), unacked_ending(queue), aside)
        self._pipe.ask("EVAL", SET_ASIDE, len(tables), *words, then=partial(self._end_aside, tag, aside))

    def _end_aside(self, tag: str, aside: str, done: int) -> None:
        self._confirm((tag,), done)
        if done < 0:
            logger.warning(
                "broker: cannot delay a message in %s: the key has another type, or the user lacks "
                "permission. The message returns after the visibility timeout",
                aside,
            )

    def unfinished(self) -> dict[str, bool]:
        """Return what Redis did not confirm to be settled."""
        return self._settling | self._to_settle

    def release(self) -> None:
        """Have everything put back that we hold, in the order it was taken."""
        for tag in list(self.held):
            self.settle(tag, goes_back=True)

    def prepare(self, *, is_consuming: bool) -> float:
        """Ask for what is due, and return when to be called again, in seconds."""
        if self._to_settle:
            self._settle()
        now = monotonic()
        if now >= self._renew_at:
            self._renew()
            self._renew_at = now + self._timeout / 4
        if is_consuming and now >= self._look_at:
            self._look()
            self._look_at = now + min(_LOOK_EVERY, self._timeout / 2)
        waits = [self._renew_at - now] if self.held else []
        return min([*waits, self._look_at - now] if is_consuming else waits, default=math.inf)

    # -- ours

    def _settle(self) -> None:
        settling, self._to_settle = self._to_settle, {}
        self._settling |= settling
        names, ask = self._names, self._pipe.ask
        for tags in _portions([tag for tag, goes_back in settling.items() if not goes_back]):
            ask("ZREM", names.unacked_index, *tags)
            ask("HDEL", names.unacked, *tags, then=partial(self._confirm, tags))
        # What was taken first is put back last: it is then the next to be taken.
        self._fetch([tag for tag, goes_back in settling.items() if goes_back][::-1], taken_until=_NEVER)

    def _confirm(self, tags: Sequence[str], _: object) -> None:
        for tag in tags:
            self._settling.pop(tag, None)
            self._returning.discard(tag)

    def _renew(self) -> None:
        """Show that we live: others put back what was not renewed for long."""
        now = repr(self._clock.now())
        for tags in _portions(list(self.held)):
            scores = (word for tag in tags for word in (now, tag))
            # XX: what another has put back already must not be written again.
            self._pipe.ask("ZADD", self._names.unacked_index, "XX", *scores)

    # -- what goes back

    def _look(self) -> None:
        """Look for what nobody renewed for so long that whoever took it must be gone."""
        if self._clock.is_known:  # it may have been set, or be faster than ours
            self._pipe.ask("TIME", then=self._clock.set)
        until = repr(self._clock.now() - self._timeout)
        self._pipe.ask(
            *("ZRANGEBYSCORE", self._names.unacked_index, "-inf", until, "LIMIT", 0, _PORTION),
            then=partial(self._find, until),
        )

    def _find(self, until: str, found: list[bytes]) -> None:
        tags = [tag.decode("utf-8", "surrogateescape") for tag in found]
        gone = [tag for tag in tags if tag not in self.held]
        if gone:
            logger.info(
                "broker: returning %d messages that were not acknowledged within the visibility timeout",
                len(gone),
            )
            self._fetch(gone[::-1], taken_until=until)
        if len(found) == _PORTION:  # there may be more
            self._look_at = 0.0

    def _fetch(self, tags: Sequence[str], *, taken_until: str) -> None:
        """Put back the messages of entries that were taken until a moment."""
        for portion in _portions(tags):
            self._pipe.ask(
                "HMGET",
                self._names.unacked,
                *map(_raw, portion),
                then=partial(self._put_back, portion, taken_until),
            )

    def _put_back(self, tags: Sequence[str], taken_until: str, entries: list[bytes | None]) -> None:
        names = self._names
        for tag, entry in zip(tags, entries, strict=True):
            try:
                lists, envelope = self._way_back(entry)
            except PeerError:
                self.broken += 1
                logger.warning("broker: dropped %r of %s, not a readable message", tag, names.unacked)
                lists, envelope = [], b""
            if envelope and not lists:
                self._leave(tag)
                continue
            keys = (names.unacked, names.unacked_index, *lists)
            command: Command = ("EVAL", TAKE_BACK, len(keys), *keys, _raw(tag), taken_until, envelope)
            self._pipe.ask(*command, then=partial(self._end_return, tag))

    def _end_return(self, tag: str, done: int) -> None:
        if done < 0:
            self._leave(tag)
        else:
            self._confirm((tag,), done)

    def _leave(self, tag: str) -> None:
        """Let an entry be that has no way back: it is looked at again once it has grown old again."""
        names = self._names
        logger.warning("broker: cannot find the queue of %r in %s, left in place", tag, names.unacked)
        command: Command = ("ZADD", names.unacked_index, "XX", repr(self._clock.now()), _raw(tag))
        self._pipe.ask(*command, then=partial(self._confirm, (tag,)))

    def _way_back(self, entry: bytes | None) -> tuple[list[str], bytes]:
        """Return the lists that a message goes back to, and its envelope; nothing if the entry is gone."""
        if entry is None:
            return [], b""
        message, exchange, routing_key = read_unacked(entry)
        if not _can_be_named(exchange + routing_key):
            return [], returned(message)
        queues = self._queues_of(exchange, routing_key) if exchange else [routing_key]
        priority = priority_of(message)
        return [self._names.list_of(queue, priority) for queue in queues if queue], returned(message)


def _portions(tags: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(tags), _PORTION):
        yield tags[at : at + _PORTION]


def _can_be_named(text: str) -> bool:
    """Say whether a key of Redis can be named so: JSON has halves of characters, which bytes have not."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _raw(tag: str) -> bytes:
    """Return a tag as it came: those of others may be any bytes."""
    return tag.encode("utf-8", "surrogateescape")
