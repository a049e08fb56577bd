"""``/``: how the cluster is, in a few numbers and charts."""

from fastapi import Request
from nicegui import ui

from celeriac.views.overview import Alert, Overview, Point
from celeriac.web.pages.chart import LineChart
from celeriac.web.pages.format import count_text, duration_text, rate_text, state_class
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import Tile, empty, section
from celeriac.web.pages.trend import LastDay
from celeriac.web.pages.visit import Visit
from celeriac.web.panorama import panorama

__all__ = ["overview_page"]

_QUANTILES = ("p50", "p95", "p99")
_RATES = ("received", "succeeded", "failed", "retried")


@ui.page("/")
def overview_page(request: Request, at: float | None = None) -> None:
    """Show how the cluster is."""
    with frame(request, "Overview", at) as visit:
        page = _OverviewPage(visit)
        visit.keep(lambda: _told(visit), page.show)


def _told(visit: Visit) -> Overview:
    return visit.desk.panorama() if visit.is_live else panorama(visit.desk.board, visit.sight())


class _OverviewPage:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._alerts: list[Alert] | None = None
        self._states: dict[str, int] | None = None
        #: What is shown; at first nothing, which is another thing than that nothing is known.
        self._queues: object = ()
        with ui.element("div").classes("alerts").props('role=status aria-label="Alerts" data-alerts'):
            self._alert_list = ui.element("div")
        with ui.element("div").classes("tiles"):
            self._tiles = {
                "received": Tile("tasks received", mark="received"),
                "succeeded": Tile("succeeded", mark="succeeded"),
                "failed": Tile("failed", mark="failed"),
                "wait": Tile("queue wait, p95 of a minute", mark="wait"),
                "run": Tile("run time, p95 of a minute", mark="run"),
                "workers": Tile("workers alive", mark="workers"),
                "tasks": Tile("tasks in memory", mark="tasks"),
            }
        with ui.element("div").classes("panels"):
            with section("Throughput of the last hour, tasks a second"):
                self._rates = LineChart(
                    _RATES, label="Tasks received, succeeded, failed and retried each second"
                )
            with section("Queue wait, seconds"):
                self._waits = LineChart(_QUANTILES, label="Percentiles of the wait in queues, in seconds")
            with section("Run time, seconds"):
                self._runs = LineChart(_QUANTILES, label="Percentiles of the run time, in seconds")
            with section("Tasks by state"):
                self._state_list = ui.element("div").classes("bars")
            with section("Tasks that wait in queues"):
                self._queue_list = ui.element("div").classes("bars")
            with section("Over history: the last day by hour", wide=True).props("data-last-day"):
                LastDay(visit)
                ui.link("More of the history", visit.link("/history")).classes("faint")

    def show(self, told: Overview) -> None:
        """Show how the cluster is now."""
        now = told.now
        for name in ("received", "succeeded", "failed"):
            rate: float | None = getattr(now, name)
            self._tiles[name].show(rate_text(rate), is_bad=name == "failed" and bool(rate))
        self._tiles["wait"].show(duration_text(now.wait_p95))
        self._tiles["run"].show(duration_text(now.run_p95))
        alive, all_ = told.workers.get("ALIVE", 0), sum(told.workers.values()) - told.workers.get("LEFT", 0)
        self._tiles["workers"].show(f"{alive} of {all_}", is_bad=alive < all_)
        self._tiles["tasks"].show(count_text(told.tasks))
        self._show_charts(told.last_hour)
        self._show_alerts(told.alerts)
        self._show_states(told.tasks_by_state)
        self._show_queues(told.queues)

    def _show_charts(self, hour: list[Point]) -> None:
        times = [point.at for point in hour]
        self._rates.show(times, {name: [getattr(point, name) for point in hour] for name in _RATES})
        for chart, kind in ((self._waits, "wait"), (self._runs, "run")):
            chart.show(times, {q: [getattr(point, f"{kind}_{q}") for point in hour] for q in _QUANTILES})

    def _show_alerts(self, alerts: list[Alert]) -> None:
        if alerts == self._alerts:
            return
        self._alerts = alerts
        self._alert_list.clear()
        with self._alert_list:
            for alert in alerts:
                path = "/" + alert.page
                with ui.link(target=self._visit.link(path)).classes(f"alert is-{alert.level}"):
                    ui.label(alert.text)

    def _show_states(self, counts: dict[str, int]) -> None:
        if counts == self._states:
            return
        self._states = counts
        self._state_list.clear()
        with self._state_list:
            if not counts:
                empty(
                    "No task was heard of yet. Workers tell of their tasks when events are on: "
                    "celery worker -E, or celeriac control enable_events.",
                    mark="tasks",
                )
            most = max(counts.values(), default=1)
            for state, count in counts.items():
                with (
                    ui.link(target=self._visit.link("/tasks", state=state))
                    .classes("bar-row")
                    .props("data-state-row")
                ):
                    ui.label(state).classes(state_class(state))
                    _bar(count / most)
                    ui.label(count_text(count)).classes("bar-count")

    def _show_queues(self, queues: dict[str, int] | None) -> None:
        if queues == self._queues:
            return
        self._queues = queues
        self._queue_list.clear()
        with self._queue_list:
            if queues is None:
                is_live = self._visit.is_live
                told = "The broker is being asked." if is_live else "How long queues were is not recorded."
                empty(told, mark="queues")
            elif not queues:
                empty("No queue is known yet: none was named in an event, or by a worker.", mark="queues")
            most = max((queues or {}).values(), default=1) or 1
            for name, length in (queues or {}).items():
                with ui.element("div").classes("bar-row").props("data-queue-row"):
                    ui.label(name).classes("bar-name")
                    _bar(length / most)
                    ui.label(count_text(length)).classes("bar-count")


def _bar(share: float) -> None:
    with ui.element("div").classes("bar").props("aria-hidden=true"):
        ui.element("div").classes("bar-fill").style(f"width: {100 * share:.1f}%")
