"""Values in JSON with kombu's spellings for what JSON has none for: moments, UUIDs, decimals and bytes."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from celeriac.errors import CallerError, PeerError

__all__ = ["MAX_DEPTH", "is_plain", "mend_text", "revive", "spell"]

#: Lists and dicts inside one another. More than any honest value has, page trees included, and far
#: enough from Python's own limit (1,000, less what the caller's stack holds) for whoever reads it next.
MAX_DEPTH: Final = 200


# -- reading


def is_plain(document: bytes) -> bool:
    """Tell, quickly, whether nothing in a document can want :func:`revive`."""
    # Every name that kombu marks a value with ends so.
    return b'__"' not in document and document.count(b"[") + document.count(b"{") <= MAX_DEPTH


def _read_uuid(value: object) -> UUID:
    return UUID(hex=value["hex"] if isinstance(value, dict) else _text(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


#: By what kombu calls them. Nothing else is made of what a peer sent.
_READERS: Final[Mapping[str, Callable[[object], object]]] = {
    "datetime": lambda value: datetime.fromisoformat(_text(value)),
    "date": lambda value: datetime.fromisoformat(_text(value)).date(),
    "time": lambda value: time.fromisoformat(_text(value)),
    "decimal": lambda value: Decimal(_text(value)),
    "uuid": _read_uuid,
    "bytes": lambda value: _text(value).encode(),
    "base64": lambda value: b64decode(_text(value), validate=True),
}
#: Celery: kombu 5.2 marked three kinds in another way.
_OLD_MARKS: Final = (("__datetime__", "datetime"), ("__bytes__", "bytes"), ("__base64__", "base64"))


def _revived(value: dict[str, object]) -> object:
    """Return what a dict of two keys stands for; itself, if it is just a dict."""
    kind, spelled = value.get("__type__"), value.get("__value__")
    if kind is None:
        for mark, name in _OLD_MARKS:
            if value.get(mark) is True:
                kind, spelled = name, value.get("datetime" if name == "datetime" else "bytes")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return value
    try:
        return reader(spelled)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return value


def revive(value: object) -> object:
    """Return decoded JSON with the values in it that kombu has a spelling for. Changes it in place.

    What is spelled wrongly, or as nothing known, stays the dict that it is. Raises PeerError for
    what is nested deeper than :data:`MAX_DEPTH`.
    """
    root: list[object] = [value]
    found: list[tuple[list[object] | dict[str, object], int]] = [(root, 0)]
    # Not by recursion: the stack may be nearly full already.
    while found:
        holder, depth = found.pop()
        if depth > MAX_DEPTH:
            raise PeerError(f"nested more than {MAX_DEPTH} levels deep: return a flatter value from the task")
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if type(item) is dict and len(item) == 2:
                item = holder[key] = _revived(item)  # type: ignore[index]  # noqa: PLW2901
            if type(item) is dict or type(item) is list:
                found.append((item, depth + 1))
    return root[0]


def mend_text(text: str) -> str:
    """Replace the halves of surrogate pairs, which Python's JSON can spell and no UTF-8 can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# -- writing


def _spell_bytes(value: bytes) -> dict[str, object]:
    try:
        return _marked("bytes", value.decode())
    except UnicodeDecodeError:
        return _marked("base64", b64encode(value).decode())


def _marked(kind: str, value: object) -> dict[str, object]:
    return {"__type__": kind, "__value__": value}


#: A datetime is a date too, so it comes first.
_WRITERS: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (datetime, lambda value: _marked("datetime", value.isoformat())),
    (date, lambda value: _marked("date", value.isoformat())),
    (time, lambda value: _marked("time", value.isoformat())),
    (Decimal, lambda value: _marked("decimal", str(value))),
    (UUID, lambda value: _marked("uuid", {"hex": value.hex})),
    (bytes, _spell_bytes),
)


def _spell_other(value: object) -> object:
    """Return what stands in JSON for a value that JSON has no spelling for."""
    # Celery: an object may say by itself what it is in JSON.
    reducer = getattr(value, "__json__", None)
    if reducer is not None:
        return reducer()
    for kind, writer in _WRITERS:
        if isinstance(value, kind):
            return writer(value)
    raise CallerError(
        f"{type(value).__name__} is not JSON serializable: use strings, numbers, lists and dicts, or give "
        "its class a __json__ method"
    )


_encoder: Final = json.JSONEncoder(default=_spell_other)


def spell(value: object) -> bytes:
    """Return a value as JSON, as Celery would write it; raises CallerError where there is no way.

    As there, NaN and infinities are written by name, which Python reads and other languages may
    not, and keys that are numbers, booleans or None become texts.
    """
    try:
        return _encoder.encode(value).encode("ascii")
    except CallerError:
        raise
    except RecursionError:
        raise CallerError("nested too deep for JSON: use a flatter value") from None
    except (TypeError, ValueError) as error:  # keys that are no texts, and what holds itself
        raise CallerError(f"{error}: not JSON serializable") from None
