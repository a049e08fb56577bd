"""How pages write what is known of a worker."""

from collections.abc import Sequence
from typing import Final

from celeriac.views.format import UNKNOWN, format_count, format_duration, format_timestamp
from celeriac.views.worker import LiveWorker, SetupRow

__all__ = ["ago_text", "drift_class", "drift_text", "load_text", "setup_texts"]

#: Queues that are named.
_MOST_QUEUES: Final = 50


def ago_text(at: float | None, now: float) -> str:
    """Return how long ago something was, in whole seconds."""
    return UNKNOWN if at is None else f"{format_duration(float(max(0, round(now - at))))} ago"


def load_text(load: Sequence[float] | None) -> str:
    """Return the loads over one, five and fifteen minutes."""
    return UNKNOWN if load is None else " ".join(f"{each:.2f}" for each in load)


def drift_text(worker: LiveWorker) -> str:
    """Return how far the clock of a worker is off."""
    return format_duration(worker.drift) + (" off" if worker.is_drifting else "")


def drift_class(worker: LiveWorker) -> str:
    """Return the class of a clock that is off, or not."""
    return "drift is-drifting" if worker.is_drifting else "drift"


def setup_texts(setup: SetupRow | None) -> dict[str, str]:
    """Return what is written of the queues and the pool of a worker, and when it was asked for them."""
    if setup is None:
        return {"queues": UNKNOWN, "pool": UNKNOWN, "asked": UNKNOWN}
    # What it did not say is told with why.
    queues = setup.reason or UNKNOWN if setup.queues is None else _queues_text(setup.queues)
    pool = setup.reason or UNKNOWN if setup.pool is None else format_count(setup.pool)
    return {"queues": queues, "pool": pool, "asked": format_timestamp(setup.asked_at)}


def _queues_text(queues: Sequence[str]) -> str:
    named = ", ".join(sorted(queues)[:_MOST_QUEUES]) or "none"
    return named if len(queues) <= _MOST_QUEUES else f"{named} and {len(queues) - _MOST_QUEUES} more"
