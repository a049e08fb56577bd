"""``/api/v1/control``: commands to the cluster. The guard lets only those in who may give some."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from celeriac.errors import CallerError
from celeriac.model.events import MAX_ID_CHARS, MAX_TIMESTAMP
from celeriac.views.task_list import TaskFilter
from celeriac.web.action import MAX_TASKS, Actions, Done
from celeriac.web.api.schema import answer, model_of
from celeriac.web.guard import user_of

__all__ = ["router"]

router = APIRouter(prefix="/control", tags=["control"])

_Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
_Names = Annotated[list[_Name], Field(max_length=MAX_TASKS)]
_Moment = Annotated[float | None, Field(ge=0, lt=MAX_TIMESTAMP, allow_inf_nan=False)]
_SIGNAL = r"^(SIG)?[A-Z]{2,10}$"


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dry_run: bool = Field(False, description="Return the targets without acting")


class Filter(BaseModel):
    """A task filter: tasks that match all given fields, of which there is at least one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    states: Annotated[list[_Name], Field(max_length=30)] = []
    name: _Name | None = None
    worker: _Name | None = None
    text: _Name | None = None
    root: _Name | None = None
    since: _Moment = Field(
        None, description="Last state change at or after this time, in seconds since the epoch"
    )
    until: _Moment = Field(None, description="Last state change before this time, in seconds since the epoch")

    def wanted(self) -> TaskFilter:
        """Return it as lists take it. Raises CallerError for one that fits everything."""
        made = TaskFilter(
            frozenset(self.states), self.name, self.worker, self.text, self.since, self.until, self.root
        )
        if made == TaskFilter():
            raise CallerError("Empty filter. Set at least one field, or every task would match.")
        return made


class OnTasks(_Order):
    """Tasks, by IDs or by a filter."""

    ids: _Names = []
    filter: Filter | None = None

    def chosen(self) -> tuple[list[str], TaskFilter | None]:
        """Return them. Raises CallerError unless it is one of both."""
        if bool(self.ids) == (self.filter is not None):
            raise CallerError("Specify either ids or filter.")
        return self.ids, None if self.filter is None else self.filter.wanted()


class Revoke(OnTasks):
    """Have workers skip tasks that have not started."""

    terminate: bool = Field(False, description="Also stop running tasks")
    signal: Annotated[str, Field(pattern=_SIGNAL)] = "SIGTERM"


class Retry(OnTasks):
    """Send finished tasks again."""

    queue: _Name | None = Field(
        None, description="Target queue of all tasks. Default: the queue of each task"
    )


class OnWorkers(_Order):
    """Workers by name; an empty list means all workers."""

    workers: _Names = []


class RateLimit(OnWorkers):
    """Set the rate limit of a task."""

    task: _Name
    rate: Annotated[str, Field(pattern=r"^\d{1,9}(/[smh])?$", description="10/s, 100/m, or 0 for no limit")]


class Resize(OnWorkers):
    """Change the pool size."""

    n: Annotated[int, Field(ge=1, le=1000)] = 1


class Consumer(OnWorkers):
    """Start or stop consuming from a queue."""

    queue: _Name


class Shutdown(_Order):
    """Shut workers down after their running tasks; workers must be named."""

    workers: Annotated[list[_Name], Field(min_length=1, max_length=MAX_TASKS)]


def _actions(request: Request) -> Actions:
    actions: Actions | None = request.app.state.actions
    if actions is None:
        raise CallerError("Read-only. To enable actions, restart with --allow-control.")
    return actions


_Actions = Annotated[Actions, Depends(_actions)]
_DONE = model_of(Done)


@router.post("/revoke", response_model=_DONE)
def revoke(request: Request, actions: _Actions, order: Revoke) -> Any:
    """Revoke tasks; with `terminate` also stop running ones."""
    ids, wanted = order.chosen()
    return answer(
        actions.revoke(
            user_of(request),
            ids,
            wanted,
            terminate=order.terminate,
            signal=order.signal,
            dry_run=order.dry_run,
        )
    )


@router.post("/retry", response_model=_DONE)
def retry(request: Request, actions: _Actions, order: Retry) -> Any:
    """Send finished tasks again, each with a new ID."""
    plan = actions.plan_retry(*order.chosen(), queue=order.queue)
    return answer(actions.retry(user_of(request), plan, dry_run=order.dry_run))


def _on_workers(request: Request, actions: Actions, action: str, order: Any, **arguments: Any) -> Any:
    user = user_of(request)
    return answer(actions.on_workers(user, action, order.workers, arguments, dry_run=order.dry_run))


@router.post("/rate-limit", response_model=_DONE)
def rate_limit(request: Request, actions: _Actions, order: RateLimit) -> Any:
    """Set the rate limit of a task on each worker."""
    return _on_workers(request, actions, "rate-limit", order, task_name=order.task, rate_limit=order.rate)


@router.post("/pool-grow", response_model=_DONE)
def pool_grow(request: Request, actions: _Actions, order: Resize) -> Any:
    """Add processes or threads to worker pools."""
    return _on_workers(request, actions, "pool-grow", order, n=order.n)


@router.post("/pool-shrink", response_model=_DONE)
def pool_shrink(request: Request, actions: _Actions, order: Resize) -> Any:
    """Remove processes or threads from worker pools."""
    return _on_workers(request, actions, "pool-shrink", order, n=order.n)


@router.post("/add-consumer", response_model=_DONE)
def add_consumer(request: Request, actions: _Actions, order: Consumer) -> Any:
    """Make workers consume from a queue."""
    return _on_workers(request, actions, "add-consumer", order, queue=order.queue)


@router.post("/cancel-consumer", response_model=_DONE)
def cancel_consumer(request: Request, actions: _Actions, order: Consumer) -> Any:
    """Make workers stop consuming from a queue."""
    return _on_workers(request, actions, "cancel-consumer", order, queue=order.queue)


@router.post("/enable-events", response_model=_DONE)
def enable_events(request: Request, actions: _Actions, order: OnWorkers) -> Any:
    """Make workers send task events."""
    return _on_workers(request, actions, "enable-events", order)


@router.post("/shutdown", response_model=_DONE)
def shutdown(request: Request, actions: _Actions, order: Shutdown) -> Any:
    """Shut workers down after their running tasks."""
    return _on_workers(request, actions, "shutdown", order)
