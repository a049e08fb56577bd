"""How a cluster is: what is done in it, how long it takes, and what needs somebody to look."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from celeriac.core.member import Liveness
from celeriac.core.pulse import STEP, Pulse, Window
from celeriac.model.states import BUILT_IN_STATES, PRECEDENCE
from celeriac.node.scene import Scene
from celeriac.views.alert import (
    WINDOW,
    Alert,
    ended_in,
    failure_alerts,
    gap_alerts,
    queue_alerts,
    worker_alerts,
    workers_without_task_events,
    worst_first,
)
from celeriac.views.text import visible
from celeriac.views.worker import LiveWorker

__all__ = ["Overview", "Point", "overview"]

#: What a number for "now" is taken from: long enough to be steady, short enough to be now.
_NOW: Final = 60.0
#: The seconds of a point of the chart, and how many there are: an hour.
_STEP: Final = 30.0
_POINTS: Final = 120
#: Custom states that are counted by name; the rest together.
_MOST_STATES: Final = 20
_QUEUE_CHARS: Final = 120
_MOST_WORKERS: Final = 100


class Point(NamedTuple):
    """Rates in events per second and latencies in seconds, of some seconds.

    A rate is null for a time without an event stream: the number of events is unknown then.
    """

    at: float
    received: float | None
    succeeded: float | None
    failed: float | None
    retried: float | None
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None


class Overview(NamedTuple):
    """A cluster in a few numbers. Timestamps are seconds since the epoch."""

    as_of: float
    events: int
    tasks: int
    #: How many tasks are in each state, furthest first.
    tasks_by_state: dict[str, int]
    #: How many workers are held for what.
    workers: dict[str, int]
    now: Point
    last_hour: list[Point]
    alerts: list[Alert]
    #: The names of live workers that run tasks without sending task events; up to a hundred.
    without_task_events: list[str]
    #: How many tasks wait in each queue; None where that is not known.
    queues: dict[str, int] | None = None
    #: What kept us from asking for it the last time; nothing if all went well.
    queue_trouble: str = ""


def overview(
    scene: Scene,
    *,
    as_of: float,
    workers: Sequence[LiveWorker],
    queues: Mapping[str, int] | None = None,
    others: Sequence[Alert] = (),
) -> Overview:
    """Return how a cluster is as of a moment; ``workers`` as :func:`~celeriac.views.worker.live_workers`.

    ``queues`` says how many tasks wait in each, ``others`` what else needs somebody to look.
    """
    state = scene.state
    by_state, now, recent, hour = state.freeze_while(_counted, scene, as_of)
    lengths = None if queues is None else _lengths(queues)
    alerts = [
        *worker_alerts(workers),
        *failure_alerts(recent),
        *queue_alerts(lengths, ended=ended_in(recent), watched=_watched(recent, scene, as_of)),
        *others,
        *gap_alerts(list(state.gaps), as_of=as_of),
    ]
    counts = {kind.value: 0 for kind in Liveness}
    for worker in workers:
        counts[worker.liveness] += 1
    return Overview(
        as_of=as_of,
        events=state.event_count,
        tasks=sum(by_state.values()),
        tasks_by_state=_ordered(by_state),
        workers=counts,
        now=_point(now, scene, as_of),
        last_hour=[_point(each, scene, as_of) for each in hour],
        alerts=worst_first(alerts),
        without_task_events=[each.key for each in workers_without_task_events(workers)][:_MOST_WORKERS],
        queues=lengths,
    )


def _counted(scene: Scene, as_of: float) -> tuple[dict[str, int], Window, Window, list[Window]]:
    pulse: Pulse = scene.pulse
    now, recent = pulse.window(as_of, _NOW), pulse.window(as_of, WINDOW)
    return dict(scene.tally.by_state), now, recent, pulse.windows(as_of, _STEP, _POINTS)


def _point(window: Window, scene: Scene, as_of: float) -> Point:
    watched = _watched(window, scene, as_of)
    # Of less than a step, a silence says nothing; an event does.
    rates = [
        window.events[name] / max(watched, STEP) if window.events or watched >= STEP else None
        for name in ("received", "succeeded", "failed", "retried")
    ]
    quantiles = [times.quantile(share) for times in (window.wait, window.run) for share in (0.5, 0.95, 0.99)]
    return Point(window.begin_at, *rates, *quantiles)


def _watched(window: Window, scene: Scene, as_of: float) -> float:
    # The last step of a window goes on after the moment that is shown: of that nothing is known yet.
    return scene.watched(window.begin_at, min(window.begin_at + window.seconds, as_of))


def _lengths(queues: Mapping[str, int]) -> dict[str, int]:
    """Return how many tasks wait in each queue, by names that are safe to show; two shown alike are one."""
    told: Counter[str] = Counter()
    for name, length in queues.items():
        told[visible(name, _QUEUE_CHARS)] += length
    return dict(told)


def _ordered(counts: dict[str, int]) -> dict[str, int]:
    """Return counts by state, furthest first; custom states by name, and those beyond some together."""
    told = Counter({name: counts[name] for name in PRECEDENCE if name is not None and counts.get(name)})
    for number, name in enumerate(sorted(counts.keys() - BUILT_IN_STATES)):
        # Two that are the same when they are cut are told as one.
        told[visible(name, 40) if number < _MOST_STATES else "other"] += counts[name]
    return dict(told)
