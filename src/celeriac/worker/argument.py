"""The arguments of commands, as whoever reaches the broker may send them."""

import signal
from typing import Final

from celeriac.errors import CallerError
from celeriac.wire.field import is_name
from celeriac.wire.task_request import is_task_id

__all__ = ["count_of", "ids_of", "queue_name_of", "seconds_of", "signal_of"]

#: Ids in one command; more are sent in parts.
_MAX_IDS: Final = 10_000


def ids_of(value: object) -> list[str]:
    """Return the ids of tasks that a command names: one, or a list."""
    ids = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if ids is None or len(ids) > _MAX_IDS or not all(map(is_task_id, ids)):
        raise CallerError(f"give a task id, or a list of up to {_MAX_IDS:,} task ids")
    return ids


def count_of(value: object) -> int:
    """Return how many a command means."""
    if type(value) is not int or not 0 < value <= 1000:
        raise CallerError("n must be an integer from 1 to 1,000")
    return value


def queue_name_of(value: object) -> str:
    """Return the queue that a command names."""
    if not is_name(value):
        raise CallerError("queue must be a name of 1 to 255 printable bytes")
    return value


def seconds_of(value: object, name: str) -> float | None:
    """Return how long a command means; None for no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise CallerError(f"{name} must be a number of seconds above 0")
    return float(value)


def signal_of(value: object) -> int:
    """Return the number of a signal, by its name with or without SIG, or by its number."""
    if isinstance(value, str):
        name = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
        found = signal.Signals.__members__.get(name)
        if found is not None:
            return int(found)
    elif type(value) is int and value in {int(each) for each in signal.Signals}:
        return value
    raise CallerError(f"unknown signal {value!r}; use a name such as SIGTERM or SIGKILL")
