"""``/metrics``: what Prometheus scrapes."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Annotated, Final

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from celeriac.core.series import BOUNDS, Histogram, Series
from celeriac.views.overview import overview
from celeriac.views.text import visible
from celeriac.web.api.part import board_of
from celeriac.web.board import Board, Sight

__all__ = ["metrics_text", "router"]

router = APIRouter(include_in_schema=False)

_LABEL_CHARS: Final = 200


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
        yield from _of_cluster(sight)
        yield from _of_ourselves(board)


def _of_tasks(series: Series) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "celeriac_task_events",
        "Events of tasks that came, by the name of the task and what they say.",
        labels=["name", "event"],
    )
    by_worker = CounterMetricFamily(
        "celeriac_worker_task_events",
        "Events of tasks that came, by the node that sent them and what they say.",
        labels=["worker", "event"],
    )
    for family, counts in ((events, series.events), (by_worker, series.by_worker)):
        for (label, kind), count in counts.items():
            family.add_metric([_label(label), kind], count)
        yield family
    yield _histograms(
        "celeriac_queue_wait_seconds", "How long attempts waited before they ran.", series.waits
    )
    yield _histograms("celeriac_run_seconds", "How long attempts ran.", series.runs)


def _histograms(name: str, meaning: str, told: Mapping[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, meaning, labels=["name"])
    bounds = [*map(str, BOUNDS), "+Inf"]
    for label, histogram in told.items():
        buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
        family.add_metric([_label(label)], buckets, histogram.sum)
    return family


def _of_cluster(sight: Sight) -> Iterator[Metric]:
    told = overview(sight.scene, as_of=sight.as_of, workers=sight.workers)
    states = GaugeMetricFamily("celeriac_tasks", "Tasks in memory, by state.", labels=["state"])
    for state, count in told.tasks_by_state.items():
        states.add_metric([state], count)
    yield states
    workers = GaugeMetricFamily(
        "celeriac_workers", "Workers, by what they are held for.", labels=["liveness"]
    )
    for liveness, count in told.workers.items():
        workers.add_metric([liveness], count)
    yield workers
    yield GaugeMetricFamily(
        "celeriac_workers_drifting",
        "Workers whose clocks and ours disagree.",
        value=sum(worker.is_drifting for worker in sight.workers),
    )


def _of_ourselves(board: Board) -> Iterator[Metric]:
    watcher, state = board.watcher, board.watcher.state
    yield CounterMetricFamily("celeriac_events", "Events that came.", value=state.event_count)
    yield GaugeMetricFamily(
        "celeriac_receiving", "Whether events are received now.", value=watcher.is_receiving
    )
    yield CounterMetricFamily(
        "celeriac_link_losses", "How often the link to the broker was lost.", value=watcher.receiver.losses
    )
    gaps = list(state.gaps)
    yield GaugeMetricFamily(
        "celeriac_last_gap_timestamp_seconds",
        "When the last gap in the reception ended; 0 if there was none.",
        value=gaps[-1].until if gaps else 0.0,
    )
    refused = CounterMetricFamily(
        "celeriac_refused_messages", "Messages that could not be taken, by reason.", labels=["reason"]
    )
    for reason, count in dict(watcher.receiver.gate.refused).items():
        refused.add_metric([_label(reason)], count)
    yield refused
    queues = GaugeMetricFamily("celeriac_queue_length", "Tasks that wait in a queue.", labels=["queue"])
    for name, length in (board.queues() or {}).items():
        queues.add_metric([_label(name)], length)
    yield queues
    leaders = GaugeMetricFamily(
        "celeriac_leader_token", "The token of who leads, by what is led.", labels=["name", "leader"]
    )
    for row in board.leaders().leaders:
        leaders.add_metric([row.name, row.leader], row.token or 0)
    yield leaders


def _label(text: str) -> str:
    return visible(text, _LABEL_CHARS)
