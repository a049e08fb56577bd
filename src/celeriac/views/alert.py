"""Alerts of the overview, each with the page that shows more."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from celeriac.core.member import Liveness
from celeriac.core.pulse import Window
from celeriac.core.worker import HEARTBEAT_DRIFT_MAX
from celeriac.model.events import Gap
from celeriac.views.format import format_duration, format_timestamp
from celeriac.views.recorder import RecorderRow
from celeriac.views.text import number_text, visible
from celeriac.views.worker import LiveWorker

__all__ = [
    "ENABLE_EVENTS",
    "NO_TASKS",
    "WINDOW",
    "Alert",
    "ended_in",
    "failure_alerts",
    "gap_alerts",
    "queue_alerts",
    "recorder_alerts",
    "table_alerts",
    "worker_alerts",
    "workers_without_task_events",
    "worst_first",
]

#: The seconds that failures and the pace of tasks are taken from, the last ones.
WINDOW: Final = 300.0
#: When a share of failures is worth an alert: so much of at least so many.
_FAILED_SHARE: Final = 0.2
_FAILED_LEAST: Final = 10
#: When too many tasks wait: they will for ten minutes, and are no burst that is over before somebody looks.
_WAIT: Final = 600.0
_WAITING_LEAST: Final = 100
#: The seconds that have to be known for there to be a pace.
_PACE_LEAST: Final = 60.0
#: For how long a gap in the reception is told.
_GAP_TOLD: Final = 3600.0
#: When tables are old: those that are made once a night, which is as seldom as anybody does, are younger.
_TABLES_OLD: Final = 26 * 3600.0
_MOST_NAMED: Final = 5
#: The command that turns on task events.
ENABLE_EVENTS: Final = "celeriac control enable-events"
#: Shown where there are no tasks at all.
NO_TASKS: Final = f"No tasks yet. Turn on task events: {ENABLE_EVENTS}"
_LEVELS: Final = ("error", "warning")


class Alert(NamedTuple):
    """Something that needs somebody to look."""

    #: ``error`` or ``warning``.
    level: str
    text: str
    #: The page that tells more: ``workers``, ``tasks``, ``cluster`` or ``history``.
    page: str
    #: What that page is asked for, as its address says it.
    query: str = ""


def worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    """Return errors before warnings, and else as they are given."""
    return sorted(alerts, key=lambda alert: _LEVELS.index(alert.level))


def worker_alerts(workers: Sequence[LiveWorker]) -> list[Alert]:
    """Return what is wrong with workers."""
    told: list[tuple[str, str, list[str]]] = [
        ("error", "Workers lost (no heartbeat, no shutdown event): {}", _held_for(Liveness.LOST, workers)),
        ("warning", "Workers suspect (heartbeats overdue): {}", _held_for(Liveness.SUSPECT, workers)),
        (
            "warning",
            f"Clock skew above {HEARTBEAT_DRIFT_MAX} s: {{}}. Check NTP.",
            [each.name for each in workers if each.is_drifting],
        ),
        (
            "warning",
            f"Workers without task events: {{}}. Enable them: {ENABLE_EVENTS}",
            [each.name for each in workers_without_task_events(workers)],
        ),
    ]
    return [Alert(level, text.format(_names(names)), "workers") for level, text, names in told if names]


def workers_without_task_events(workers: Iterable[LiveWorker]) -> list[LiveWorker]:
    """Return the live workers that run tasks without sending task events."""
    return [each for each in workers if each.task_events is False and each.liveness == Liveness.ALIVE]


def _held_for(liveness: Liveness, workers: Sequence[LiveWorker]) -> list[str]:
    return [each.name for each in workers if each.liveness == liveness]


def failure_alerts(recent: Window) -> list[Alert]:
    """Return whether too many tasks failed, of those that ended within :data:`WINDOW`."""
    failed, ended = recent.events["failed"], ended_in(recent)
    if failed < _FAILED_LEAST or failed / ended < _FAILED_SHARE:
        return []
    text = f"{number_text(round(100 * failed / ended))} % of {ended} tasks failed in the last 5 minutes"
    return [Alert("error", text, "tasks", f"state=FAILURE&last={WINDOW:.0f}")]


def ended_in(recent: Window) -> int:
    """Return how many tasks ended, well or not."""
    return recent.events["failed"] + recent.events["succeeded"]


def queue_alerts(queues: Mapping[str, int] | None, *, ended: int, watched: float) -> list[Alert]:
    """Return whether too many tasks wait, at the pace at which tasks ended in the seconds that were watched.

    A queue that grows without end is told when that wait is long, and one that is long and soon empty is not.
    """
    waiting = sum((queues or {}).values())
    if not queues or waiting < _WAITING_LEAST or watched < _PACE_LEAST:
        return []
    names = _names([name for name in sorted(queues, key=lambda name: -queues[name]) if queues[name]])
    if not ended:
        text = f"Backlog: {waiting:,} tasks in {names}, and no task finished in the last 5 minutes"
        return [Alert("error", text, "workers")]
    seconds = waiting * watched / ended
    if seconds <= _WAIT:
        return []
    about = format_duration(60.0 * round(seconds / 60.0))
    text = f"Backlog: {waiting:,} tasks in {names}, about {about} at the current rate"
    return [Alert("warning", text, "workers")]


def gap_alerts(gaps: Iterable[Gap], *, as_of: float) -> list[Alert]:
    """Return for which times of the last hour events may be missing."""
    return [
        Alert(
            "warning",
            f"Events may be missing from {format_timestamp(gap.since)} to {format_timestamp(gap.until)}: "
            f"{visible(gap.reason)}",
            "cluster",
        )
        for gap in gaps
        if gap.until > as_of - _GAP_TOLD
    ]


def recorder_alerts(recorders: Sequence[RecorderRow]) -> list[Alert]:
    """Return what is wrong with recorders; it is worse where none of them records."""
    is_recorded = any(each.is_recording for each in recorders)
    level = "warning" if is_recorded else "error"
    before = "Recorder" if is_recorded else "Events are not recorded: recorder"
    return [
        Alert(level, f"{before} {each.name}: {each.ailment}", "cluster") for each in recorders if each.ailment
    ]


def table_alerts(published_at: float | None, *, as_of: float) -> list[Alert]:
    """Return whether the tables of the history are too old; None is not known, or there are none."""
    age = 0.0 if published_at is None else as_of - published_at
    if age <= _TABLES_OLD:
        return []
    text = f"History tables are {format_duration(age)} old. Update them: celeriac pipeline run"
    return [Alert("warning", text, "history")]


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
