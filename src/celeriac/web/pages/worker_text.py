"""How pages write what is known of a worker."""

from collections.abc import Sequence

from celeriac.views.worker import LiveWorker
from celeriac.web.pages.format import UNKNOWN, duration_text

__all__ = ["ago_text", "drift_class", "drift_text", "load_text"]


def ago_text(at: float | None, now: float) -> str:
    """Return how long ago something was, in whole seconds."""
    return UNKNOWN if at is None else f"{duration_text(float(max(0, round(now - at))))} ago"


def load_text(load: Sequence[float] | None) -> str:
    """Return the loads over one, five and fifteen minutes."""
    return UNKNOWN if load is None else " ".join(f"{each:.2f}" for each in load)


def drift_text(worker: LiveWorker) -> str:
    """Return how far the clock of a worker is off."""
    return duration_text(worker.drift) + (" off" if worker.is_drifting else "")


def drift_class(worker: LiveWorker) -> str:
    """Return the class of a clock that is off, or not."""
    return "drift is-drifting" if worker.is_drifting else "drift"
