"""The entries of the setting ``beat_schedule``, checked."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from celeriac.config import Settings
from celeriac.core.beat import Every, Item, Rhythm, Tick
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.model.task_request import Posting
from celeriac.node.call_options import CALL_OPTIONS
from celeriac.node.crontab import Calendar, crontab
from celeriac.node.posting import posting_for
from celeriac.node.task_options import TaskOptions, check_names
from celeriac.transport.arbiter import MAX_NOTE_BYTES

__all__ = ["MIN_INTERVAL", "ScheduleEntry", "posting_of", "read_schedule", "read_zone"]

#: Shorter, and noting its ticks would take all the time there is.
MIN_INTERVAL: Final = 0.1
#: Thirty years. More is a mistake of the unit.
_LONGEST: Final = 1e9
_KEYS: Final = ("task", "schedule", "args", "kwargs", "options", "relative")
#: Options that would make two ticks one, or all of them late.
_NOT_TAKEN: Final = {
    "task_id": "each tick has a unique id",
    "eta": "each tick has its own time: give a countdown, or another schedule",
}
#: Headers that each tick has.
_OWN_HEADERS: Final = ("beat", "beat_tick", "fencing")
#: Of a note, with the moment beside the name; half of all, so that entries that are gone have room too.
_MAX_NOTE_CHARS: Final = MAX_NOTE_BYTES // 2
_MOMENT_CHARS: Final = 24
#: Of names for ticks; any would do that nobody else uses.
_TICKS: Final = UUID("6f0c2d9e-8a5b-5f52-9d43-3f1f9d2b7c41")


class ScheduleEntry(NamedTuple):
    """One task that is sent again and again."""

    name: str
    task: str
    rhythm: Rhythm
    #: The schedule, for people.
    when: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}

    @property
    def item(self) -> Item:
        """What the rules of time have to know."""
        return Item(self.rhythm, self.options.get("expires"))


def posting_of(
    entry: ScheduleEntry,
    tick: Tick,
    *,
    beat: str,
    token: int,
    settings: Settings,
    task: TaskOptions | None = None,
    origin: str | None = None,
) -> Posting:
    """Return the message of a tick: but for the token it is the same wherever it is made.

    Its id is that of the tick. ``countdown`` and ``expires`` count from the moment of the tick.
    """
    given = dict(entry.options)
    headers = given.pop("headers", None) or {}
    given["task_id"] = str(uuid5(_TICKS, f"{beat}:{entry.name}:{tick.at!r}"))
    given["headers"] = {**headers, "beat": entry.name, "beat_tick": tick.at, "fencing": token}
    return posting_for(
        entry.task,
        entry.args,
        entry.kwargs,
        given,  # type: ignore[arg-type]
        settings=settings,
        task=task,
        origin=origin,
        now=tick.at,
    )


def read_schedule(
    settings: Settings, *, now: float, tasks: Mapping[str, TaskOptions] | None = None
) -> dict[str, ScheduleEntry]:
    """Return the entries of a configuration, by name; raises ImproperlyConfigured with entry and fix."""
    zone = read_zone(settings)
    entries = {}
    for name, given in settings.beat_schedule.items():
        try:
            entries[name] = _read_entry(name, given, zone)
            _try_out(entries[name], settings, now=now, task=(tasks or {}).get(entries[name].task))
        except (CallerError, ImproperlyConfigured) as error:
            raise ImproperlyConfigured(f"beat_schedule, entry {name!r:.80}: {error}") from None
    if sum(len(json.dumps(name)) + _MOMENT_CHARS for name in entries) > _MAX_NOTE_CHARS:
        raise ImproperlyConfigured(
            f"beat_schedule has {len(entries):,} entries, and their names are too long to be stored "
            "together: split them over several beats, each with a --name"
        )
    return entries


def read_zone(settings: Settings) -> ZoneInfo:
    """Return the zone of crontabs; raises ImproperlyConfigured if there is none of that name."""
    try:
        return ZoneInfo(settings.timezone)
    except (KeyError, ValueError, OSError):
        raise ImproperlyConfigured(
            f"timezone is {settings.timezone!r:.80}, which is unknown; give a name such as 'UTC' or "
            "'Europe/Berlin', and install tzdata if the system lacks it"
        ) from None


def _read_entry(name: str, given: object, zone: ZoneInfo) -> ScheduleEntry:
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"entry is {given!r:.80}; give a table with task and schedule")
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise ImproperlyConfigured(f"unknown key {unknown[0]}; use {', '.join(_KEYS)}")
    if not name or not name.isprintable():
        raise ImproperlyConfigured("the entry name is empty or not printable; use another name")
    for key in ("task", "schedule"):
        if given.get(key) is None:
            raise ImproperlyConfigured(f"missing {key}")
    rhythm, when = _read_rhythm(given["schedule"], zone)
    return ScheduleEntry(
        name,
        given["task"],
        rhythm,
        when,
        _read_args(given.get("args")),
        given.get("kwargs") or {},
        _read_options(given.get("options")),
    )


def _read_args(given: object) -> Any:
    return tuple(given) if isinstance(given, list | tuple) else given or ()


def _read_options(given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"options is {given!r:.80}; give a table, such as {{'queue': 'reports'}}")
    check_names(given, CALL_OPTIONS, of="a call")
    for name, reason in _NOT_TAKEN.items():
        if given.get(name) is not None:
            raise ImproperlyConfigured(f"remove the option {name}: {reason}")
    expires = given.get("expires")
    if expires is not None and not (_is_seconds(expires) and expires > 0):
        raise ImproperlyConfigured(
            f"expires is {expires!r:.80}; give seconds above 0, counted from each tick"
        )
    headers = given.get("headers") or {}
    taken = [name for name in _OWN_HEADERS if isinstance(headers, Mapping) and name in headers]
    if taken:
        raise ImproperlyConfigured(f"the header {taken[0]} is reserved for the tick; use another name")
    return dict(given)


def _try_out(entry: ScheduleEntry, settings: Settings, *, now: float, task: TaskOptions | None) -> None:
    """Make a message once: what cannot be sent is to be told at the start, not in the night."""
    if entry.rhythm.next_after(now) - now > _LONGEST:
        raise ImproperlyConfigured(f"{entry.when!r:.80} is never due; correct the schedule")
    posting_of(entry, Tick(entry.name, now), beat="", token=1, settings=settings, task=task)


# -- schedules


def _read_rhythm(given: object, zone: ZoneInfo) -> tuple[Rhythm, str]:
    """Return when something is due, and the same for people."""
    if isinstance(given, str):
        calendar = Calendar(given, zone)
        return calendar, " ".join(given.split())
    celerys = _read_celerys(given)
    if isinstance(celerys, crontab):
        calendar = Calendar(celerys.text(), zone, needs_both_days=True)
        return calendar, calendar.text
    seconds = celerys.total_seconds() if isinstance(celerys, timedelta) else celerys
    if not _is_seconds(seconds):
        raise ImproperlyConfigured(
            f"schedule is {given!r:.80}; give seconds, a timedelta, a string of five fields such as '*/5 * "
            "* * *', or crontab(…)"
        )
    if not MIN_INTERVAL <= seconds <= _LONGEST:
        raise ImproperlyConfigured(
            f"schedule is every {seconds:g} seconds; give {MIN_INTERVAL:g} to {_LONGEST:g} seconds"
        )
    return Every(float(seconds)), f"every {seconds:g} s"


def _read_celerys(given: object) -> Any:
    """Return what an object of Celery's stands for, in our own words; anything else as it is."""
    # Celery: a crontab keeps what it was made of, and a schedule its interval. Celery is not imported:
    # who has such an object has it.
    made_of = {name: getattr(given, f"_orig_{name}", None) for name in crontab.__dataclass_fields__}
    if all(each is not None for each in made_of.values()):
        return crontab(**{name: _as_field(each) for name, each in made_of.items()})
    return getattr(given, "run_every", given)


def _as_field(given: Any) -> Any:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else given


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
