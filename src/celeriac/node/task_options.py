"""What a task says of itself: how it is sent, run and tried again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final

from celeriac.errors import CallerError
from celeriac.wire.field import is_name

__all__ = ["OPTION_NAMES", "TaskOptions", "check_limits", "check_names", "is_priority", "is_seconds"]

#: Thirty years. More is a mistake of the unit.
_LONGEST: Final = 1e9


@dataclass(kw_only=True, eq=False, repr=False)
class TaskOptions:
    """The options of a task. None leaves it to the setting that begins with ``task_``, if there is one."""

    #: Whether the function gets the task as its first argument.
    bind: bool = False
    #: How often it is tried again; None for ever.
    max_retries: int | None = 3
    #: Seconds until it is tried again, where nobody says.
    default_retry_delay: float = 180.0
    #: Errors after which it is tried again by itself, and those of them after which it is not.
    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    #: How that is done: arguments of ``retry``.
    retry_kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: True for waits of 1, 2, 4 … seconds; a number is the first of them.
    retry_backoff: bool | float = False
    #: The longest of them.
    retry_backoff_max: float = 600.0
    #: Whether each is drawn at random, up to that long.
    retry_jitter: bool = True
    #: Whether its message is acknowledged when it has ended, not when it begins.
    acks_late: bool | None = None
    #: With that: whether also if it failed.
    acks_on_failure_or_timeout: bool | None = None
    #: With that: whether it runs again if its process was killed.
    reject_on_worker_lost: bool | None = None
    ignore_result: bool | None = None
    store_errors_even_if_ignored: bool | None = None
    track_started: bool | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    #: How often a worker begins it, such as ``10/s``.
    rate_limit: str | float | None = None
    #: Where it is sent; None leaves it to ``task_routes`` and ``task_default_queue``.
    queue: str | None = None
    priority: int | None = None
    #: Whether its events are sent, where events are.
    send_events: bool = True
    #: The only one there is.
    serializer: str = "json"
    #: Seconds after which it is not begun any more.
    expires: float | None = None
    #: How much of its result events show.
    resultrepr_maxsize: int = 1024
    #: Errors that are expected: they are logged without a trace.
    throws: tuple[type[BaseException], ...] = ()
    #: Whether arguments are checked when it is sent.
    typing: bool = True

    def __post_init__(self) -> None:
        for name in ("autoretry_for", "dont_autoretry_for", "throws"):
            given = getattr(self, name)
            setattr(self, name, (given,) if isinstance(given, type) else tuple(given))
        for names, is_fine, fix in _KINDS:
            for name in names:
                value = getattr(self, name)
                if not is_fine(value):
                    raise CallerError(f"option {name} of a task is {value!r:.80}: {fix}")
        check_limits(hard=self.time_limit, soft=self.soft_time_limit)


def check_limits(*, hard: float | None, soft: float | None) -> None:
    """Raise CallerError if a task would be ended before it is asked to."""
    if hard is not None and soft is not None and soft > hard:
        raise CallerError(
            f"soft_time_limit is {soft:g} s and time_limit {hard:g} s, so the task would be killed before "
            "the soft limit: make soft_time_limit shorter than time_limit"
        )


def is_seconds(value: object) -> bool:
    """Tell whether a value can be a span of time."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST


def is_priority(value: object) -> bool:
    """Tell whether a value can be the priority of a message."""
    return type(value) is int and 0 <= value <= 255


def check_names(given: Mapping[str, object], known: frozenset[str], *, of: str) -> None:
    """Raise CallerError for an option that there is none of, and name the one that may be meant."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(known))}"
            raise CallerError(f"{name} is not an option of {of}: {hint}")


def _are_errors(value: Any) -> bool:
    return all(isinstance(each, type) and issubclass(each, BaseException) for each in value)


def _is_rate(value: Any) -> bool:
    return isinstance(value, str | None) or (isinstance(value, int | float) and value >= 0)


_Check = tuple[tuple[str, ...], Callable[[Any], bool], str]
_KINDS: Final[tuple[_Check, ...]] = (
    (
        ("bind", "retry_jitter", "send_events", "typing"),
        lambda value: isinstance(value, bool),
        "use True or False",
    ),
    (
        (
            "acks_late",
            "acks_on_failure_or_timeout",
            "reject_on_worker_lost",
            "ignore_result",
            "store_errors_even_if_ignored",
            "track_started",
        ),
        lambda value: isinstance(value, bool | None),
        "use True or False, or None for the setting",
    ),
    (
        ("max_retries",),
        lambda value: value is None or (type(value) is int and value >= 0),
        "give an integer, or None for no limit",
    ),
    (
        ("default_retry_delay", "retry_backoff", "retry_backoff_max"),
        lambda value: value in (False, True) or is_seconds(value),
        "give a number of seconds",
    ),
    (
        ("time_limit", "soft_time_limit", "expires"),
        lambda value: value is None or is_seconds(value),
        "give a number of seconds above 0, or None for none",
    ),
    (("autoretry_for", "dont_autoretry_for", "throws"), _are_errors, "give exception classes"),
    (("retry_kwargs",), lambda value: isinstance(value, Mapping), "give a dict"),
    (("rate_limit",), _is_rate, "give a string such as '10/s' or '100/m'"),
    (("queue",), lambda value: value is None or is_name(value), "give a queue name"),
    (
        ("priority",),
        lambda value: value is None or is_priority(value),
        "give an integer from 0 to 255",
    ),
    (("serializer",), lambda value: value == "json", "use 'json', the only supported serializer"),
    (
        ("resultrepr_maxsize",),
        lambda value: type(value) is int and value > 0,
        "give a number of characters",
    ),
)

#: The names of all of them.
OPTION_NAMES: Final = frozenset(each.name for each in fields(TaskOptions))
