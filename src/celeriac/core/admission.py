"""What a worker does with a task that it was given."""

from dataclasses import dataclass
from typing import Literal

from celeriac.model.task_request import TaskRequest

__all__ = ["Admission", "Discard", "Run", "Wait", "admit", "time_limits"]


@dataclass(frozen=True, slots=True)
class Run:
    """Run it as soon as there is room."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep it until this moment, in seconds of the epoch, and ask again then."""

    until: float


@dataclass(frozen=True, slots=True)
class Discard:
    """Do not run it: it ends here, for this reason."""

    reason: Literal["unregistered", "revoked", "expired"]


Admission = Run | Wait | Discard

# Made once: this is asked for every task.
_RUN = Run()
_UNREGISTERED, _REVOKED, _EXPIRED = Discard("unregistered"), Discard("revoked"), Discard("expired")


def admit(request: TaskRequest, *, is_registered: bool, is_revoked: bool, now: float) -> Admission:
    """Say whether a task is to run, to wait or to be dropped, now that it has come or its moment has.

    A task that nobody here knows is dropped as such, whatever else is true of it, and of one that is
    revoked and expired the revocation counts: somebody meant it. ``now`` is in seconds of the epoch.
    """
    if not is_registered:
        return _UNREGISTERED
    if is_revoked:
        return _REVOKED
    if request.expires is not None and request.expires <= now:
        return _EXPIRED
    if request.eta is not None and request.eta > now:
        # Celery: one that expires before its moment waits for it too, and is dropped then.
        return Wait(request.eta)
    return _RUN


def time_limits(
    request: TaskRequest,
    *,
    task_hard: float | None = None,
    task_soft: float | None = None,
    default_hard: float | None = None,
    default_soft: float | None = None,
) -> tuple[float | None, float | None]:
    """Return how long a run may take, hard and soft: the message outweighs the task, the task the settings.

    A soft limit that the hard one would not let come to pass is none.
    """
    hard = _first(request.time_limit, task_hard, default_hard)
    soft = _first(request.soft_time_limit, task_soft, default_soft)
    if hard is not None and soft is not None and soft >= hard:
        soft = None
    return hard, soft


def _first(*limits: float | None) -> float | None:
    # Celery: a limit of 0 is no word about limits at all.
    return next((limit for limit in limits if limit is not None and limit > 0), None)
