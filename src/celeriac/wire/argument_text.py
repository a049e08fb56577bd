"""Arguments as texts for people: short, and made without harm whatever they are."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from celeriac.errors import SoftTimeLimitExceeded
from celeriac.wire.value import mend_text

__all__ = ["MAX_REPR_CHARS", "argument_text"]

#: Celery: longer ones are cut, and end in three dots.
MAX_REPR_CHARS: Final = 1024
#: Celery: what lies deeper is shown as three dots.
_MAX_LEVELS: Final = 3
_DOTS: Final = "..."

#: What has a short text by itself. Of a huge integer Python refuses to tell it, so those are looked at.
_SMALL: Final = frozenset({bool, float, type(None), complex})
_BRACKETS: Final[dict[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def argument_text(value: object, *, most: int = MAX_REPR_CHARS) -> str:
    """Return the ``repr`` of a value, of no more than ``most`` characters; it never raises.

    But for a warning that comes from outside meanwhile: that is for the task whose call this is part of.
    What is too long is cut while it is told, so that a large value costs no more than a small one.
    """
    text = _Teller(most).tell(value)
    return text if len(text) <= most else text[: most - len(_DOTS)] + _DOTS


class _Teller:
    """Puts a text together, until there is enough of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._parts: list[str] = []

    def tell(self, value: object) -> str:
        self._add(value, _MAX_LEVELS)
        return mend_text("".join(self._parts))

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._left -= len(text)

    def _add(self, value: object, levels: int) -> None:
        kind = type(value)
        if kind is str or kind is bytes:
            # One more than there is room for, so that it is seen to be cut.
            self._put(repr(value[: self._most + 1]))  # type: ignore[index]
        elif kind in _SMALL:
            self._put(repr(value))
        elif kind is dict:
            self._add_all(value.items(), self._add_pair, ("{", "}"), levels)  # type: ignore[attr-defined]
        elif kind in _BRACKETS and value:
            brackets = ("(", ",)") if kind is tuple and len(value) == 1 else _BRACKETS[kind]  # type: ignore[arg-type]
            self._add_all(value, self._add, brackets, levels)  # type: ignore[arg-type]
        else:
            self._put(_told(value))

    def _add_all(
        self,
        items: Iterable[Any],
        add: Callable[[Any, int], None],
        brackets: tuple[str, str],
        levels: int,
    ) -> None:
        start, end = brackets
        self._put(start)
        if levels <= 0:
            self._put(_DOTS)
        else:
            # No item is shorter than a character, so no more of them fit.
            for number, item in enumerate(_first(items, self._most)):
                if self._left < 0:
                    break
                if number:
                    self._put(", ")
                add(item, levels - 1)
        self._put(end)

    def _add_pair(self, pair: tuple[object, object], levels: int) -> None:
        key, value = pair
        self._add(key, levels)
        self._put(": ")
        self._add(value, levels)


def _first(items: Iterable[Any], most: int) -> list[Any]:
    try:
        return list(islice(items, most))
    except RuntimeError:  # it changed meanwhile
        return []


def _told(value: object) -> str:
    try:
        return str.__str__(repr(value))
    except SoftTimeLimitExceeded:
        raise  # it comes from outside, and is meant for the task
    except Exception:  # noqa: BLE001 - what an object says of itself may raise anything
        return f"<{type(value).__name__}>"
