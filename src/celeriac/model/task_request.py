"""A task that somebody asks for, as its message tells it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

__all__ = ["Arguments", "Posting", "TaskRequest"]

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Arguments(NamedTuple):
    """What is in the body of a request: arguments, and what follows when the task has ended.

    Signatures are in their dict form; see :mod:`celeriac.wire.signature`.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = _NONE
    #: Sent with the result as their first argument.
    callbacks: tuple[dict[str, Any], ...] = ()
    #: Sent with the id of the task when it has failed.
    errbacks: tuple[dict[str, Any], ...] = ()
    #: The rest of a chain, the next task last.
    chain: tuple[dict[str, Any], ...] = ()
    #: Sent with all results of the group once its last task has ended.
    chord: dict[str, Any] | None = None


class TaskRequest(NamedTuple):
    """One task to be run: whose, when, and how."""

    id: str
    #: The name of the task.
    task: str
    #: JSON of :class:`Arguments`; who only passes it on need not read it. See
    #: :func:`celeriac.wire.task_request.read_body`.
    body: bytes = b"[[],{},{}]"
    root_id: str | None = None
    parent_id: str | None = None
    group_id: str | None = None
    group_index: int | None = None
    #: The name to show in place of the task's.
    shadow: str | None = None
    #: Not before this moment, in seconds of the epoch.
    eta: float | None = None
    #: Not after this moment.
    expires: float | None = None
    #: How often it was tried before.
    retries: int = 0
    time_limit: float | None = None
    soft_time_limit: float | None = None
    #: The arguments for people, as the sender wants them shown.
    argsrepr: str = ""
    kwargsrepr: str = ""
    #: Who sent it: the name of a client or a worker.
    origin: str | None = None
    #: None leaves it to the task.
    ignore_result: bool | None = None
    #: How often tasks in its place were replaced by others.
    replaced_task_nesting: int = 0
    #: The queue where the result is awaited, and what the result is to answer to.
    reply_to: str = ""
    correlation_id: str = ""
    #: Headers that we do not know, or only pass on: the user's own, stamps, traces.
    headers: Mapping[str, Any] = _NONE


class Posting(NamedTuple):
    """A request and where it is to be published."""

    request: TaskRequest
    #: The routing key; the name of a queue if ``exchange`` is empty.
    routing_key: str
    exchange: str = ""
    priority: int | None = None
