"""How a cluster is: what is done in it, how long it takes, and what needs somebody to look."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from celeriac.core.member import Liveness
from celeriac.core.pulse import STEP, Pulse, Window
from celeriac.model.states import BUILT_IN_STATES, PRECEDENCE
from celeriac.node.scene import Scene
from celeriac.views.cell import moment_of
from celeriac.views.text import number_text, visible
from celeriac.views.worker import LiveWorker

__all__ = ["Alert", "Overview", "Point", "alerts", "overview"]

#: What a number for "now" is taken from: long enough to be steady, short enough to be now.
_NOW: Final = 60.0
#: The seconds of a point of the chart, and how many there are: an hour.
_STEP: Final = 30.0
_POINTS: Final = 120
#: Custom states that are counted by name; the rest together.
_MOST_STATES: Final = 20
#: When a share of failures is worth an alert: so much of at least so many within five minutes.
_FAILED_SHARE: Final = 0.2
_FAILED_LEAST: Final = 10
_WINDOW: Final = 300.0
#: For how long a gap in the reception is told.
_GAP_TOLD: Final = 3600.0
_MOST_NAMED: Final = 5


class Point(NamedTuple):
    """What happened within some seconds. Rates are events a second, durations seconds.

    Where nobody watched there is no rate: that is not to say that nothing happened.
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


class Alert(NamedTuple):
    """Something that needs somebody to look."""

    #: ``error`` or ``warning``.
    level: str
    text: str
    #: The page that tells more: ``workers``, ``tasks``, ``cluster`` or ``history``.
    page: str


class Overview(NamedTuple):
    """A cluster in a few numbers. Moments are seconds of the epoch."""

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
    #: How many tasks wait in each queue; None where that is not known.
    queues: dict[str, int] | None = None


def overview(scene: Scene, *, as_of: float, workers: Sequence[LiveWorker]) -> Overview:
    """Return how a cluster is as of a moment; ``workers`` as :func:`~celeriac.views.worker.live_workers`."""
    state = scene.state
    by_state, now, recent, hour = state.freeze_while(_counted, scene, as_of)
    gaps = [gap for gap in list(state.gaps) if gap.until > as_of - _GAP_TOLD]
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
        alerts=[*alerts(workers, recent), *(_gap_alert(gap.since, gap.until, gap.reason) for gap in gaps)],
    )


def _counted(scene: Scene, as_of: float) -> tuple[dict[str, int], Window, Window, list[Window]]:
    pulse: Pulse = scene.pulse
    now, recent = pulse.window(as_of, _NOW), pulse.window(as_of, _WINDOW)
    return dict(scene.tally.by_state), now, recent, pulse.windows(as_of, _STEP, _POINTS)


def _point(window: Window, scene: Scene, as_of: float) -> Point:
    # The last step of a window goes on after the moment that is shown: of that nothing is known yet.
    watched = scene.watched(window.begin_at, min(window.begin_at + window.seconds, as_of))
    # Of less than a step, a silence says nothing; an event does.
    rates = [
        window.events[name] / max(watched, STEP) if window.events or watched >= STEP else None
        for name in ("received", "succeeded", "failed", "retried")
    ]
    quantiles = [times.quantile(share) for times in (window.wait, window.run) for share in (0.5, 0.95, 0.99)]
    return Point(window.begin_at, *rates, *quantiles)


def _ordered(counts: dict[str, int]) -> dict[str, int]:
    """Return counts by state, furthest first; custom states by name, and those beyond some together."""
    told = Counter({name: counts[name] for name in PRECEDENCE if name is not None and counts.get(name)})
    for number, name in enumerate(sorted(counts.keys() - BUILT_IN_STATES)):
        # Two that are the same when they are cut are told as one.
        told[visible(name, 40) if number < _MOST_STATES else "other"] += counts[name]
    return dict(told)


def alerts(workers: Sequence[LiveWorker], recent: Window) -> list[Alert]:
    """Return what needs somebody to look, the worst first."""
    found: list[Alert] = []
    by_liveness: dict[str, list[str]] = {}
    for worker in workers:
        by_liveness.setdefault(worker.liveness, []).append(worker.name)
    lost, suspects = by_liveness.get(Liveness.LOST, []), by_liveness.get(Liveness.SUSPECT, [])
    if lost:
        found.append(Alert("error", f"lost without a farewell: {_names(lost)}", "workers"))
    failed = recent.events["failed"]
    ended = failed + recent.events["succeeded"]
    if failed >= _FAILED_LEAST and failed / ended >= _FAILED_SHARE:
        share = number_text(round(100 * failed / ended))
        found.append(Alert("error", f"{share} % of {ended} tasks failed within five minutes", "tasks"))
    if suspects:
        found.append(Alert("warning", f"silent for too long: {_names(suspects)}", "workers"))
    drifting = [worker.name for worker in workers if worker.is_drifting]
    if drifting:
        found.append(
            Alert("warning", f"clocks disagree with ours: {_names(drifting)}; synchronise them", "workers")
        )
    return found


def _gap_alert(since: float, until: float, reason: str) -> Alert:
    text = f"events from {moment_of(since)} to {moment_of(until)} may be missing: {visible(reason)}"
    return Alert("warning", text, "cluster")


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
