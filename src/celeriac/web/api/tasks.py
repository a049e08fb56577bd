"""``/api/v1/tasks`` and ``/api/v1/workflows``: tasks in memory, now or at an instant."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query

from celeriac.model.events import MAX_ID_CHARS
from celeriac.views.live_workflow import live_workflow, live_workflow_dict
from celeriac.views.task import TaskDetail, task_detail
from celeriac.views.task_list import MAX_PAGE, TaskFilter, TaskPage, task_page
from celeriac.web.api.part import At, Problem, Unknown, board_of
from celeriac.web.api.schema import answer, model_of
from celeriac.web.board import Board

__all__ = ["router"]

router = APIRouter(tags=["tasks"])

_Board = Annotated[Board, Depends(board_of)]
_Root = Annotated[str | None, Query(max_length=MAX_ID_CHARS)]
_Id = Annotated[str, Path(max_length=500)]
_Moment = Annotated[float | None, Query(ge=0, lt=4_102_444_800, allow_inf_nan=False)]


async def task_filter(
    *,
    state: Annotated[list[str], Query(max_length=30, description="Task states; repeatable")] = [],  # noqa: B006
    name: Annotated[str | None, Query(max_length=200, description="Task name, a glob: shop.*")] = None,
    worker: Annotated[
        str | None, Query(max_length=200, description="Worker name, a glob: celery@web*")
    ] = None,
    text: Annotated[
        str | None,
        Query(max_length=200, description="Substring of the ID, name, arguments, result or exception"),
    ] = None,
    since: _Moment = None,
    until: _Moment = None,
    root: _Root = None,
) -> TaskFilter:
    """Return which tasks are asked for."""
    return TaskFilter(frozenset(state), name, worker, text, since, until, root)


@router.get("/tasks", response_model=model_of(TaskPage))
def tasks(
    board: _Board,
    wanted: Annotated[TaskFilter, Depends(task_filter)],
    at: At = None,
    before: Annotated[
        int | None, Query(ge=0, lt=2**62, description="Value of `next` from the previous page")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> Any:
    """Return a page of tasks, latest event first."""
    state = board.scene(at).state
    return answer(task_page(state, wanted, before=before, limit=limit))


@router.get("/tasks/{uuid:name}", response_model=model_of(TaskDetail), responses={404: {"model": Problem}})
def task(board: _Board, uuid: _Id, at: At = None) -> Any:
    """Return a task with its events, attempts and related tasks."""
    told = task_detail(board.scene(at).state, uuid)
    if told is None:
        raise Unknown("Task not in memory. For older tasks use /api/v1/history/tasks/ID")
    return answer(told)


@router.get("/workflows/{uuid:name}", responses={404: {"model": Problem}})
def workflow(board: _Board, uuid: _Id, at: At = None) -> dict[str, Any]:
    """Return the workflow of a task: all descendants of its root task.

    Up to 5,000 tasks, those nearest the root, and `is_cut` if there are more.
    """
    story = live_workflow(board.scene(at).state, uuid)
    if story is None:
        raise Unknown("Task not in memory.")
    return live_workflow_dict(story)
