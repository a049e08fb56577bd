"""Asks one worker how it is set up: which queues it takes tasks from, and how many it can run at once."""

from time import time
from typing import Final, NamedTuple

from celeriac.errors import CeleriacError
from celeriac.node.control import Control
from celeriac.node.inspect import Replies
from celeriac.wire.worker_setup import decode_pool_size, decode_queues

__all__ = ["WorkerSetup", "ask_setup"]

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


def _reason(name: str, replies: Replies) -> str:
    if name in replies:
        return ""
    return f"error reply: {replies.errors[name]}" if name in replies.errors else "no reply"
