"""The handlers of elections, by topic, each checked when it is registered."""

from collections import UserDict
from collections.abc import Callable
from functools import wraps
from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from typing import Any, Self

from celeriac.errors import CallerError
from celeriac.worker.mandate import Mandate

__all__ = ["ElectionHandlers", "Handler"]

#: Acts for the winner of an election.
Handler = Callable[[object, Mandate], object]


class ElectionHandlers(UserDict[str, Handler]):
    """Handlers by topic: ``f(action, mandate)``, ``f(action, *, mandate)``, or ``f(action)`` as in Celery.

    Anything else raises CallerError: a handler that cannot be called would fail only after it has won.
    """

    def __setitem__(self, topic: str, handler: Callable[..., object]) -> None:
        super().__setitem__(topic, _with_mandate(topic, handler))

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        # UserDict's own writes past __setitem__.
        self.update(other)
        return self


def _with_mandate(topic: str, handler: Callable[..., object]) -> Handler:
    """Return a handler that takes the action and the mandate; raises CallerError if there is none to make."""
    try:
        parameters = signature(handler)
    except (TypeError, ValueError):  # not callable, or a built-in function that describes no parameters
        parameters = None
    if parameters is not None and not _is_deferred(handler):
        if _accepts(parameters, 1, mandate=None) and _is_keyword_only(parameters.parameters.get("mandate")):
            return wraps(handler)(lambda action, mandate: handler(action, mandate=mandate))
        takes_action = _accepts(parameters, 1)
        if _accepts(parameters, 2) and (not takes_action or _expects_mandate(parameters)):
            return handler
        if takes_action:
            return wraps(handler)(lambda action, _mandate: handler(action))
    raise CallerError(
        f"invalid election handler for {topic!r:.100}, {handler!r:.100}: register a function "
        "handler(action) or handler(action, mandate)"
    )


def _is_deferred(handler: Callable[..., object]) -> bool:
    """Return whether a call of the handler does nothing yet, as of a coroutine or a generator."""
    kinds = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    return any(is_kind(each) for is_kind in kinds for each in (handler, type(handler).__call__))


def _is_keyword_only(parameter: Parameter | None) -> bool:
    return parameter is not None and parameter.kind is Parameter.KEYWORD_ONLY


def _accepts(parameters: Signature, count: int, **keywords: object) -> bool:
    try:
        parameters.bind(*(None,) * count, **keywords)
    except TypeError:
        return False
    return True


def _expects_mandate(parameters: Signature) -> bool:
    """Tell whether an optional second parameter is for the mandate, and not one of the handler's own."""
    second = [*parameters.parameters.values()][:2][-1]
    return second.kind is Parameter.VAR_POSITIONAL or second.name == "mandate"
