"""Documents of results around a value that is spelled already: what a worker writes, thousands a second."""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from celeriac.model.result import ResultMeta
from celeriac.wire.result_tree import spell_tree
from celeriac.wire.value import spell

__all__ = ["splice"]


class _Document(Struct, gc=False):
    """The fields of a document in the order that Celery writes them; what is not set is left out."""

    status: str
    result: Raw
    traceback: str | None
    children: list[list[object]]
    date_done: str | None
    group_id: str | UnsetType
    parent_id: str | UnsetType
    name: str | UnsetType
    args: Raw | UnsetType
    kwargs: Raw | UnsetType
    worker: str | UnsetType
    retries: int | UnsetType
    queue: str | UnsetType
    task_id: str


_encode: Final[Callable[[_Document], bytes]] = msgspec.json.Encoder().encode


def splice(meta: ResultMeta, result: bytes) -> bytes:
    """Return the document of a task whose result is this JSON, which is not looked at.

    Raises UnicodeEncodeError, OverflowError or RecursionError for the little that Python's own JSON
    can spell and this cannot.
    """
    return _encode(
        _Document(
            meta.status,
            Raw(result),
            meta.traceback,
            [spell_tree(tree) for tree in meta.children],
            meta.date_done,
            UNSET if meta.group_id is None else meta.group_id,
            UNSET if meta.parent_id is None else meta.parent_id,
            UNSET if meta.name is None else meta.name,
            UNSET if meta.args is None else Raw(spell(meta.args)),
            UNSET if meta.kwargs is None else Raw(spell(meta.kwargs)),
            UNSET if meta.worker is None else meta.worker,
            UNSET if meta.retries is None else meta.retries,
            UNSET if meta.queue is None else meta.queue,
            meta.task_id,
        )
    )
