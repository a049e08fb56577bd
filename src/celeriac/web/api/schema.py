"""What the API answers, described from the rows of :mod:`celeriac.views`: they are the one definition."""

from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

__all__ = ["answer", "model_of"]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")


@cache
def model_of(row: type[Any]) -> type[BaseModel]:
    """Return the model of a class of rows: the same fields with the same types, rows in them as well."""
    hints = get_type_hints(row)
    fields: dict[str, Any] = {name: (_modelled(hints[name]), ...) for name in row._fields}
    return create_model(row.__name__, __base__=_Row, __doc__=row.__doc__, **fields)


def answer(value: object) -> Any:
    """Return rows as JSON has them: objects by the names of their fields."""
    if _is_row(type(value)):
        return {name: answer(getattr(value, name)) for name in value._fields}  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {name: answer(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [answer(each) for each in value]
    return value


def _is_row(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _modelled(hint: Any) -> Any:
    if _is_row(hint):
        return model_of(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None or not inner:
        return hint
    if origin in (Union, UnionType):
        return Union[tuple(_modelled(each) for each in inner)]  # noqa: UP007 - made of what is known at run time
    return origin[tuple(_modelled(each) for each in inner)]
