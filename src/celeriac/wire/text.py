"""Makes values from a peer safe to keep: bounded, shallow, and valid Unicode."""

from datetime import date, time
from decimal import Decimal
from math import isfinite
from uuid import UUID

from celeriac.config import Limits
from celeriac.errors import PeerError

__all__ = ["CUT_MARK", "MAX_INTEGER", "clean_text", "clean_value", "is_clean_text"]

CUT_MARK = "…[cut]"
MAX_INTEGER = 2**63


def is_clean_text(text: str, limits: Limits) -> bool:
    """Tell whether :func:`clean_text` would leave a text as it is."""
    if len(text) > limits.text_chars:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def clean_text(text: str, limits: Limits) -> str:
    """Cut a long text, and replace the halves of surrogate pairs, which no UTF-8 can hold."""
    text = str.__str__(text)  # a subclass may do anything
    if len(text) > limits.text_chars:
        text = text[: limits.text_chars - len(CUT_MARK)] + CUT_MARK
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class _Budget:
    """Counts the items and the text of one value, however nested."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.items_left = limits.items
        self.chars_left = limits.event_bytes

    def spend(self, *, items: int = 0, text: str = "") -> None:
        self.items_left -= items
        self.chars_left -= len(text)
        if self.items_left < 0:
            raise PeerError("items")
        if self.chars_left < 0:
            raise PeerError("event-size")

    def clean(self, text: str) -> str:
        text = clean_text(text, self.limits)
        self.spend(text=text)
        return text


def clean_value(value: object, limits: Limits) -> object:
    """Return a copy of decoded JSON with its texts cleaned and NaN and infinities as None.

    Raises :class:`PeerError` with the reason where it is too deep, too large or no JSON.
    """
    return _clean(value, _Budget(limits), depth=limits.depth)


def _clean(value: object, budget: _Budget, *, depth: int) -> object:
    match value:
        case None | bool():
            return value
        case float():
            return value if isfinite(value) else None
        case str():
            return budget.clean(value)
        case int():
            if abs(value) > MAX_INTEGER:
                raise PeerError("integer")
            return value
        case list() | tuple() | dict():
            return _clean_items(value, budget, depth=depth)
        case date() | time() | Decimal() | UUID():
            # Celery: its JSON has a spelling for these, and its reader hands them out as objects.
            return budget.clean(str(value))
        case _:
            raise PeerError("not-json")


def _clean_items(
    value: list[object] | tuple[object, ...] | dict[object, object], budget: _Budget, *, depth: int
) -> object:
    if depth <= 0:
        raise PeerError("depth")
    budget.spend(items=len(value))
    if isinstance(value, dict):
        return {_clean_key(k, budget): _clean(v, budget, depth=depth - 1) for k, v in value.items()}
    return [_clean(item, budget, depth=depth - 1) for item in value]


def _clean_key(key: object, budget: _Budget) -> str:
    if not isinstance(key, str):
        raise PeerError("not-json")
    return budget.clean(key)
