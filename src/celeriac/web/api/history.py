"""``/api/v1/history``: answers from the tables of the pipeline."""

from time import time
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Path, Query

from celeriac.history.span import By, Span, check_times
from celeriac.history.times import Per
from celeriac.views.cell import foreign_value
from celeriac.views.history import (
    ComparisonRow,
    LatencyRow,
    PartRow,
    SessionPage,
    TableRow,
    TopRow,
    comparison_rows,
    latency_rows,
    part_rows,
    session_page,
    table_rows,
    top_rows,
)
from celeriac.views.story import task_dict, workflow_dict
from celeriac.views.task_list import MAX_PAGE
from celeriac.web.api.part import Problem, board_of
from celeriac.web.api.schema import answer, model_of
from celeriac.web.board import Board

__all__ = ["router"]

router = APIRouter(prefix="/history", tags=["history"])

_Board = Annotated[Board, Depends(board_of)]
_Moment = Annotated[
    float | None,
    Query(ge=0, lt=4_102_444_800, allow_inf_nan=False, description="In seconds of the epoch"),
]
_Glob = Annotated[str | None, Query(max_length=200, description="A name, or a glob of names")]
_Id = Annotated[str, Path(max_length=500)]
#: A month of minutes, in some 7 MB.
_MOST_TIMES: Final = 50_000
_NONE_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}


@router.get("/tables", response_model=list[model_of(TableRow)])  # type: ignore[misc]
def tables(board: _Board) -> Any:
    """Return how large each table is."""
    return answer(table_rows(board.warehouse.tables.values()))


@router.get("/latency", response_model=list[model_of(LatencyRow)])  # type: ignore[misc]
def latency(
    board: _Board,
    *,
    task: _Glob = None,
    worker: _Glob = None,
    queue: _Glob = None,
    since: _Moment = None,
    until: _Moment = None,
    by: Annotated[By | None, Query(description="Tell times of this length apart, in UTC")] = None,
) -> Any:
    """Return how long attempts waited in queues and ran.

    At most 50,000 times are told apart, a month of minutes: what asks for more is refused. Hours and minutes
    need `since`.
    """
    check_times(by, Span(since, time() if until is None else until), most=_MOST_TIMES)
    return answer(
        latency_rows(board.warehouse.latency(task, since, until, by=by, worker=worker, queue=queue))
    )


@router.get("/breakdown", response_model=list[model_of(PartRow)])  # type: ignore[misc]
def breakdown(
    board: _Board,
    *,
    per: Annotated[Per, Query(description="What attempts are told apart by")] = "task",
    task: _Glob = None,
    worker: _Glob = None,
    queue: _Glob = None,
    since: _Moment = None,
    until: _Moment = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:
    """Return how long the attempts of each task, worker or queue waited and ran, most attempts first."""
    found = board.warehouse.latency_per(per, since, until, task=task, worker=worker, queue=queue, limit=limit)
    return answer(part_rows(found))


@router.get("/top", response_model=list[model_of(TopRow)])  # type: ignore[misc]
def top(
    board: _Board,
    *,
    by: Literal["slowest", "failing", "retried"] = "slowest",
    since: _Moment = None,
    until: _Moment = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Any:
    """Return the names of tasks that run longest, or fail or are retried most often."""
    return answer(top_rows(board.warehouse.top(by, since, until, limit)))


@router.get("/workers", response_model=model_of(SessionPage))
def workers(
    board: _Board,
    *,
    since: _Moment = None,
    until: _Moment = None,
    after: Annotated[
        str | None, Query(max_length=500, description="What `next` of the page before said")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
) -> Any:
    """Return when worker processes were there, by worker and beginning, a page at a time."""
    return answer(session_page(board.warehouse.workers(since, until), after=after, limit=limit))


@router.get("/compare", response_model=list[model_of(ComparisonRow)])  # type: ignore[misc]
def compare(
    board: _Board,
    *,
    a_since: _Moment = None,
    a_until: _Moment = None,
    b_since: _Moment = None,
    b_until: _Moment = None,
    task: _Glob = None,
    worker: _Glob = None,
    queue: _Glob = None,
) -> Any:
    """Return the attempts of two spans of time, side by side: a row for each measure."""
    found = board.warehouse.compare(
        (a_since, a_until), (b_since, b_until), task=task, worker=worker, queue=queue
    )
    return answer(comparison_rows(found))


@router.get("/tasks/{uuid:name}", responses=_NONE_FOUND)
def task(board: _Board, uuid: _Id) -> dict[str, Any]:
    """Return all that the tables know of a task; what it was given and returned as long as the log has it."""
    return task_dict(board.warehouse.task(uuid))


@router.get("/workflows/{uuid:name}", responses=_NONE_FOUND)
def workflow(board: _Board, uuid: _Id) -> Any:
    """Return the workflow of a task: 10,000 of its tasks at the most, and `is_cut` if there are more."""
    return foreign_value(workflow_dict(board.warehouse.workflow(uuid)))
