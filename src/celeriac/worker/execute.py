"""Runs one task to its end, and says what came of it. Knows neither broker nor store."""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from threading import Thread
from time import monotonic
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import (
    CallerError,
    Ignore,
    NotRegistered,
    PeerError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
)
from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE, IGNORED, REJECTED, RETRY, SUCCESS
from celeriac.model.task_request import Arguments, Posting
from celeriac.node.context import Context, Report, running
from celeriac.node.errback import Called, call_errbacks
from celeriac.node.following import after_failure, after_success, chain_ids
from celeriac.node.stop_signals import is_interruptible
from celeriac.node.task import Task
from celeriac.wire.argument_text import argument_text
from celeriac.wire.failure import failure_json, failure_text
from celeriac.wire.task_request import read_body
from celeriac.wire.text import CUT_MARK
from celeriac.wire.value import mend_text, spell
from celeriac.worker.pool.base import Job
from celeriac.worker.pool.run import harmless

__all__ = ["Executor"]

logger = logging.getLogger(__name__)

#: One through a hundred calls; of a longer one the end says most.
_MAX_TRACEBACK_CHARS: Final = 65_536


class Executor:
    """Runs the tasks of an app, in any number of threads at a time."""

    def __init__(self, tasks: Mapping[str, Task], settings: Settings) -> None:
        self._tasks = tasks
        self._settings = settings

    def execute(self, job: Job, report: Report) -> Outcome:
        """Run a job, and return how it ended, whatever its task did.

        Raises KeyboardInterrupt alone, and that only in a main thread that a signal can interrupt.
        """
        began_at = monotonic()
        try:
            task = self._tasks[job.request.task]
            arguments = read_body(job.request.body)
        except KeyError:
            return self.fail(job, NotRegistered(job.request.task))
        except PeerError as error:
            return self.fail(job, CallerError(f"cannot decode the task arguments ({error})"))
        context = _context(job, arguments, report)
        with running(context):
            try:
                result = task.run(*arguments.args, **arguments.kwargs)
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
                # Here, not later: what cannot be sent or stored is the failure of the task.
                outcome = self._succeeded(task, context, result)
            except BaseException as error:  # whatever it is, the task ended with it
                if isinstance(error, KeyboardInterrupt) and is_interruptible():
                    raise
                outcome = self._raised(task, context, error)
        return outcome._replace(runtime=monotonic() - began_at)

    def fail(self, job: Job, error: BaseException, *, cause: str = "", runtime: float = 0.0) -> Outcome:
        """Return how a job ends that did not end by itself; never raises.

        Its process died, say, or its time was over. Errbacks that want to be called where a task failed
        are called here, in threads of their own.
        """
        try:
            arguments = read_body(job.request.body)
        except PeerError:
            arguments = Arguments()
        # Celery: who revoked a task knows that it failed, and no errback is sent.
        if cause == "terminated":
            arguments = arguments._replace(errbacks=())
        names = {str(each.get("task")) for each in arguments.errbacks}
        aside = {name: _Aside(self._tasks[name]) for name in names if name in self._tasks}
        outcome = self._failed(_context(job, arguments, None), error, None, aside)
        return outcome._replace(cause=cause, runtime=runtime)

    # -- how it went

    def _succeeded(self, task: Task, context: Context, result: object) -> Outcome:
        arguments = context.arguments
        following = after_success(
            context.message, arguments, result, settings=self._settings, tasks=self._tasks
        )
        return Outcome(
            SUCCESS,
            self._spelled(task, context, result),
            argument_text(result, most=task.resultrepr_maxsize),
            postings=following.postings,
            children=(*context.children, *following.children),
            chord=_chord(arguments),
        )

    def _spelled(self, task: Task, context: Context, result: object) -> bytes:
        """Return the JSON of a result; of one that nobody keeps, nothing."""
        if not context.arguments.chord and not self._keeps_result(task, context):
            return b"null"
        try:
            return spell(result)
        except CallerError as error:
            raise CallerError(
                f"task {task.name} returned a {type(result).__name__} that cannot be stored: {error}"
            ) from None

    def _keeps_result(self, task: Task, context: Context) -> bool:
        if self._settings.result_backend is None or context.ignore_result:
            return False
        ignores = self._settings.task_ignore_result if task.ignore_result is None else task.ignore_result
        return not ignores

    def _raised(self, task: Task, context: Context, error: BaseException) -> Outcome:
        """Return how a task ended that raised something."""
        try:
            return self._ended_by(task, context, harmless(error))
        except SoftTimeLimitExceeded:
            # A warning comes once, and this time in the midst of that; what follows must not be lost.
            return self._ended_by(task, context, harmless(error))

    def _ended_by(self, task: Task, context: Context, error: Exception) -> Outcome:
        match error:
            case Ignore():
                return Outcome(IGNORED, children=tuple(context.children))
            case Reject():
                return Outcome(REJECTED, text=failure_text(error), requeue=bool(error.requeue))
            case Retry(posting=Posting()):
                return _retried(context, error, error)
            case _:
                pass
        trace = _trace(error)
        try:
            retry = task.autoretry(error)
        except SoftTimeLimitExceeded:
            raise
        except Exception as raised:  # noqa: BLE001 - options of the task that make no sense
            error, trace, retry = raised, _trace(raised), None
        if retry is not None:
            return _retried(context, retry, error)
        is_expected = isinstance(error, task.throws)
        return self._failed(context, error, trace, self._tasks)._replace(is_expected=is_expected)

    def _failed(
        self, context: Context, error: BaseException, trace: str | None, tasks: Mapping[str, Called]
    ) -> Outcome:
        arguments = context.arguments
        postings: tuple[Posting, ...] = ()
        children = tuple(context.children)
        if arguments.errbacks:
            try:
                left = arguments._replace(errbacks=call_errbacks(context, error, trace, tasks=tasks))
                following = after_failure(context.message, left, settings=self._settings, tasks=self._tasks)
                postings, children = following.postings, (*children, *following.children)
            except SoftTimeLimitExceeded:
                raise
            except Exception:
                logger.exception("Cannot call the errbacks of task %s[%s]", context.task, context.id)
        return Outcome(
            FAILURE,
            failure_json(error),
            failure_text(error),
            trace,
            postings=postings,
            children=children,
            chord=_chord(arguments),
            also_failed=chain_ids(arguments),
        )


def _context(job: Job, arguments: Arguments, report: Report | None) -> Context:
    return Context(
        job.request,
        arguments,
        hostname=job.hostname,
        exchange=job.exchange,
        routing_key=job.routing_key,
        priority=job.priority,
        is_redelivered=job.is_redelivered,
        queue=job.queue,
        report=report,
    )


def _chord(arguments: Arguments) -> bytes:
    return b"" if arguments.chord is None else spell(arguments.chord)


def _retried(context: Context, retry: Retry, error: BaseException) -> Outcome:
    """Return how a task ended that is tried again; what is told of it is why."""
    reason = retry.exc or retry
    postings = (retry.posting,) if isinstance(retry.posting, Posting) else ()
    return Outcome(
        RETRY,
        failure_json(reason),
        failure_text(reason),
        _trace(error),
        postings=postings,
        children=tuple(context.children),
    )


def _trace(error: BaseException) -> str:
    """Return where an error came from, without our own part of the way; never raises."""
    way = error.__traceback__
    try:
        lines = traceback.format_exception(type(error), error, way and (way.tb_next or way))
    except Exception:  # noqa: BLE001 - what an exception says of itself may raise anything
        lines = ["<no traceback: cannot format the exception>\n"]
    text = mend_text("".join(lines))
    return text if len(text) <= _MAX_TRACEBACK_CHARS else CUT_MARK + "\n" + text[-_MAX_TRACEBACK_CHARS:]


# -- errbacks of a task that the pool ended


class _Aside:
    """A task that is called in place, but in a thread of its own: who calls it must not wait."""

    def __init__(self, task: Called) -> None:
        self.bind = task.bind
        # A coroutine is sent, not called, and is known by its function.
        self.run = task.run if inspect.iscoroutinefunction(task.run) else _in_thread(task.run)


def _in_thread(function: Callable[..., Any]) -> Callable[..., None]:
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except Exception:
            logger.exception("An errback failed")

    @wraps(function)
    def start(*args: Any, **kwargs: Any) -> None:
        Thread(target=run, args=args, kwargs=kwargs, name="celeriac-errback", daemon=True).start()

    return start
