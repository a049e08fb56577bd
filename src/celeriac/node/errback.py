"""Tells those that are linked to a task's failure, where it failed."""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from celeriac.errors import PeerError
from celeriac.model.signature import TaskSignature
from celeriac.node.context import Context
from celeriac.wire.signature import read_signature

__all__ = ["Called", "call_errbacks"]

logger = logging.getLogger(__name__)


class Called(Protocol):
    """A task, as far as it is called in place."""

    run: Callable[..., Any]
    #: Whether it gets itself as its first argument.
    bind: bool


def call_errbacks(
    context: Context, error: BaseException, traceback: str | None, *, tasks: Mapping[str, Called]
) -> tuple[dict[str, Any], ...]:
    """Call the errbacks that want ``(request, error, traceback)``, here; return those that are to be sent.

    As with Celery, a task that takes more than one argument is called in place, with these three. One that
    takes one, or is bound, is sent, and gets the id of the task that failed. What one raises is logged.
    """
    left = []
    for spelled in context.errbacks:
        try:
            signature = read_signature(spelled)
        except PeerError:
            left.append(spelled)  # told when it is to be sent
            continue
        task = tasks.get(signature.task)
        if task is None or not _takes_more_than_one(task, signature):
            left.append(spelled)
            continue
        args = () if signature.is_immutable else (context, error, traceback)
        try:
            task.run(*args, *signature.args, **signature.kwargs)
        except Exception:
            logger.exception("The errback %s of task %s[%s] failed", signature.task, context.task, context.id)
    return tuple(left)


def _takes_more_than_one(task: Called, signature: TaskSignature) -> bool:
    """Tell whether a failure has more than one argument to fill."""
    if task.bind or inspect.iscoroutinefunction(task.run):
        return False
    places = inspect.signature(task.run).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in places):
        return True
    by_place = [each for each in places if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(by_place) - len(signature.args) > 1
