"""What a task knows of the run that it is in."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from celeriac.model.result import ResultTree
from celeriac.model.task_request import Arguments, TaskRequest

__all__ = ["Context", "Report", "current_context", "innermost", "running"]


class Report(Protocol):
    """Who is told what a task says of itself while it runs. It never raises, and never waits."""

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Tell that the task sends an event of a type of its own."""

    def progressed(self, state: str, result: bytes) -> None:
        """Tell that the task wants a state of its own stored, with JSON to go with it."""


class Context:
    """One run of a task, as ``task.request`` shows it to the task.

    A function that is called in place, not by a worker, has one too, with ``called_directly`` and no id.
    """

    #: Celery: whether a task runs where it was sent from, which ours never do.
    is_eager = False

    def __init__(
        self,
        message: TaskRequest,
        arguments: Arguments,
        *,
        hostname: str = "",
        exchange: str = "",
        routing_key: str = "",
        priority: int | None = None,
        is_redelivered: bool = False,
        queue: str = "",
        report: Report | None = None,
        called_directly: bool = False,
    ) -> None:
        #: The request, as its message told it.
        self.message = message
        #: All that was in its body.
        self.arguments = arguments
        #: The worker.
        self.hostname = hostname
        self.called_directly = called_directly
        self.report = report
        #: The tasks that this one has started.
        self.children: list[ResultTree] = []
        #: Where the message came from; Celery's names.
        self.delivery_info: dict[str, Any] = {
            "exchange": exchange,
            "routing_key": routing_key,
            "priority": priority,
            "redelivered": is_redelivered,
        }
        #: The queue that the message waited in; empty if that is not known.
        self.queue = queue
        #: The run that this one was called from.
        self.outer: Context | None = None

    @property
    def id(self) -> str | None:
        """The id of the task; None if it was called directly."""
        return self.message.id or None

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.message.task

    @property
    def args(self) -> tuple[Any, ...]:
        """What it was called with, by place."""
        return self.arguments.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """What it was called with, by name."""
        return self.arguments.kwargs

    @property
    def retries(self) -> int:
        """How often it was tried before."""
        return self.message.retries

    @property
    def root_id(self) -> str | None:
        """The id of the task that all this began with."""
        return self.message.root_id or self.id

    @property
    def parent_id(self) -> str | None:
        """The id of the task that started this one."""
        return self.message.parent_id

    @property
    def group(self) -> str | None:
        """The id of the group that it is in."""
        return self.message.group_id

    @property
    def group_index(self) -> int | None:
        """Its place in the group."""
        return self.message.group_index

    @property
    def shadow(self) -> str | None:
        """The name to show in place of its own."""
        return self.message.shadow

    @property
    def eta(self) -> float | None:
        """The moment before which it was not to run, in seconds of the epoch."""
        return self.message.eta

    @property
    def expires(self) -> float | None:
        """The moment after which it was not to begin."""
        return self.message.expires

    @property
    def timelimit(self) -> tuple[float | None, float | None]:
        """The hard and the soft limit that its message names."""
        return (self.message.time_limit, self.message.soft_time_limit)

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers that the sender gave it."""
        return self.message.headers

    @property
    def reply_to(self) -> str:
        """The queue where its result is awaited."""
        return self.message.reply_to

    @property
    def correlation_id(self) -> str:
        """What a reply is to name."""
        return self.message.correlation_id

    @property
    def origin(self) -> str | None:
        """Who sent it."""
        return self.message.origin

    @property
    def ignore_result(self) -> bool | None:
        """Whether its message wants no result kept; None leaves it to the task."""
        return self.message.ignore_result

    @property
    def replaced_task_nesting(self) -> int:
        """How often tasks in its place were replaced by others."""
        return self.message.replaced_task_nesting

    @property
    def callbacks(self) -> tuple[dict[str, Any], ...]:
        """What is sent if it ends well."""
        return self.arguments.callbacks

    @property
    def errbacks(self) -> tuple[dict[str, Any], ...]:
        """What is sent if it fails."""
        return self.arguments.errbacks

    @property
    def chain(self) -> tuple[dict[str, Any], ...]:
        """The rest of its chain, the next task last."""
        return self.arguments.chain

    @property
    def chord(self) -> dict[str, Any] | None:
        """What waits for all of its group."""
        return self.arguments.chord

    def __repr__(self) -> str:
        return f"<Context {self.task}[{self.id}]>"


_innermost: ContextVar[Context | None] = ContextVar("celeriac_context", default=None)


def current_context() -> Context | None:
    """Return the run of a worker that this code is part of; None outside of any."""
    context = _innermost.get()
    while context is not None and context.called_directly:
        context = context.outer
    return context


def innermost(task: str) -> Context | None:
    """Return the run of the task of this name that this code is part of, called directly or not."""
    context = _innermost.get()
    while context is not None and context.task != task:
        context = context.outer
    return context


@contextmanager
def running(context: Context) -> Iterator[Context]:
    """Let the code inside be part of a run."""
    context.outer = _innermost.get()
    token = _innermost.set(context)
    try:
        yield context
    finally:
        _innermost.reset(token)
