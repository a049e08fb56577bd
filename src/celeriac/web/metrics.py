"""``/metrics``: what Prometheus scrapes."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from celeriac.core.series import MAX_NAMES, Series
from celeriac.node.watcher import Watcher
from celeriac.views.overview import overview
from celeriac.views.worker import LiveWorker
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
        "Task events received, by task name and event type.",
        ("name", "event"),
        series.events.items(),
    )
    yield counter(
        "celeriac_worker_task_events",
        "Task events received, by worker and event type.",
        ("worker", "event"),
        series.by_worker.items(),
    )
    yield histogram(
        "celeriac_queue_wait_seconds",
        "Time from when an attempt could run until it started, in seconds.",
        series.waits,
    )
    yield histogram("celeriac_run_seconds", "Run time of attempts, in seconds.", series.runs)


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
        "Workers, by status.",
        ("liveness",),
        (((liveness,), count) for liveness, count in told.workers.items()),
    )
    known = [each for each in sight.workers if each.task_events is not None]
    yield gauge(
        "celeriac_worker_task_events_enabled",
        "1 if the worker sends task events, 0 if it runs tasks without sending any; absent while unknown.",
        ("worker",),
        # Those without first: of many workers the others are left out.
        (((each.name,), bool(each.task_events)) for each in sorted(known, key=_sends)[:MAX_NAMES]),
        merge=min,
    )
    yield GaugeMetricFamily(
        "celeriac_workers_drifting",
        "Workers whose clock differs from the clock of this host by more than 16 seconds.",
        value=sum(worker.is_drifting for worker in sight.workers),
    )
    yield gauge(
        "celeriac_queue_length",
        "Messages ready in a queue.",
        ("queue",),
        (((name,), length) for name, length in (board.queues() or {}).items()),
    )
    yield gauge(
        "celeriac_leader_token",
        "Fencing token of the current leader, by lease name and leader.",
        ("name", "leader"),
        (((row.name, row.leader), row.token or 0) for row in board.leaders().leaders),
        merge=max,
    )


def _sends(worker: LiveWorker) -> tuple[bool, str]:
    return bool(worker.task_events), worker.name


def _of_reception(watcher: Watcher) -> Iterator[Metric]:
    state, receiver = watcher.state, watcher.receiver
    yield CounterMetricFamily("celeriac_events", "Events received.", value=state.event_count)
    yield GaugeMetricFamily(
        "celeriac_receiving",
        "1 if connected to the event stream of the broker, 0 otherwise.",
        value=watcher.is_receiving,
    )
    yield GaugeMetricFamily(
        "celeriac_event_lag_seconds",
        "Median delay of worker heartbeats, relative to the smallest delay of the last hour, in seconds.",
        value=watcher.lag(),
    )
    yield CounterMetricFamily("celeriac_link_losses", "Disconnects from the broker.", value=receiver.losses)
    yield CounterMetricFamily(
        "celeriac_gaps",
        "Event gaps (periods with possibly missing events) since start.",
        value=watcher.gap_count,
    )
    gaps = list(state.gaps)
    yield GaugeMetricFamily(
        "celeriac_last_gap_timestamp_seconds",
        "End of the last event gap, as Unix timestamp; 0 if there was none.",
        value=gaps[-1].until if gaps else 0.0,
    )
    yield counter(
        "celeriac_refused_messages",
        "Event messages rejected as invalid, by reason.",
        ("reason",),
        (((reason,), count) for reason, count in dict(receiver.gate.refused).items()),
    )
    yield CounterMetricFamily(
        "celeriac_overlooked_events",
        "Events dropped because an SSE listener was too slow.",
        value=watcher.overlooked_count,
    )


def _of_history(board: Board) -> Iterator[Metric]:
    """Tell of the recorders whose state is on this machine, and of the tables, as far as there are any."""
    recorders = board.recorders()
    yield gauge(
        "celeriac_recorder_recording",
        "1 if the recorder runs and records, 0 otherwise.",
        ("recorder",),
        (((each.name,), each.is_recording) for each in recorders),
        merge=min,
    )
    yield gauge(
        "celeriac_recorder_lag_seconds",
        "Delay from the timestamp of the last event until the recorder wrote it to disk, in seconds.",
        ("recorder",),
        (((each.name,), each.lag) for each in recorders if each.lag is not None),
        merge=max,
    )
    yield counter(
        "celeriac_recorder_dropped_events",
        "Events dropped by the recorder for lack of space, since its start.",
        ("recorder",),
        (((each.name,), each.dropped) for each in recorders),
    )
    yield counter(
        "celeriac_recorder_gaps",
        "Event gaps in the log of the recorder, since its start.",
        ("recorder",),
        (((each.name,), each.gaps) for each in recorders),
    )
    yield GaugeMetricFamily(
        "celeriac_tables_published_timestamp_seconds",
        "When the history tables were published, as Unix timestamp.",
        value=board.tables_at(),
    )
