"""Tasks as messages: protocol 2, which Celery speaks since 4.0, and protocol 1, which it still reads.

What a peer sends raises :class:`~celeriac.errors.PeerError` with the reason where it cannot be
taken. A field without which a task can run as well counts as absent if it makes no sense.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from celeriac.config import Limits
from celeriac.errors import PeerError
from celeriac.model.events import MAX_ID_CHARS
from celeriac.model.message import Message
from celeriac.model.task_request import TaskRequest
from celeriac.wire.argument_text import MAX_REPR_CHARS, argument_text
from celeriac.wire.envelope import body_of
from celeriac.wire.field import MAX_NAME_BYTES
from celeriac.wire.task_body import parse, read_body, spell_body
from celeriac.wire.value import mend_text, revive

__all__ = [
    "MAX_TASK_NAME_CHARS",
    "PROTOCOL_HEADERS",
    "Spelled",
    "argument_text",
    "decode",
    "encode",
    "is_task_id",
    "is_task_name",
    "iso",
    "read_body",
    "read_moment",
    "spell_body",
]

#: A module within a few packages, and a function: far more than any has.
MAX_TASK_NAME_CHARS: Final = 1024
#: The headers that are the protocol's; all others are the user's.
PROTOCOL_HEADERS: Final = frozenset(
    {
        "argsrepr", "compression", "eta", "expires", "group", "group_index", "id", "ignore_result",
        "kwargsrepr", "lang", "origin", "parent_id", "redelivered", "replaced_task_nesting", "retries",
        "root_id", "shadow", "task", "timelimit",
    }
)  # fmt: skip
#: Of these Celery always writes both, and seldom something into them.
_STAMPS: Final = frozenset({"stamped_headers", "stamps"})
#: What the headers of a user may hold, all together.
_LIMITS: Final = Limits()
#: The text of a moment has 32 characters.
_MAX_MOMENT_CHARS: Final = 64
#: The last second of the year 9999: a float cannot hold the microseconds after it.
_LAST_MOMENT: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


class Spelled(NamedTuple):
    """A request as it is published."""

    headers: dict[str, object]
    body: bytes


# -- writing


def encode(request: TaskRequest) -> Spelled:
    """Return a request as a message of protocol 2, with all headers that Celery writes."""
    return Spelled(
        {
            "stamped_headers": None,
            "stamps": {},
            # The user's own stand beside those of the protocol, and cannot take their place.
            **request.headers,
            "lang": "py",
            "task": request.task,
            "id": request.id,
            "shadow": request.shadow,
            "eta": iso(request.eta),
            "expires": iso(request.expires),
            "group": request.group_id,
            "group_index": request.group_index,
            "retries": request.retries,
            # Celery: the hard limit first; its description of the protocol says the reverse.
            "timelimit": [request.time_limit, request.soft_time_limit],
            "root_id": request.root_id or request.id,
            "parent_id": request.parent_id,
            "argsrepr": request.argsrepr,
            "kwargsrepr": request.kwargsrepr,
            "origin": request.origin,
            "ignore_result": request.ignore_result,
            "replaced_task_nesting": request.replaced_task_nesting,
        },
        request.body,
    )


def iso(at: float | None) -> str | None:
    """Return a moment as ISO 8601 in UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


# -- reading


def decode(message: Message, *, max_bytes: int) -> TaskRequest:
    """Read a task from its message; its arguments are left unread, for :func:`read_body`."""
    body = body_of(message, max_bytes=max_bytes)
    if len(body) > max_bytes:
        raise PeerError("body-size")
    headers = message.headers
    if "task" not in headers:
        return _decode_first(message, body)
    request = _read(headers, message, body, group=headers.get("group"))
    others = {
        name: value
        for name, value in headers.items()
        if name not in PROTOCOL_HEADERS and (value or name not in _STAMPS)
    }
    return request._replace(headers=_bounded(others)) if others else request


def _read(fields: Mapping[str, Any], message: Message, body: bytes, *, group: object) -> TaskRequest:
    """Read what a task is from the headers of protocol 2, or the body of protocol 1."""
    get = fields.get
    task, task_id = get("task"), get("id")
    if not is_task_name(task):
        raise PeerError("task-name")
    if not is_task_id(task_id):
        task_id = _read_uuid(task_id)
    eta, expires = get("eta"), get("expires")
    limits = get("timelimit")
    hard, soft = (None, None) if limits is None else _read_limits(limits)
    index, ignores, reply_to = get("group_index"), get("ignore_result"), message.reply_to
    shadow = get("shadow")
    return TaskRequest(
        task_id,
        task,
        body,
        _read_id(get("root_id")),
        _read_id(get("parent_id")),
        _read_id(group),
        index if type(index) is int else None,
        shadow if shadow and is_task_name(shadow) else None,
        None if eta is None else read_moment(eta, "eta"),
        None if expires is None else read_moment(expires, "expires"),
        _read_count(get("retries")),
        hard,
        soft,
        _read_text(get("argsrepr")),
        _read_text(get("kwargsrepr")),
        _read_id(get("origin")),
        ignores if type(ignores) is bool else None,
        _read_count(get("replaced_task_nesting")),
        reply_to if len(reply_to) <= MAX_NAME_BYTES else "",
        message.correlation_id or task_id,
        {},
    )


def _decode_first(message: Message, body: bytes) -> TaskRequest:
    """Read a task of protocol 1, where all is in the body; the body becomes one of protocol 2."""
    fields = parse(body)
    if not isinstance(fields, dict) or "task" not in fields:
        raise PeerError("no-task")
    args, kwargs = fields.get("args") or [], fields.get("kwargs") or {}
    names = ("callbacks", "errbacks", "chain", "chord")
    try:
        spelled = json.dumps([args, kwargs, {name: fields.get(name) for name in names}]).encode()
        arguments = read_body(spelled)
    except RecursionError:
        raise PeerError("body-depth") from None
    if fields.get("utc", True) is False:
        fields |= {name: _localized(fields.get(name)) for name in ("eta", "expires")}
    # Celery: the name that groups had then counts, where both are there.
    request = _read(fields, message, spelled, group=fields.get("taskset", fields.get("group")))
    return request._replace(
        argsrepr=argument_text(arguments.args),
        kwargsrepr=argument_text(arguments.kwargs),
        headers=_bounded({**message.headers}),
    )


def _localized(moment: object) -> object:
    """Return the text of a moment, by the time zone that we are in if it names none."""
    try:
        return datetime.fromisoformat(moment).astimezone().isoformat() if isinstance(moment, str) else moment
    except (ValueError, OverflowError, OSError):
        return moment  # told when it is read


def is_task_id(value: object) -> TypeGuard[str]:
    """Tell whether a value can be the id of a task."""
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS and value.isprintable()


def is_task_name(value: object) -> TypeGuard[str]:
    """Tell whether a value can be the name of a task."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TASK_NAME_CHARS and value.isprintable()


def _read_uuid(value: object) -> str:
    """Return an id that was given as a UUID, which Celery 5.7 lets through; refuse all else."""
    if value is None:
        raise PeerError("no-id")
    value = revive(value) if isinstance(value, dict) else value
    if not isinstance(value, UUID):
        raise PeerError("task-id")
    return str(value)


def _read_id(value: Any) -> str | None:
    return value if value is not None and is_task_id(value) else None


def _read_count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    if len(value) > MAX_REPR_CHARS:
        value = f"{value[: MAX_REPR_CHARS - 3]}..."
    return mend_text(value)


def read_moment(value: object, reason: str) -> float:
    """Return seconds of the epoch from a text of ISO 8601, by UTC if it names no zone; else refuse.

    A time that in UTC is outside of the years 1 to 9999 is refused too: nobody could write it down again.
    """
    try:
        if not isinstance(value, str) or len(value) > _MAX_MOMENT_CHARS:
            raise PeerError(reason)
        moment = datetime.fromisoformat(value)
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return min(utc.timestamp(), _LAST_MOMENT)
    except (ValueError, OverflowError):
        raise PeerError(reason) from None


def _read_limits(value: object) -> tuple[float | None, float | None]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise PeerError("timelimit")
    hard, soft = value
    return _read_limit(hard), _read_limit(soft)


def _read_limit(value: object) -> float | None:
    # Celery: 0 is none, too.
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise PeerError("timelimit")
    return float(value)


def _bounded(headers: dict[str, Any]) -> dict[str, Any]:
    """Return the headers of a user as they are, or refuse what is too much."""
    items, chars = _LIMITS.items, _LIMITS.event_bytes
    found: list[tuple[object, int]] = [(headers, 0)]
    while found:
        value, depth = found.pop()
        if isinstance(value, str | bytes):
            chars -= len(value)
        elif isinstance(value, dict | list | tuple):
            items -= len(value)
            if items < 0 or depth > _LIMITS.depth:
                raise PeerError("headers")
            found.extend((key, depth) for key in value if isinstance(value, dict))
            found.extend((item, depth + 1) for item in (value.values() if isinstance(value, dict) else value))
        if chars < 0:
            raise PeerError("headers")
    return headers
