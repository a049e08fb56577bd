"""A function that can be called from afar."""

import inspect
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from time import time
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Unpack

from celeriac.core.retry_wait import retry_wait
from celeriac.errors import CallerError, Ignore, MaxRetriesExceeded, Reject, Retry
from celeriac.model.states import EXCEPTION_STATES, READY_STATES
from celeriac.model.task_request import Arguments, TaskRequest
from celeriac.node.call_options import CALL_OPTIONS, CallOptions
from celeriac.node.context import Context, innermost, running
from celeriac.node.posting import retry_posting
from celeriac.node.signature import Caller, Signature
from celeriac.node.task_options import OPTION_NAMES, TaskOptions, check_names
from celeriac.wire.failure import failure_text
from celeriac.wire.task_request import is_task_name
from celeriac.wire.value import spell

if TYPE_CHECKING:
    from celeriac.node.result import AsyncResult

__all__ = ["Task"]

#: Of the next try these are those of the task that runs.
_NOT_OF_RETRY: Final = frozenset(
    {"task_id", "root_id", "parent_id", "group_id", "group_index", "retries", "reply_to", "chain", "chord"}
)
_RETRY_OPTIONS: Final = CALL_OPTIONS - _NOT_OF_RETRY
_MAX_STATE_CHARS: Final = 100


class Task(TaskOptions):
    """A function with a name, which workers run when they are sent it.

    To call it (``task(…)``) runs the function in place. ``delay`` and ``apply_async`` send it to
    the workers, and return the result to wait for.
    """

    #: The function; if it is bound, with the task as its first argument already there.
    run: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], *, name: str, caller: Caller, **options: Any) -> None:
        check_names(options, OPTION_NAMES, of="a task")
        super().__init__(**options)
        if not is_task_name(name):
            raise CallerError(f"task names are strings such as 'shop.pay', not {name!r:.80}")
        update_wrapper(self, function)
        self.name = name
        self.run = MethodType(function, self) if self.bind else function
        self._caller = caller
        self._parameters = inspect.signature(self.run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here and now, as any other."""
        with running(self._direct(Arguments(args, kwargs))):
            return self.run(*args, **kwargs)

    # -- sending

    def delay(self, *args: Any, **kwargs: Any) -> "AsyncResult":
        """Send the task with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> "AsyncResult":
        """Send the task, with options such as ``countdown`` or ``queue``; on return the broker has it.

        Raises CallerError for arguments that the function does not take or that JSON cannot hold, and
        ConnectionLost if the broker cannot be reached.
        """
        if self.typing:
            try:
                self._parameters.bind(*(args or ()), **(kwargs or {}))
            except TypeError as error:
                raise CallerError(f"invalid arguments for task {self.name!r}: {error}") from None
        return self._caller.send_task(self.name, args, kwargs, **options)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Unpack[CallOptions],
    ) -> Signature:
        """Return a call of the task, written down."""
        made = Signature(self.name, args, kwargs, immutable=immutable, caller=self._caller)
        return made.set(**options)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a call of the task with these arguments, written down."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return the same, where the result of a task before it is not put in front of the arguments."""
        return self.signature(args, kwargs, immutable=True)

    # -- within a run

    @property
    def request(self) -> Context:
        """The run of this task that the code is part of; with ``called_directly`` if no worker runs it."""
        return innermost(self.name) or self._direct(Arguments())

    def retry(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        exc: BaseException | None = None,
        *,
        countdown: float | None = None,
        eta: Any = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> NoReturn:
        """End this run, and have the task tried again; write ``raise self.retry(…)`` to say so.

        In ``countdown`` seconds, else at ``eta``, else after ``default_retry_delay``. Raises Retry; the
        worker then sends the task to the queue it came from. After ``max_retries`` raises ``exc``, or
        MaxRetriesExceeded. Called directly, raises ``exc``.
        """
        check_names(options, _RETRY_OPTIONS, of="a retry")
        context = self.request
        limit = self.max_retries if max_retries is None else max_retries
        if context.called_directly or (limit is not None and context.retries >= limit):
            if exc is not None:
                raise exc
            if context.called_directly:
                raise Retry(f"task {self.name} would be retried if a worker ran it")
            raise MaxRetriesExceeded(
                f"task {self.name}[{context.id}] has been retried {context.retries} times"
            )
        if countdown is None and eta is None:
            countdown = self.default_retry_delay
        now = time()
        # A countdown counts before a moment.
        when: CallOptions = {"countdown": countdown} if countdown is not None else {"eta": eta}
        posting = retry_posting(
            context,
            args,
            kwargs,
            {**options, **when},  # type: ignore[typeddict-item]
            settings=self._caller.conf,
            now=now,
        )
        wait = (posting.request.eta or now) - now
        reason = exc or sys.exception()
        told = f"Retry in {wait:.3g} s"
        retry = Retry(told if reason is None else f"{told}: {failure_text(reason):.500}", reason, when=wait)
        retry.posting = posting
        raise retry

    def autoretry(self, error: BaseException) -> Retry | None:
        """Return how the task is tried again by itself after an error; None if it is not."""
        if not isinstance(error, self.autoretry_for) or isinstance(error, self.dont_autoretry_for):
            return None
        if isinstance(error, Retry | Ignore | Reject):
            return None
        options = dict(self.retry_kwargs)
        if self.retry_backoff:
            options["countdown"] = retry_wait(
                first=max(1.0, float(self.retry_backoff)),
                retries=self.request.retries,
                longest=self.retry_backoff_max,
                random=random.random if self.retry_jitter else None,
            )
        try:
            self.retry(exc=error, **options)
        except Retry as retry:
            return retry
        except BaseException as raised:
            if raised is not error:
                raise
            return None  # often enough

    def update_state(self, state: str, meta: object = None) -> None:
        """Have a state of the task's own stored, such as PROGRESS, with data for who asks meanwhile.

        Called directly, does nothing.
        """
        if not 0 < len(state) <= _MAX_STATE_CHARS:
            raise CallerError(
                f"a state is a string of up to {_MAX_STATE_CHARS} characters, not {state!r:.80}"
            )
        if state in READY_STATES | EXCEPTION_STATES:
            raise CallerError(
                f"{state} is a final state, which the worker sets: return, raise an exception, or use "
                "another state"
            )
        report = self.request.report
        if report is not None:
            report.progressed(state, spell(meta))

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002  (the word of the wire)
        """Send an event of the task's own, such as ``task-progress``. Called directly, does nothing."""
        report = self.request.report
        if report is not None:
            report.told(type, fields)

    def _direct(self, arguments: Arguments) -> Context:
        return Context(TaskRequest("", self.name), arguments, called_directly=True)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"
