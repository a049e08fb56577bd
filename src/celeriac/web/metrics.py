"""``/metrics``: what Prometheus scrapes."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from celeriac.core.series import Series
from celeriac.node.watcher import Watcher
from celeriac.views.overview import overview
from celeriac.web.api.part import board_of
from celeriac.web.board import Board, Sight
from celeriac.web.series import counter, gauge, histogram

__all__ = ["metrics_text", "router"]

router = APIRouter(include_in_schema=False)


@router.get("/metrics")
def metrics(board: Annotated[Board, Depends(board_of)]) -> Response:
    """Return what is counted, as Prometheus reads it."""
    return Response(metrics_text(board), media_type=CONTENT_TYPE_LATEST)


def metrics_text(board: Board) -> bytes:
    """Return what is counted, as Prometheus reads it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Board(board))
    return generate_latest(registry)


class _Board(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        board = self._board
        sight = board.sight()
        # In one go, so that all of it is of one moment; it is made of a few thousand numbers.
        yield from sight.scene.state.freeze_while(lambda: list(_of_tasks(sight.scene.series)))
        yield from _of_cluster(board, sight)
        yield from _of_reception(board.watcher)
        yield from _of_history(board)


def _of_tasks(series: Series) -> Iterator[Metric]:
    yield counter(
        "celeriac_task_events",
        "Events of tasks that came, by the name of the task and what they say.",
        ("name", "event"),
        series.events.items(),
    )
    yield counter(
        "celeriac_worker_task_events",
        "Events of tasks that came, by the node that sent them and what they say.",
        ("worker", "event"),
        series.by_worker.items(),
    )
    yield histogram("celeriac_queue_wait_seconds", "How long attempts waited before they ran.", series.waits)
    yield histogram("celeriac_run_seconds", "How long attempts ran.", series.runs)


def _of_cluster(board: Board, sight: Sight) -> Iterator[Metric]:
    told = overview(sight.scene, as_of=sight.as_of, workers=sight.workers)
    yield gauge(
        "celeriac_tasks",
        "Tasks in memory, by state.",
        ("state",),
        (((state,), count) for state, count in told.tasks_by_state.items()),
    )
    yield gauge(
        "celeriac_workers",
        "Workers, by what they are held for.",
        ("liveness",),
        (((liveness,), count) for liveness, count in told.workers.items()),
    )
    yield GaugeMetricFamily(
        "celeriac_workers_drifting",
        "Workers whose clocks and ours disagree.",
        value=sum(worker.is_drifting for worker in sight.workers),
    )
    yield gauge(
        "celeriac_queue_length",
        "Tasks that wait in a queue.",
        ("queue",),
        (((name,), length) for name, length in (board.queues() or {}).items()),
    )
    yield gauge(
        "celeriac_leader_token",
        "The token of who leads, by what is led.",
        ("name", "leader"),
        (((row.name, row.leader), row.token or 0) for row in board.leaders().leaders),
        merge=max,
    )


def _of_reception(watcher: Watcher) -> Iterator[Metric]:
    state, receiver = watcher.state, watcher.receiver
    yield CounterMetricFamily("celeriac_events", "Events that came.", value=state.event_count)
    yield GaugeMetricFamily(
        "celeriac_receiving", "Whether events are received now.", value=watcher.is_receiving
    )
    yield GaugeMetricFamily(
        "celeriac_event_lag_seconds",
        "How much later heartbeats of most workers come than at best within the hour; by how much clocks "
        "differ does not count.",
        value=watcher.lag(),
    )
    yield CounterMetricFamily(
        "celeriac_link_losses", "How often the link to the broker was lost.", value=receiver.losses
    )
    yield CounterMetricFamily(
        "celeriac_gaps", "Times for which events may be missing, since it began.", value=watcher.gap_count
    )
    gaps = list(state.gaps)
    yield GaugeMetricFamily(
        "celeriac_last_gap_timestamp_seconds",
        "When the last gap in the reception ended; 0 if there was none.",
        value=gaps[-1].until if gaps else 0.0,
    )
    yield counter(
        "celeriac_refused_messages",
        "Messages that could not be taken, by reason.",
        ("reason",),
        (((reason,), count) for reason, count in dict(receiver.gate.refused).items()),
    )
    yield CounterMetricFamily(
        "celeriac_overlooked_events",
        "Events that somebody who listens missed, as too many waited.",
        value=watcher.overlooked_count,
    )


def _of_history(board: Board) -> Iterator[Metric]:
    """Tell of the recorders whose state is on this machine, and of the tables, as far as there are any."""
    recorders = board.recorders()
    yield gauge(
        "celeriac_recorder_recording",
        "Whether a recorder is alive and well.",
        ("recorder",),
        (((each.name,), each.is_recording) for each in recorders),
        merge=min,
    )
    yield gauge(
        "celeriac_recorder_lag_seconds",
        "How late the last event was by its sender's clock when a recorder had it on the disk.",
        ("recorder",),
        (((each.name,), each.lag) for each in recorders if each.lag is not None),
        merge=max,
    )
    yield counter(
        "celeriac_recorder_dropped_events",
        "Events for which a recorder had no room, since it began.",
        ("recorder",),
        (((each.name,), each.dropped) for each in recorders),
    )
    yield counter(
        "celeriac_recorder_gaps",
        "Times for which events may be missing in the log, since a recorder began.",
        ("recorder",),
        (((each.name,), each.gaps) for each in recorders),
    )
    yield GaugeMetricFamily(
        "celeriac_tables_published_timestamp_seconds",
        "When the tables of the history were published.",
        value=board.tables_at(),
    )
