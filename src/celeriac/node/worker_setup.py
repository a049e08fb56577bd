"""Asks one worker how it is set up: which queues it takes tasks from, and how many it can run at once."""

from collections.abc import Sequence
from time import time
from typing import Final, NamedTuple

from celeriac.errors import CeleriacError
from celeriac.node.control import Control
from celeriac.node.inspect import Replies
from celeriac.wire.worker_setup import decode_begun, decode_pool_size, decode_queues

__all__ = ["WorkerSetup", "ask_setup", "count_started_tasks"]

#: How long each answer is waited for.
_PATIENCE: Final = 2.0


class WorkerSetup(NamedTuple):
    """What a worker said of itself; None is what it did not say."""

    queues: tuple[str, ...] | None
    #: How many tasks it can run at once.
    pool: int | None
    #: Why something is not known; empty if all is.
    reason: str
    #: In seconds of the epoch.
    asked_at: float


def ask_setup(control: Control, name: str) -> WorkerSetup:
    """Ask a worker, and wait for its answers. That there is none is part of what is returned."""
    asked_at, inspect = time(), control.inspect([name], _PATIENCE)
    try:
        queues = inspect.active_queues()
        if not queues and not queues.errors:
            return WorkerSetup(None, None, "no reply", asked_at)
        stats = inspect.stats()
    except CeleriacError as error:
        return WorkerSetup(None, None, f"cannot query it: {error}", asked_at)
    return WorkerSetup(
        tuple(decode_queues(queues[name])) if name in queues else None,
        decode_pool_size(stats.get(name)),
        _reason(name, queues) or _reason(name, stats),
        asked_at,
    )


def count_started_tasks(control: Control, names: Sequence[str] | None, timeout: float) -> dict[str, int]:
    """Return the number of tasks that each worker has started, of those that reply; None asks all workers."""
    if names is not None and not names:
        return {}
    stats = control.inspect(None if names is None else list(names), timeout).stats()
    counts = {name: decode_begun(value) for name, value in stats.items()}
    return {name: count for name, count in counts.items() if count is not None}


def _reason(name: str, replies: Replies) -> str:
    if name in replies:
        return ""
    return f"error reply: {replies.errors[name]}" if name in replies.errors else "no reply"
