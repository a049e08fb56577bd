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
    Query(ge=0, lt=4_102_444_800, allow_inf_nan=False, description="Seconds since the epoch"),
]
_Glob = Annotated[str | None, Query(max_length=200, description="Name or glob")]
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
    by: Annotated[
        By | None, Query(description="Interval of the result rows, in UTC. Default: one row")
    ] = None,
) -> Any:
    """Return queue wait and run time percentiles of attempts.

    At most 50,000 intervals, about a month of minutes: larger ranges are refused. Hours and minutes need
    `since`.
    """
    check_times(by, Span(since, time() if until is None else until), most=_MOST_TIMES)
    return answer(
        latency_rows(board.warehouse.latency(task, since, until, by=by, worker=worker, queue=queue))
    )


@router.get("/breakdown", response_model=list[model_of(PartRow)])  # type: ignore[misc]
def breakdown(
    board: _Board,
    *,
    per: Annotated[Per, Query(description="Group by task, worker or queue")] = "task",
    task: _Glob = None,
    worker: _Glob = None,
    queue: _Glob = None,
    since: _Moment = None,
    until: _Moment = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:
    """Return queue wait and run time percentiles by task, worker or queue, most attempts first."""
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
    """Return the slowest, most failing or most retried task names."""
    return answer(top_rows(board.warehouse.top(by, since, until, limit)))


@router.get("/workers", response_model=model_of(SessionPage))
def workers(
    board: _Board,
    *,
    since: _Moment = None,
    until: _Moment = None,
    after: Annotated[
        str | None, Query(max_length=500, description="Value of `next` from the previous page")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
) -> Any:
    """Return a page of worker sessions, sorted by worker and start."""
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
    """Compare the attempts of two time ranges: one row per measure."""
    found = board.warehouse.compare(
        (a_since, a_until), (b_since, b_until), task=task, worker=worker, queue=queue
    )
    return answer(comparison_rows(found))


@router.get("/tasks/{uuid:name}", responses=_NONE_FOUND)
def task(board: _Board, uuid: _Id) -> dict[str, Any]:
    """Return a task from the history tables, with arguments and result while the event log has them."""
    return task_dict(board.warehouse.task(uuid))


@router.get("/workflows/{uuid:name}", responses=_NONE_FOUND)
def workflow(board: _Board, uuid: _Id) -> Any:
    """Return the workflow of a task: up to 10,000 tasks, and `is_cut` if there are more."""
    return foreign_value(workflow_dict(board.warehouse.workflow(uuid)))
