"""What nodes tell each other when they meet: their clocks, and the ids of revoked tasks."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TypeGuard

from celeriac.config import Limits
from celeriac.model.events import MAX_ID_CHARS
from celeriac.model.greeting import BadGreeting, Greeting
from celeriac.wire.text import clean_text, is_clean_text

__all__ = ["MAX_REVOKED", "decode_greeting", "decode_revoked", "encode_revoked"]

#: As many as a stock worker holds, so as many as an honest one can send.
MAX_REVOKED = 50_000
#: What is told of an answer that cannot be read.
_REASON = Limits(text_chars=200)


def decode_greeting(node: str, value: object) -> Greeting | BadGreeting:
    """Read what a node answered to ``hello``; never raises."""
    match value:
        case {"clock": clock, **others}:
            return Greeting(node, clock, decode_revoked(others.get("revoked")))
        case {"error": error}:
            text = clean_text(error, _REASON) if isinstance(error, str) else type(error).__name__
            return BadGreeting(node, f"error: {text}")
        case Mapping():
            return BadGreeting(node, "no clock")
        case _:
            return BadGreeting(node, f"{type(value).__name__} instead of a table")


def decode_revoked(revoked: object) -> list[str]:
    """Read the ids, oldest first, from any of the shapes that nodes send.

    Never raises: what is no id is left out, and what is no known shape is empty.
    """
    match revoked:
        case Mapping():
            # Celery: up to 5.6 an object of id to stamp, or to [stamp, id]. A stamp is of its
            # sender's own clock: it puts the ids in order, and means nothing else here.
            ids: Iterable[object] = sorted(revoked, key=lambda task_id: _stamp(revoked[task_id]))
        case list() | tuple():
            ids = revoked
        case _:
            ids = ()
    return [task_id for task_id in ids if _is_id(task_id)][-MAX_REVOKED:]


def encode_revoked(task_ids: Iterable[str]) -> list[str]:
    """Return the ids as a list, oldest first: the shape that all versions read rightly."""
    return list(task_ids)


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS and is_clean_text(value, Limits())


def _stamp(value: object) -> float:
    stamp = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(stamp, float):
        return stamp if isfinite(stamp) else 0.0
    return stamp if isinstance(stamp, int) and not isinstance(stamp, bool) else 0.0
