"""What a setting may hold, and how it is read from text."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from celeriac.errors import ImproperlyConfigured
from celeriac.masking import SCHEME, masked

__all__ = ["checked"]

#: Thirty years. More is a mistake of the unit, and brokers cannot hold it.
_LONGEST = 1e9
_SWITCH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
#: Those in Python itself, by the names that Celery gives them.
_COMPRESSIONS = ("gzip", "bzip2", "lzma")
_JSON_ONLY = "Celeriac accepts JSON only, because pickle and YAML can run code of a peer"
#: How far an election can be relied on, from the least.
_LEVELS = ("L0", "L1", "L2", "L3")
#: What may become of the arguments of a task before they are written.
_POLICIES = ("keep", "hash", "drop")
#: Of a lease: shorter, and a slow answer of who decides would end it.
_MIN_LEASE = 0.5


class _Kind(NamedTuple):
    fix: str
    is_fine: Callable[[Any], bool]
    #: From the text of a variable; raises ValueError for one that cannot be read.
    read: Callable[[str], object] = str
    #: From a value that is fine to the one that is kept.
    keep: Callable[[Any], object] = lambda value: value


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_url(value: object) -> bool:
    return isinstance(value, str) and re.match(SCHEME, value) is not None


def _read_switch(text: str) -> object:
    return _SWITCH[text.lower()] if text.lower() in _SWITCH else json.loads(text)


def _read_texts(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _copied(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _at_least(least: float) -> _Kind:
    return _Kind(
        f"give a number of seconds of at least {least:g}",
        lambda value: _is_seconds(value) and value >= least,
        float,
        float,
    )


_KINDS: dict[object, _Kind] = {
    bool: _Kind("use true or false", lambda value: isinstance(value, bool), _read_switch),
    int: _Kind("give an integer above 0", lambda value: type(value) is int and value > 0, int),
    float: _Kind("give a number of seconds above 0", _is_seconds, float, float),
    str: _Kind("give a string that is not empty", lambda value: isinstance(value, str) and value != ""),
    # Neither a variable nor TOML can say None, so an empty text does.
    str | None: _Kind(
        "give a string", lambda value: isinstance(value, str | None), keep=lambda value: value or None
    ),
    float | None: _Kind(
        "give a number of seconds above 0, or an empty string for none",
        lambda value: value in (None, "") or _is_seconds(value),
        lambda text: float(text) if text else None,
        lambda value: None if value in (None, "") else float(value),
    ),
    int | None: _Kind(
        "give an integer above 0, or an empty string for none",
        lambda value: value in (None, "") or (type(value) is int and value > 0),
        lambda text: int(text) if text else None,
        lambda value: value or None,
    ),
    tuple[str, ...]: _Kind("give a list of strings; in a variable: a,b", _is_texts, _read_texts, tuple),
    Mapping[str, object]: _Kind("give a table; in a variable: JSON", _is_table, json.loads, _copied),
    bool | Mapping[str, object]: _Kind(
        "use true or false, or give a table; in a variable: JSON",
        lambda value: isinstance(value, bool) or _is_table(value),
        _read_switch,
        _copied,
    ),
}
#: Settings that are more particular than their type.
_PARTICULAR = {
    "broker_url": _Kind("give a URL such as redis://127.0.0.1:6379/0; separate several by ;", _is_url),
    "result_backend": _Kind(
        "give a URL such as redis://127.0.0.1:6379/0 or rpc://, or an empty string for none",
        lambda value: value in (None, "") or _is_url(value),
        keep=lambda value: value or None,
    ),
    "election_url": _Kind(
        "give a URL such as redis://127.0.0.1:6379/0, or an empty string to use the broker",
        lambda value: value in (None, "") or _is_url(value),
        keep=lambda value: value or None,
    ),
    "election_min_level": _Kind(
        f"choose {', '.join(_LEVELS)}", lambda value: isinstance(value, str) and value in _LEVELS
    ),
    "election_mixed": _Kind("use 'follow' or 'refuse'", lambda value: value in ("follow", "refuse")),
    "beat_ttl": _at_least(_MIN_LEASE),
    "election_ttl": _at_least(_MIN_LEASE),
    # Shorter, and one who was stopped for as long would claim what was decided long ago.
    "election_retain": _at_least(60.0),
    "result_expires": _Kind(
        "give a number of seconds, or 0 for no limit",
        lambda value: _is_seconds(value) or (type(value) in (int, float) and value == 0),
        float,
        float,
    ),
    "redact_tasks": _Kind(
        f"give a table from task names to {', '.join(_POLICIES)}; in a variable: JSON",
        lambda value: _is_table(value) and all(policy in _POLICIES for policy in value.values()),
        json.loads,
        _copied,
    ),
    "result_compression": _Kind(
        f"use one of {', '.join(_COMPRESSIONS)}, or an empty string for none",
        lambda value: value in (None, "", *_COMPRESSIONS),
        keep=lambda value: value or None,
    ),
    "task_default_queue_type": _Kind(
        "use 'classic' or 'quorum'", lambda value: value in ("classic", "quorum")
    ),
    "task_default_priority": _Kind(
        "give an integer from 0 to 255, or an empty string for none",
        lambda value: value in (None, "") or (type(value) is int and 0 <= value <= 255),
        lambda text: int(text) if text else None,
        lambda value: None if value == "" else value,
    ),
    "broker_heartbeat": _Kind("use whole seconds or 0", lambda value: type(value) is int and value >= 0, int),
    "event_serializer": _Kind(f"use 'json': {_JSON_ONLY}", lambda value: value == "json"),
    "accept_content": _Kind(
        f"use ['json']: {_JSON_ONLY}",
        lambda value: _is_texts(value) and value and {*value} <= {"json", "application/json"},
        _read_texts,
        tuple,
    ),
}


def checked(name: str, kind_of: object, value: object, source: str, *, is_text: bool = False) -> object:
    """Return a value of a type as it is kept, or raise an error that names setting, value, source and fix."""
    kind = _PARTICULAR.get(name) or _KINDS[kind_of]
    try:
        candidate = kind.read(str(value).strip()) if is_text else value
        is_fine = kind.is_fine(candidate)
    except (ValueError, RecursionError):
        is_fine = False
    if is_fine:
        return kind.keep(candidate)
    shown = repr(masked(name, value))[:80]
    # Raised outside the handler: a JSON error holds the text, and with it perhaps a password.
    raise ImproperlyConfigured(f"{name} is {shown} ({source}); {kind.fix}")
