"""Makes the messages of tasks: from a call, from a signature, and from what follows a task that has ended."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from time import time
from typing import Any, Final
from uuid import uuid4

from celeriac.config import Settings
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.model.task_request import Arguments, Posting, TaskRequest
from celeriac.node.call_options import CallOptions, read_headers, read_options, read_signatures
from celeriac.node.context import Context
from celeriac.node.identity import anonymous_name
from celeriac.node.task_options import TaskOptions, check_limits
from celeriac.wire.argument_text import MAX_REPR_CHARS, argument_text
from celeriac.wire.field import is_name
from celeriac.wire.task_request import is_task_name, iso, spell_body

__all__ = ["posting_for", "retry_posting", "sent_fields"]

#: Options of a task that count for its calls, unless they say otherwise.
_FROM_TASK: Final = ("queue", "priority", "expires", "time_limit", "soft_time_limit", "ignore_result")
#: What says where a message goes.
_PLACES: Final = ("queue", "exchange", "routing_key")
#: RabbitMQ writes these by itself; on a message that is sent again it would take them for signs of a loop.
_BROKERS_OWN: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count")


def posting_for(
    name: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    options: CallOptions | None = None,
    *,
    settings: Settings,
    task: TaskOptions | None = None,
    context: Context | None = None,
    reply_to: str = "",
    origin: str | None = None,
    stamps: Mapping[str, Any] | None = None,
    now: float | None = None,
) -> Posting:
    """Return the message of one call of a task, and where it goes.

    ``task`` is what the task says of itself, if it is known here, and ``context`` the run that the call
    is made in: of that the new task is a child. Raises CallerError, with the fix, for what cannot be sent.
    """
    given = _merged(name, options or {}, settings, task, now=time() if now is None else now)
    exchange, routing_key = _destination(given, settings)
    arguments = Arguments(
        *_checked_arguments(name, args, kwargs),
        read_signatures("link", given.get("link")),
        read_signatures("link_error", given.get("link_error")),
        read_signatures("chain", given.get("chain")),
        next(iter(read_signatures("chord", given.get("chord"))), None),
    )
    check_limits(hard=given.get("time_limit"), soft=given.get("soft_time_limit"))
    task_id = given.get("task_id") or str(uuid4())
    root_id, parent_id = given.get("root_id"), given.get("parent_id")
    if context is not None:
        root_id, parent_id = root_id or context.root_id, parent_id or context.id
    request = TaskRequest(
        task_id,
        name,
        _spelled(name, arguments, settings),
        root_id or task_id,
        parent_id,
        given.get("group_id"),
        given.get("group_index"),
        given.get("shadow"),
        given.get("eta"),
        given.get("expires"),
        given.get("retries", 0),
        given.get("time_limit"),
        given.get("soft_time_limit"),
        _shown(given.get("argsrepr"), arguments.args),
        _shown(given.get("kwargsrepr"), arguments.kwargs),
        origin or anonymous_name(),
        given.get("ignore_result"),
        given.get("replaced_task_nesting", 0),
        given.get("reply_to") or reply_to,
        task_id,
        {**(stamps or {}), **read_headers(given.get("headers", {}))},
    )
    return Posting(request, routing_key, exchange, given.get("priority", settings.task_default_priority))


def retry_posting(
    context: Context,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    options: CallOptions,
    *,
    settings: Settings,
    now: float | None = None,
) -> Posting:
    """Return the message of the next try of a task that runs: the same task, to where it came from.

    What ``args``, ``kwargs`` and ``options`` do not change stays as it was.
    """
    given = read_options(options, now=time() if now is None else now)
    before, came = context.message, context.delivery_info
    headers = {k: v for k, v in before.headers.items() if not k.startswith(_BROKERS_OWN)}
    request = before._replace(
        # Celery: a task that nobody started becomes the parent of its next try.
        parent_id=before.parent_id or before.id,
        root_id=before.root_id or before.id,
        retries=before.retries + 1,
        eta=given.get("eta"),
        expires=given.get("expires", before.expires),
        time_limit=given.get("time_limit", before.time_limit),
        soft_time_limit=given.get("soft_time_limit", before.soft_time_limit),
        shadow=given.get("shadow", before.shadow),
        ignore_result=given.get("ignore_result", before.ignore_result),
        headers={**headers, **read_headers(given.get("headers", {}))},
    )
    request = _with_arguments(request, context.arguments, args, kwargs, given=given, settings=settings)
    if not any(name in given for name in _PLACES):
        # Its exchange may be of any kind, may lead to other queues too, and need not be known here.
        by_exchange = {"exchange": came["exchange"], "routing_key": came["routing_key"] or None}
        given |= {"queue": context.queue} if context.queue else by_exchange
    exchange, routing_key = _destination(given, settings)
    return Posting(request, routing_key, exchange, given.get("priority", came["priority"]))


def _with_arguments(
    request: TaskRequest,
    before: Arguments,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    *,
    given: Mapping[str, Any],
    settings: Settings,
) -> TaskRequest:
    """Return a request with other arguments; one without as it is, its body unread."""
    shown = {name: _shown(given[name], "") for name in ("argsrepr", "kwargsrepr") if name in given}
    links = {name: read_signatures(name, given[name]) for name in ("link", "link_error") if name in given}
    if args is None and kwargs is None and not links:
        return request._replace(
            argsrepr=shown.get("argsrepr", request.argsrepr),
            kwargsrepr=shown.get("kwargsrepr", request.kwargsrepr),
        )
    checked = _checked_arguments(
        request.task, before.args if args is None else args, before.kwargs if kwargs is None else kwargs
    )
    after = Arguments(
        *checked,
        links.get("link", before.callbacks),
        links.get("link_error", before.errbacks),
        before.chain,
        before.chord,
    )
    return request._replace(
        body=_spelled(request.task, after, settings),
        argsrepr=shown.get("argsrepr", _shown_again(request.argsrepr, before.args, after.args)),
        kwargsrepr=shown.get("kwargsrepr", _shown_again(request.kwargsrepr, before.kwargs, after.kwargs)),
    )


def sent_fields(posting: Posting) -> dict[str, object]:
    """Return what the event ``task-sent`` tells of a message, but for its ``uuid``."""
    request = posting.request
    return {
        "name": request.task,
        "args": request.argsrepr,
        "kwargs": request.kwargsrepr,
        "root_id": request.root_id,
        "parent_id": request.parent_id,
        "retries": request.retries,
        "eta": iso(request.eta),
        "expires": iso(request.expires),
        "queue": None if posting.exchange else posting.routing_key,
        "exchange": posting.exchange,
        "routing_key": posting.routing_key,
    }


# -- options


def _merged(
    name: str, options: Mapping[str, Any], settings: Settings, task: TaskOptions | None, *, now: float
) -> dict[str, Any]:
    """Return the options of a call, with what the task and its route say where the call says nothing."""
    if not is_task_name(name):
        raise CallerError(f"task names are strings such as 'shop.pay', not {name!r:.80}")
    given = read_options(options, now=now)
    defaults = _route(name, settings)
    if task is not None:
        of_task = {each: getattr(task, each) for each in _FROM_TASK}
        defaults = _placed(defaults, of_task)
    return _placed(read_options(defaults, now=now), given)


def _placed(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, where the higher counts; a place that it names leaves nothing of the other."""
    said = {name: value for name, value in higher.items() if value is not None}
    if any(name in said for name in _PLACES):
        lower = {name: value for name, value in lower.items() if name not in _PLACES}
    return {**lower, **said}


def _route(name: str, settings: Settings) -> Mapping[str, Any]:
    """Return what the setting ``task_routes`` says of a task."""
    for pattern, route in settings.task_routes.items():
        if not fnmatchcase(name, pattern):
            continue
        if isinstance(route, str):
            return {"queue": route}
        if isinstance(route, Mapping) and {*route} <= {*_PLACES, "priority"}:
            return route
        raise ImproperlyConfigured(
            f"task_routes has {route!r:.80} for {pattern!r}; give a queue name, or a table of "
            f"{', '.join(_PLACES)} and priority"
        )
    return {}


def _destination(given: Mapping[str, Any], settings: Settings) -> tuple[str, str]:
    """Return the exchange and the routing key."""
    if given.get("queue"):
        return "", given["queue"]
    if given.get("exchange"):
        return given["exchange"], given.get("routing_key") or ""
    # With no exchange a routing key is the name of a queue.
    queue = given.get("routing_key") or settings.task_default_queue
    if not is_name(queue):
        raise ImproperlyConfigured(
            f"task_default_queue is {queue!r:.80}; give a queue name of up to 255 bytes"
        )
    return "", queue


# -- arguments


def _checked_arguments(name: str, args: object, kwargs: object) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
    if not isinstance(args, list | tuple):
        # Not what it is: that may be secret, and errors are logged.
        raise CallerError(f"the args of task {name!r} are a {type(args).__name__}: give a list or a tuple")
    if not isinstance(kwargs, Mapping) or not all(isinstance(each, str) for each in kwargs):
        raise CallerError(
            f"the kwargs of task {name!r} are a {type(kwargs).__name__}: give a dict with string keys"
        )
    return tuple(args), kwargs


def _spelled(name: str, arguments: Arguments, settings: Settings) -> bytes:
    try:
        body = spell_body(arguments)
    except CallerError as error:
        raise CallerError(f"cannot send the arguments of task {name!r}: {error}") from None
    if len(body) > settings.task_max_bytes:
        raise CallerError(
            f"the arguments of task {name!r} have {len(body):,} bytes, more than the "
            f"{settings.task_max_bytes:,} that workers accept: store them elsewhere and send a reference, "
            "or raise task_max_bytes"
        )
    return body


def _shown(wanted: str | None, value: object) -> str:
    if wanted is None:
        return argument_text(dict(value) if isinstance(value, Mapping) else value)
    return wanted if len(wanted) <= MAX_REPR_CHARS else f"{wanted[: MAX_REPR_CHARS - 3]}..."


def _shown_again(shown: str, before: object, after: object) -> str:
    """Return how arguments are shown that may have changed; those that were hidden stay so."""
    return _shown(None, after) if shown == _shown(None, before) else shown
