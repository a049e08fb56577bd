"""Limits and settings, each beside its reason.

Nothing here looks at the process around it: environment and folder are arguments.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

from celeriac.errors import ImproperlyConfigured
from celeriac.masking import SCHEME, masked

__all__ = ["Limits", "Settings"]

KIB = 1024
MIB = 1024 * KIB
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one peer may send. Beyond it the message is refused and counted."""

    #: A batch of events: a full one of typical events (24 of 600 bytes) is 14 KiB.
    body_bytes: int = MIB
    #: One event. Celery cuts its reprs at 1,024 characters, so 256 KiB is a long traceback.
    event_bytes: int = 256 * KIB
    #: Events in one body. Celery flushes a batch at 24.
    batch_events: int = 10_000
    #: Nesting of unknown fields: deep enough for any honest payload, far from Python's own limit.
    depth: int = 32
    #: Keys and list items in the unknown fields of one event, nested ones included.
    items: int = 1024
    #: One text. Longer ones are cut and end in a marker.
    text_chars: int = 64 * KIB
    #: How far ahead of us a sender's wall clock may be.
    future: float = DAY
    #: Refused bodies that are remembered, by digest.
    quarantine: int = 100


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """What an operator chooses, checked on construction.

    Names and defaults that Celery has too are Celery's. A value of the wrong kind, or two
    that exclude each other, raise :class:`~celeriac.errors.ImproperlyConfigured`. Tables and
    lists are copied. No secret is in ``repr()``, :meth:`public` or a message of an error.
    """

    #: Celery: with no broker named, RabbitMQ on this machine as its first user. Several URLs
    #: are parted by ``;``. An address, not a name: RabbitMQ may listen on one of two loopbacks.
    broker_url: str = "amqp://guest:guest@127.0.0.1:5672//"
    #: Passed on as they are; none, since each transport has its own.
    broker_transport_options: Mapping[str, object] = field(default_factory=dict)
    #: Off: the default broker is on this machine. True for TLS, a table for TLS with options of its own.
    broker_use_ssl: bool | Mapping[str, object] = False
    #: Long enough for a handshake across continents, short enough to try the next URL soon.
    broker_connection_timeout: float = 4.0
    #: Whole seconds, as AMQP counts them; 0 for none. Brokers drop a link after two missed beats.
    broker_heartbeat: int = 120
    #: None leaves the choice to the transport: PLAIN for AMQP.
    broker_login_method: str | None = None
    #: The first wait before a new link is tried. Waits are drawn at random: nodes must not return as one.
    broker_retry_base: float = 0.1
    #: The longest such wait: it keeps a receiver back within 2 s of its broker.
    broker_retry_cap: float = 1.0

    #: None keeps no results: most tasks need none. ``redis://…`` or ``sentinel://…`` keep them there;
    #: ``rpc://`` sends each as a message to the client that sent the task.
    result_backend: str | None = None
    #: As those of the broker: ``global_keyprefix``, ``master_name`` of Sentinel, and so on.
    result_backend_transport_options: Mapping[str, object] = field(default_factory=dict)
    #: Off, as for the broker. True for TLS, a table for TLS with options of its own.
    redis_backend_use_ssl: bool | Mapping[str, object] = False
    #: A day, as in Celery: who has not asked by then will not. 0 keeps results for ever.
    result_expires: float = DAY
    #: How long failures are kept; None as long as other results.
    result_failure_expires: float | None = None
    #: None stores results as they are: most are short. gzip, bzip2 or lzma, which Celery 5.7 reads.
    result_compression: str | None = None
    #: Off, as in Celery: messages of ``rpc://`` are for who waits now, and need not outlive the broker.
    result_persistent: bool = False
    #: A longer result is not read, and whoever waits for it is told so.
    result_max_bytes: int = 64 * MIB
    #: How to wait for results: default, gevent, eventlet or asyncio; None looks where it is asked from.
    result_drainer: str | None = None
    #: Celeriac takes JSON only. The setting is there so that a Celery configuration can be kept.
    accept_content: tuple[str, ...] = ("json",)

    #: Off, as in Celery: a worker nobody watches need not speak.
    worker_send_task_events: bool = False
    #: Off, as in Celery: it costs each client one message per task.
    task_send_sent_event: bool = False
    #: The exchange every event goes through; one name for all nodes that are to meet.
    event_exchange: str = "celeryev"
    #: A receiver's queue is named by this, a dot and the receiver's id.
    event_queue_prefix: str = "celeryev"
    #: Events are news: a receiver that lags further behind than this gets the newer ones.
    event_queue_ttl: float = 5.0
    #: A receiver that is gone this long has left, and its queue would fill for nobody.
    event_queue_expires: float = 60.0
    #: One receiver, one queue, which goes with its connection: old news need not outlive the broker.
    event_queue_exclusive: bool = True
    event_queue_durable: bool = False
    #: The only one there is; see ``accept_content``.
    event_serializer: str = "json"
    #: Off: timestamps stay the sender's. On: they are moved to our time zone, as Celery's receiver does.
    event_localize: bool = False
    #: Events a dispatcher keeps while the broker is away: about 6 MB of typical ones.
    event_offline_limit: int = 10_000

    #: On, as in Celery: a worker that cannot be asked is hard to run.
    worker_enable_remote_control: bool = True
    #: The exchange of commands is named by this and ``.pidbox``.
    control_exchange: str = "celery"
    #: A command nobody took for this long is of no use any more.
    control_queue_ttl: float = 300.0
    #: A node that is gone this long gets no more commands.
    control_queue_expires: float = 10.0
    #: One node, one mailbox, which goes with its connection: the node that was told is gone then.
    control_queue_exclusive: bool = True
    control_queue_durable: bool = False
    #: Commands our nodes obey beyond ping, hello, clock and stats. None: whoever reaches the
    #: broker can send commands, and some of them stop workers.
    control_allow: tuple[str, ...] = ()

    #: Celery's limits. Beyond them the task or worker least recently heard of is forgotten.
    max_tasks_in_memory: int = 10_000
    max_workers_in_memory: int = 5000

    _sources: Mapping[str, str] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        for name in _TYPES:
            object.__setattr__(self, name, _checked(name, getattr(self, name), "argument"))
        for kind in ("event", "control"):
            exclusive, durable = f"{kind}_queue_exclusive", f"{kind}_queue_durable"
            # Celery: durable alone is refused too, because exclusive is the default.
            if getattr(self, exclusive) and getattr(self, durable):
                raise ImproperlyConfigured(
                    f"{durable} and {exclusive} are both on ({exclusive} is by default), but an exclusive"
                    f" queue ends with its connection; set {exclusive} to False, or leave {durable} off"
                )
        if self.broker_retry_cap < self.broker_retry_base:
            raise ImproperlyConfigured(
                f"broker_retry_cap is {self.broker_retry_cap}, but the longest wait cannot be shorter than"
                f" the first, {self.broker_retry_base}; raise it, or lower broker_retry_base"
            )

    @classmethod
    def load(
        cls,
        arguments: Mapping[str, object] | None = None,
        *,
        environ: Mapping[str, str],
        file: Path | None = None,
        folder: Path = Path(),
    ) -> Self:
        """Return the settings of arguments, else variables, else a file, else the defaults.

        An argument that is None counts as not given. Variables are ``CELERIAC_`` and the
        name in capitals. The file is ``file``, else what ``CELERIAC_CONFIG`` names, else
        ``celeriac.toml`` in ``folder``, else the table ``tool.celeriac`` of
        ``pyproject.toml`` there. Raises ImproperlyConfigured for an unknown or bad one.
        """
        if file is None and environ.get(_FILE_VARIABLE):
            file = Path(environ[_FILE_VARIABLE])
        given = _read_file(file, folder) | _read_environ(environ) | _read_given(arguments or {}, "argument")
        values: dict[str, Any] = {name: value for name, (value, _) in given.items()}
        settings = cls(**values)
        object.__setattr__(settings, "_sources", {name: source for name, (_, source) in given.items()})
        return settings

    def sources(self) -> dict[str, str]:
        """Return, for each setting, the argument, variable or file it came from, or ``default``."""
        chosen = dict.fromkeys(self._chosen(), "argument")
        return dict.fromkeys(_TYPES, "default") | chosen | dict(self._sources)

    def public(self) -> dict[str, object]:
        """Return the settings for people and JSON: nothing in it is secret."""
        return {name: masked(name, getattr(self, name)) for name in _TYPES}

    def __repr__(self) -> str:
        public = self.public()
        return f"Settings({', '.join(f'{name}={public[name]!r}' for name in self._chosen())})"

    def _chosen(self) -> list[str]:
        default = type(self)()
        return [name for name in _TYPES if getattr(self, name) != getattr(default, name)]


_TYPES = {each.name: each.type for each in fields(Settings) if not each.name.startswith("_")}


# What a setting may hold.

#: Thirty years. More is a mistake of the unit, and brokers cannot hold it.
_LONGEST = 1e9
_SWITCH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
#: Those in Python itself, by the names that Celery gives them.
_COMPRESSIONS = ("gzip", "bzip2", "lzma")
_JSON_ONLY = "Celeriac takes JSON only, because to read pickle or YAML can run what a peer sent"


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


_KINDS: dict[object, _Kind] = {
    bool: _Kind("use true or false", lambda value: isinstance(value, bool), _read_switch),
    int: _Kind("give a whole number above 0", lambda value: type(value) is int and value > 0, int),
    float: _Kind("give a number of seconds above 0", _is_seconds, float, float),
    str: _Kind("give a text that is not empty", lambda value: isinstance(value, str) and value != ""),
    # Neither a variable nor TOML can say None, so an empty text does.
    str | None: _Kind(
        "give a text", lambda value: isinstance(value, str | None), keep=lambda value: value or None
    ),
    float | None: _Kind(
        "give a number of seconds above 0, or an empty text for none",
        lambda value: value in (None, "") or _is_seconds(value),
        lambda text: float(text) if text else None,
        lambda value: None if value in (None, "") else float(value),
    ),
    tuple[str, ...]: _Kind("give a list of texts, in a variable as a,b", _is_texts, _read_texts, tuple),
    Mapping[str, object]: _Kind("give a table, in a variable as JSON", _is_table, json.loads, _copied),
    bool | Mapping[str, object]: _Kind(
        "use true or false, or give a table, in a variable as JSON",
        lambda value: isinstance(value, bool) or _is_table(value),
        _read_switch,
        _copied,
    ),
}
#: Settings that are more particular than their type.
_PARTICULAR = {
    "broker_url": _Kind("give a URL such as redis://127.0.0.1:6379/0; several are parted by ;", _is_url),
    "result_backend": _Kind(
        "give a URL such as redis://127.0.0.1:6379/0 or rpc://, or an empty text for none",
        lambda value: value in (None, "") or _is_url(value),
        keep=lambda value: value or None,
    ),
    "result_expires": _Kind(
        "give a number of seconds, or 0 for no end",
        lambda value: _is_seconds(value) or (type(value) in (int, float) and value == 0),
        float,
        float,
    ),
    "result_compression": _Kind(
        f"use one of {', '.join(_COMPRESSIONS)}, or an empty text for none",
        lambda value: value in (None, "", *_COMPRESSIONS),
        keep=lambda value: value or None,
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


def _checked(name: str, value: object, source: str, *, is_text: bool = False) -> object:
    """Return the value as it is kept, or raise an error that names setting, value, source and fix."""
    kind = _PARTICULAR.get(name) or _KINDS[_TYPES[name]]
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


# Where a setting comes from.

_PREFIX = "CELERIAC_"
_FILE_VARIABLE = "CELERIAC_CONFIG"
_Given = dict[str, tuple[object, str]]


def _read_given(table: Mapping[str, object], source: str) -> _Given:
    given = {}
    for name, value in table.items():
        if name not in _TYPES:
            raise _unknown(f"{name} ({source})", name)
        if value is not None:
            given[name] = (_checked(name, value, source), source)
    return given


def _read_environ(environ: Mapping[str, str]) -> _Given:
    names = {f"{_PREFIX}{name.upper()}": name for name in _TYPES}
    given = {}
    for variable in environ:
        if not variable.startswith(_PREFIX) or variable == _FILE_VARIABLE:
            continue
        source = f"variable {variable}"
        if variable not in names:
            raise _unknown(source, variable.removeprefix(_PREFIX), lambda name: f"{_PREFIX}{name.upper()}")
        name = names[variable]
        given[name] = (_checked(name, environ[variable], source, is_text=True), source)
    return given


def _read_file(file: Path | None, folder: Path) -> _Given:
    found = (path for path in (folder / "celeriac.toml", folder / "pyproject.toml") if path.is_file())
    path = file or next(found, None)
    return _read_given(_read_table(path), f"file {path}") if path else {}


def _read_table(path: Path) -> dict[str, object]:
    try:
        content: object = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImproperlyConfigured(f"file {path} cannot be read: {error.strerror}; name another") from error
    except ValueError as error:
        raise ImproperlyConfigured(f"file {path} is not TOML: {error}; mend that line") from None
    for key in ("tool", "celeriac") if path.name == "pyproject.toml" else ():
        content = content.get(key, {}) if isinstance(content, dict) else None
    if not isinstance(content, dict):
        raise ImproperlyConfigured(f"tool.celeriac in file {path} is not a table; write [tool.celeriac]")
    return content


def _unknown(place: str, key: str, spell: Callable[[str], str] = str) -> ImproperlyConfigured:
    # Celery: its old names were in capitals, most with one of these prefixes.
    plain = re.sub(r"^(celery|celeryd|celeriac)_", "", key.lower())
    near = get_close_matches(plain, _TYPES, n=1)
    fix = f"did you mean {spell(near[0])}?" if near else "the reference of settings lists all there are"
    return ImproperlyConfigured(f"{place} is not a setting; {fix}")
