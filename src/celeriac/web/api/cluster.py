"""``/api/v1/overview``, ``workers``, ``cluster`` and ``leaders``: a cluster, now or at an instant."""

from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Path, Query
from pydantic import create_model

from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Other
from celeriac.views.cell import number_of
from celeriac.views.overview import Overview
from celeriac.views.recorder import RecorderRow
from celeriac.views.task_list import MAX_PAGE
from celeriac.views.text import visible
from celeriac.views.worker import LiveWorker, SetupRow, WorkerPage, worker_page
from celeriac.web.api.part import At, Problem, Unknown, board_of
from celeriac.web.api.schema import answer, model_of
from celeriac.web.board import Board, Leaders, Sight
from celeriac.web.panorama import panorama

__all__ = ["ClusterView", "cluster_view", "router"]

router = APIRouter(tags=["cluster"])

_Board = Annotated[Board, Depends(board_of)]
_FIELD_CHARS: Final = 200


class GapRow(NamedTuple):
    """A period in which events may be missing, in seconds since the epoch."""

    since_at: float
    until_at: float
    reason: str


class ElectionEvent(NamedTuple):
    """An election event of a node."""

    type: str
    at: float | None
    node: str
    clock: int | None
    #: What it is about, as text.
    fields: dict[str, str]


class ClusterView(NamedTuple):
    """Clock, connection, gaps, elections and recorders of a cluster."""

    as_of: float
    #: The highest Lamport clock that was heard.
    clock: int
    is_receiving: bool
    #: How often the link to the broker was lost.
    losses: int
    #: Messages that could not be taken, by reason.
    refused: dict[str, int]
    gaps: list[GapRow]
    elections: list[ElectionEvent]
    #: The recorders that tell of themselves on this machine now; none for the past.
    recorders: list[RecorderRow]


_Setup: Any = model_of(SetupRow) | None
_OneWorker = create_model(
    "OneWorker", __base__=model_of(LiveWorker), __doc__=LiveWorker.__doc__, setup=(_Setup, ...)
)


@router.get("/overview", response_model=model_of(Overview))
def get_overview(board: _Board, at: At = None) -> Any:
    """Return rates, latencies, tasks by state, queue depths and alerts."""
    return answer(panorama(board, board.sight(at)))


@router.get("/workers", response_model=model_of(WorkerPage))
def workers(
    board: _Board,
    at: At = None,
    after: Annotated[
        str | None, Query(max_length=500, description="Value of `next` from the previous page")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
) -> Any:
    """Return a page of workers, sorted by name."""
    return answer(worker_page(board.sight(at).workers, after=after, limit=limit))


@router.get("/workers/{name:name}", response_model=_OneWorker, responses={404: {"model": Problem}})
def worker(board: _Board, name: Annotated[str, Path(max_length=500)], at: At = None) -> Any:
    """Return one worker; `setup` holds its queues and pool size.

    The worker is queried for `setup` with a timeout of two seconds, and the reply is reused for five. `setup`
    is null with `at`, and for a worker that has shut down.
    """
    found = next((each for each in board.sight(at).workers if each.key == name), None)
    if found is None:
        raise Unknown("No such worker.")
    return answer({**found._asdict(), "setup": board.setup(found) if at is None else None})


@router.get("/cluster", response_model=model_of(ClusterView))
def cluster(board: _Board, at: At = None) -> Any:
    """Return the Lamport clock, event gaps, election events and recorders."""
    return answer(cluster_view(board, board.sight(at)))


@router.get("/leaders", response_model=model_of(Leaders))
def leaders(board: _Board) -> Any:
    """Return the current leaders and the guarantee level of elections."""
    return answer(board.leaders())


def cluster_view(board: Board, sight: Sight) -> ClusterView:
    """Return what is known of a cluster as a whole; what only a live link tells, of now."""
    state, watcher = sight.scene.state, board.watcher
    clocks = [each.clock for each in sight.workers if each.clock is not None]
    return ClusterView(
        as_of=sight.as_of,
        clock=max(clocks, default=NO_CLOCK),
        is_receiving=watcher.is_receiving,
        losses=watcher.receiver.losses,
        refused=dict(watcher.receiver.gate.refused) if sight.is_live else dict(state.gate.refused),
        gaps=[GapRow(gap.since, gap.until, visible(gap.reason)) for gap in list(state.gaps)],
        elections=[_election(event) for event in _heard(sight)],
        recorders=board.recorders() if sight.is_live else [],
    )


def _heard(sight: Sight) -> list[Other]:
    scene = sight.scene
    return scene.state.freeze_while(lambda: scene.elections)


def _election(event: Other) -> ElectionEvent:
    return ElectionEvent(
        visible(event.type, 60),
        number_of(event.timestamp) or None,
        visible(event.hostname, 120),
        None if event.clock == NO_CLOCK else event.clock,
        {
            visible(name, 60): visible(value, _FIELD_CHARS)
            for name, value in list((event.extra or {}).items())[:20]
        },
    )
