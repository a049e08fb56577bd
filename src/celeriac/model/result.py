"""What is known of a task's result, and how results hang together."""

from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsIndex, overload

from celeriac.model.states import READY_STATES

__all__ = ["Failure", "Json", "ResultMeta", "ResultTree", "StoredResult"]


@dataclass(frozen=True, slots=True)
class Json:
    """A value that is spelled as JSON already; who writes it takes it as it is."""

    text: bytes


class Failure(NamedTuple):
    """An exception as a worker stored it: text and values, never a class."""

    exc_type: str
    exc_args: tuple[object, ...] = ()
    exc_module: str | None = None

    def __str__(self) -> str:
        told = ", ".join(arg if isinstance(arg, str) else repr(arg) for arg in self.exc_args)
        return f"{self.exc_type}: {told}" if told else self.exc_type


class ResultTree(NamedTuple):
    """The id of a result, and of those it belongs with.

    ``members`` is None for the result of one task, and the results of a group for a group.
    """

    id: str
    parent: "ResultTree | None" = None
    members: "tuple[ResultTree, ...] | None" = None


class ResultMeta(NamedTuple):
    """Everything a result store holds of one task."""

    task_id: str
    status: str
    #: What the task returned; in RETRY, FAILURE and REVOKED a :class:`Failure`. To be written, either
    #: may be :class:`Json`.
    result: object = None
    traceback: str | None = None
    children: tuple[ResultTree, ...] = ()
    #: ISO 8601; only of tasks that have ended.
    date_done: str | None = None
    parent_id: str | None = None
    group_id: str | None = None
    # With ``result_extended`` workers store these too.
    name: str | None = None
    args: object = None
    kwargs: object = None
    worker: str | None = None
    retries: int | None = None
    queue: str | None = None
    #: Why it could not be read, if it could not; all but ``task_id`` is then of no meaning.
    fault: str = ""

    # Programs written for Celery take what ``on_message`` gets for a dict: to read it like one works too.

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, key: str | SupportsIndex | slice) -> Any:
        if not isinstance(key, str):
            return tuple.__getitem__(self, key)
        if key not in self._fields:
            raise KeyError(key)
        return getattr(self, key)

    @property
    def is_ready(self) -> bool:
        """Whether nothing more will come: the task has ended, or cannot be understood."""
        return self.status in READY_STATES or self.fault != ""


class StoredResult(NamedTuple):
    """A result to be stored, and who waits for it, if it goes to somebody."""

    meta: ResultMeta
    #: The queue where it is awaited.
    reply_to: str = ""
    #: What it answers to; its task, if empty.
    correlation_id: str = ""
