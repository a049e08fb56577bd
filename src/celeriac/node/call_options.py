"""How one call of a task is made: the options of ``apply_async``, and what they come to."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypedDict

from celeriac.errors import CallerError, PeerError
from celeriac.model.events import MAX_TIMESTAMP
from celeriac.node.task_options import is_priority, is_seconds
from celeriac.wire.field import is_name
from celeriac.wire.signature import read_signature
from celeriac.wire.task_request import PROTOCOL_HEADERS, is_task_name, read_moment
from celeriac.wire.value import spell

if TYPE_CHECKING:
    from celeriac.node.signature import Signature

__all__ = ["CALL_OPTIONS", "CallOptions", "Moment", "read_headers", "read_options", "read_signatures"]

#: Seconds of the epoch, a date and time, or its text as ISO 8601; by UTC where no zone is named.
Moment = float | datetime | str


class CallOptions(TypedDict, total=False):
    """The options of one call. What is None, or left out, is up to the task, its route and the settings."""

    #: Seconds from now, before which it does not run.
    countdown: float | None
    #: The same as a moment.
    eta: Moment | None
    #: After so many seconds, or this moment, it is not begun any more.
    expires: float | datetime | str | None
    queue: str | None
    routing_key: str | None
    exchange: str | None
    priority: int | None
    task_id: str | None
    #: Of your own, beside those of the protocol; the task finds them in ``request.headers``.
    headers: Mapping[str, Any] | None
    #: Called with the result, or with the id of the task if it failed.
    link: "Signature | Mapping[str, Any] | Iterable[Signature | Mapping[str, Any]] | None"
    link_error: "Signature | Mapping[str, Any] | Iterable[Signature | Mapping[str, Any]] | None"
    root_id: str | None
    parent_id: str | None
    group_id: str | None
    group_index: int | None
    #: How the arguments are shown, where they are to be hidden.
    argsrepr: str | None
    kwargsrepr: str | None
    #: The name to show in place of the task's.
    shadow: str | None
    time_limit: float | None
    soft_time_limit: float | None
    ignore_result: bool | None
    retries: int | None
    serializer: str | None
    # What Celery's signatures hold beyond that.
    reply_to: str | None
    chain: Iterable[Mapping[str, Any]] | None
    chord: Mapping[str, Any] | None
    replaced_task_nesting: int | None


#: The names of all of them.
CALL_OPTIONS: Final = frozenset(CallOptions.__annotations__)


def read_options(options: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """Return the options that say something, checked, with moments as seconds of the epoch.

    ``countdown`` becomes ``eta``. Raises CallerError with the fix.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        _check(name, value)
    # Celery: of both it is the countdown that counts.
    countdown = given.pop("countdown", None)
    if countdown is not None:
        given["eta"] = _checked_moment("countdown", now + countdown)
    elif "eta" in given:
        given["eta"] = _read_moment("eta", given["eta"])
    expires = given.get("expires")
    if expires is not None:
        is_span = isinstance(expires, int | float)
        given["expires"] = _read_moment("expires", now + expires if is_span else expires)
    return given


def _is_span(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


_Check = tuple[tuple[str, ...], Callable[[Any], bool], str]
_KINDS: Final[tuple[_Check, ...]] = (
    (
        ("task_id", "root_id", "parent_id", "group_id", "queue", "routing_key"),
        is_name,
        "give a string of 1 to 255 bytes, without control characters",
    ),
    (
        ("exchange", "reply_to"),
        lambda value: value == "" or is_name(value),
        "give a string of up to 255 bytes, without control characters",
    ),
    (
        ("retries", "group_index", "replaced_task_nesting"),
        lambda value: type(value) is int and 0 <= value < 2**31,
        "give an integer",
    ),
    (("argsrepr", "kwargsrepr"), lambda value: isinstance(value, str), "give a string"),
    (("shadow",), is_task_name, "give a task name"),
    (("time_limit", "soft_time_limit"), is_seconds, "give a number of seconds above 0"),
    (("countdown",), _is_span, "give a number of seconds"),
    (("priority",), is_priority, "give an integer from 0 to 255"),
    (("ignore_result",), lambda value: isinstance(value, bool), "use True or False"),
    (("serializer",), lambda value: value == "json", "use 'json', the only supported serializer"),
)
_CHECKS: Final = {name: (is_fine, fix) for names, is_fine, fix in _KINDS for name in names}
_NO_CHECK: Final = (lambda _: True, "")


def _check(name: str, value: object) -> None:
    """Raise CallerError for what cannot be the value of an option."""
    is_fine, fix = _CHECKS.get(name, _NO_CHECK)
    if not is_fine(value):
        _refuse(name, value, fix)


def _refuse(name: str, value: object, fix: str) -> None:
    raise CallerError(f"{name} is {value!r:.80}: {fix}")


def _read_moment(name: str, value: object) -> float:
    if isinstance(value, datetime):
        # Celery: one that names no zone is by UTC.
        value = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    elif isinstance(value, str):
        with suppress(PeerError):
            value = read_moment(value, name)
    return _checked_moment(name, value)


def _checked_moment(name: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < MAX_TIMESTAMP:  # type: ignore[operator]
        _refuse(name, value, "give seconds, or a time from 1970 to 2100 as datetime or ISO 8601")
    return float(value)  # type: ignore[arg-type]


def read_headers(headers: object) -> dict[str, Any]:
    """Return the headers of a user as every broker can carry them: as JSON."""
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise CallerError("headers must be a dict with string keys")
    taken = sorted(PROTOCOL_HEADERS.intersection(headers))
    if taken:
        raise CallerError(f"the header {taken[0]} is reserved by the protocol: use another name")
    found: dict[str, Any] = json.loads(spell(dict(headers)))
    return found


def read_signatures(name: str, value: Any) -> tuple[dict[str, Any], ...]:
    """Return one signature, or several, as dicts."""
    if value is None:
        return ()
    if isinstance(value, Mapping) or hasattr(value, "to_dict"):
        value = (value,)
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise CallerError(f"{name} is {value!r:.80}: give a signature, or a list of signatures")
    return tuple(_read_signature(name, each) for each in value)


def _read_signature(name: str, value: Any) -> dict[str, Any]:
    spelled = value.to_dict() if hasattr(value, "to_dict") else value
    spelled = dict(spelled) if isinstance(spelled, Mapping) else spelled
    try:
        read_signature(spelled)
    except PeerError:
        raise CallerError(
            f"{name} is {value!r:.80}: give a signature, such as task.s(1, 2), or its dict"
        ) from None
    found: dict[str, Any] = spelled
    return found
