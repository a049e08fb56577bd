"""What the API answers, described from the rows of :mod:`celeriac.views`: they are the one definition."""

from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, SupportsFloat, SupportsIndex, Union, get_args, get_origin, get_type_hints

import msgspec
from fastapi import Response
from pydantic import BaseModel, ConfigDict, create_model

__all__ = ["answer", "model_of", "plain"]

#: What JSON has as it is.
_SCALARS: Final = frozenset({str, int, float, bool, NoneType})


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")


@cache
def model_of(row: type[Any]) -> type[BaseModel]:
    """Return the model of a class of rows: the same fields with the same types, rows in them as well."""
    hints = get_type_hints(row)
    fields: dict[str, Any] = {name: (_modelled(hints[name]), ...) for name in row._fields}
    return create_model(row.__name__, __base__=_Row, __doc__=row.__doc__, **fields)


def answer(value: object) -> Response:
    """Return the answer that says rows as JSON.

    They are not checked against the model that describes them: for a hundred tasks that would take longer
    than all else.
    """
    return Response(_encode(plain(value)), media_type="application/json")


def plain(value: object) -> Any:
    """Return rows as JSON has them: objects by the names of their fields."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if _is_row(kind):
        said: dict[str, Any] = value._asdict()  # type: ignore[attr-defined]
        for name in _inner(kind):
            said[name] = plain(said[name])
        return said
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    return value


def _number(value: object) -> float:
    """Return a number of another kind, as tables may have them, as one of Python's own."""
    if isinstance(value, SupportsIndex):
        return int(value)
    if isinstance(value, SupportsFloat):
        return float(value)
    raise TypeError(f"no row of the API may hold a {type(value).__name__}")


_encode: Final = msgspec.json.Encoder(enc_hook=_number, decimal_format="number").encode


def _is_row(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


@cache
def _inner(row: type[Any]) -> tuple[str, ...]:
    """Return the fields of a class of rows that may hold more than one value."""
    hints = get_type_hints(row)
    return tuple(name for name in row._fields if not _is_scalar(hints[name]))


def _is_scalar(hint: Any) -> bool:
    return hint in _SCALARS or (
        get_origin(hint) in (Union, UnionType) and all(each in _SCALARS for each in get_args(hint))
    )


def _modelled(hint: Any) -> Any:
    if _is_row(hint):
        return model_of(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None or not inner:
        return hint
    if origin in (Union, UnionType):
        return Union[tuple(_modelled(each) for each in inner)]  # noqa: UP007 - made of what is known at run time
    return origin[tuple(_modelled(each) for each in inner)]
