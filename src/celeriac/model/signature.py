"""A call that is written down, to be made later or elsewhere."""

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["TaskSignature"]


class TaskSignature(NamedTuple):
    """A task, what it is to be called with, and how."""

    #: The name of the task.
    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    #: As ``apply_async`` takes them; those of a peer may hold anything.
    options: Mapping[str, Any]
    #: What it is if it is no single task: ``group``, ``chain``, ``chord`` and so on.
    subtask_type: str | None = None
    #: Whether its arguments are complete: a result of the task before it is not put in front of them.
    is_immutable: bool = False
