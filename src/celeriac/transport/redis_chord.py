"""The parts of chords in Redis: counted there, so that one of many workers sees that it ended the last."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from celeriac.errors import AccessRefused, ImproperlyConfigured, NetworkError
from celeriac.model.chord import ChordPart, Gathered
from celeriac.transport.redis_call import Call
from celeriac.transport.redis_link import Command
from celeriac.transport.redis_script import CLOSE_CHORD, END_PART
from celeriac.transport.redis_store import RedisResultStore
from celeriac.wire.chord import chord_keys, encode_part, part_names

__all__ = ["RedisChords"]

#: How long a chord is one worker's to send: longer than a broker takes to restart.
_HELD: Final = 120
#: How long it is known that a chord was sent, so that a part that comes again begins no other.
_DONE: Final = 600
#: What Redis says of keys that hold something else than a chord. To ask again would be no use.
_ODD: Final = ("WRONGTYPE", "is not a valid float", "is not an integer", "attempt to perform arithmetic")


class RedisChords:
    """The chords in one Redis, for any number of threads and greenlets at once."""

    def __init__(self, store: RedisResultStore) -> None:
        self._store = store
        # Celery: an option of the store, the same for all workers.
        self._is_ordered = bool(store.options.get("result_chord_ordered", True))

    def end_part(self, part: ChordPart, *, timeout: float) -> Gathered | None:
        """Count a part; return all of them if it was the last: the chord is its own until it is closed.

        To end a part again counts it once, and gives the chord again if it is its own. Raises
        ImproperlyConfigured if something else is kept where the chord should be.
        """
        with _told_if_odd(part):
            if self._store.has_scripts:
                try:
                    return self._store.do(lambda call: self._run_script(call, part), timeout)
                except NetworkError as error:
                    if not isinstance(error, AccessRefused) and "unknown command" not in str(error):
                        raise
                    self._store.has_scripts = False
            return self._store.do(lambda call: self._count(call, part), timeout)

    def close(self, part: ChordPart, *, timeout: float) -> None:
        """Forget the chord of a part that it was given to: what followed it is sent."""
        keys = chord_keys(part.group_id, self._store.prefix)
        if self._store.has_scripts:
            (command,) = CLOSE_CHORD.calls([(len(keys), *keys, part_names(part).token, _DONE)])
            self._store.do(lambda call: call.exchange(command), timeout)
        else:
            forget: Command = ("DEL", keys.parts, keys.correction, keys.size, keys.seen)
            mark: Command = ("SET", keys.claim, "done", "EX", _DONE)
            self._store.do(lambda call: call.exchange(("MULTI",), forget, mark, ("EXEC",)), timeout)

    def _run_script(self, call: Call, part: ChordPart) -> Gathered | None:
        keys, (place, name, token) = chord_keys(part.group_id, self._store.prefix), part_names(part)
        words = (encode_part(part), name, int(self._is_ordered), place, self._store.expires, _HELD, token)
        (command,) = END_PART.calls([(len(keys), *keys, *words)])
        (answer,) = call.exchange(command)
        return None if answer is None else Gathered(*answer)

    def _count(self, call: Call, part: ChordPart) -> Gathered | None:
        """Count a part without a script, as Celery did up to 5.6: what comes twice may count twice."""
        keys, value = chord_keys(part.group_id, self._store.prefix), encode_part(part)
        add: Command = ("RPUSH", keys.parts, value)
        count, read = "LLEN", "LRANGE"
        if self._is_ordered:
            add = ("ZADD", keys.parts, part_names(part).place, value)
            count, read = "ZCARD", "ZRANGE"
        look: Command = ("MGET", keys.size, keys.correction)
        expires = self._store.expires
        expire: list[Command] = [("EXPIRE", key, expires) for key in keys[:5]] if expires else []
        *_, done = call.exchange(("MULTI",), add, (count, keys.parts), look, *expire, ("EXEC",))
        _, counted, (size, correction), *_ = done
        if size is None or counted != int(size) + int(correction or 0):
            return None
        return Gathered(*call.exchange((read, keys.parts, 0, -1), ("GET", keys.group)))


@contextmanager
def _told_if_odd(part: ChordPart) -> Iterator[None]:
    """Tell a store that is away from one that has kept what no chord is: only the first comes back."""
    try:
        yield
    except NetworkError as error:
        if not any(odd in str(error) for odd in _ODD):
            raise
        raise ImproperlyConfigured(
            f"cannot count group {part.group_id} in Redis ({error}): use the same result_chord_ordered on "
            "all workers"
        ) from error
