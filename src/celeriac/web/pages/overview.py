"""``/``: how the cluster is, in a few numbers and charts."""

from collections.abc import Callable
from itertools import dropwhile
from urllib.parse import parse_qs

from fastapi import Request
from nicegui import ui

from celeriac.views.alert import NO_TASKS, Alert
from celeriac.views.format import format_count, format_duration, format_rate
from celeriac.views.overview import Overview, Point
from celeriac.web.access import User
from celeriac.web.action import Actions, Done
from celeriac.web.pages.chart import LineChart
from celeriac.web.pages.confirm import confirm
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import Tile, empty, section, state_class
from celeriac.web.pages.trend import LastDay
from celeriac.web.pages.visit import Visit
from celeriac.web.panorama import panorama

__all__ = ["overview_page"]

_QUANTILES = ("p50", "p95", "p99")
#: Of half a minute each: less would be all edge.
_LEAST_POINTS = 10
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
        with ui.element("div").classes("alerts").props('role=status aria-label="Alerts" data-alerts'):
            self._alerts = _Alerts(visit)
            self._without_task_events: list[str] = []
            self._enable_events = ui.button("Enable task events", on_click=self._ask_to_enable_events)
            self._enable_events.props("flat dense no-caps data-enable-events").classes("quiet")
            self._enable_events.set_visibility(False)
        with ui.element("div").classes("tiles"):
            self._tiles = {
                "received": Tile("Tasks received", mark="received"),
                "succeeded": Tile("Succeeded", mark="succeeded"),
                "failed": Tile("Failed", mark="failed"),
                "wait": Tile("Queue wait p95 (1 min)", mark="wait"),
                "run": Tile("Run time p95 (1 min)", mark="run"),
                "workers": Tile("Workers alive", mark="workers"),
                "tasks": Tile("Tasks in memory", mark="tasks"),
            }
        with ui.element("div").classes("panels"):
            with section("Throughput (tasks/s)"):
                self._rates = LineChart(
                    _RATES, label="Tasks received, succeeded, failed and retried per second"
                )
            with section("Queue wait (s)"):
                self._waits = LineChart(_QUANTILES, label="Queue wait percentiles in seconds")
            with section("Run time (s)"):
                self._runs = LineChart(_QUANTILES, label="Run time percentiles in seconds")
            with section("Tasks by state"):
                self._states = _Bars(self._state_row)
            with section("Queue depth"):
                self._queues = _Bars(self._queue_row)
            with section("Last 24 hours", wide=True).props("data-last-day"):
                LastDay(visit)
                ui.link("Open History", visit.link("/history")).classes("faint")

    def show(self, told: Overview) -> None:
        """Show how the cluster is now."""
        now = told.now
        for name in ("received", "succeeded", "failed"):
            rate: float | None = getattr(now, name)
            self._tiles[name].show(format_rate(rate), is_bad=name == "failed" and bool(rate))
        self._tiles["wait"].show(format_duration(now.wait_p95))
        self._tiles["run"].show(format_duration(now.run_p95))
        alive, all_ = told.workers.get("ALIVE", 0), sum(told.workers.values()) - told.workers.get("LEFT", 0)
        self._tiles["workers"].show(f"{alive} of {all_}", is_bad=alive < all_)
        self._tiles["tasks"].show(format_count(told.tasks))
        known = [*dropwhile(lambda point: point.received is None, told.last_hour)]
        # Or the first minutes would be a few dots at the edge of an empty hour.
        self._show_charts(told.last_hour[-max(len(known), _LEAST_POINTS) :])
        self._alerts.show(told.alerts)
        self._without_task_events = told.without_task_events
        self._enable_events.set_visibility(bool(told.without_task_events) and self._visit.may_act)
        self._show_states(told.tasks_by_state)
        self._show_queues(told.queues, told.queue_trouble)

    async def _ask_to_enable_events(self) -> None:
        workers = list(self._without_task_events)

        def order(actions: Actions, user: User, dry_run: bool) -> Done:
            return actions.on_workers(user, "enable-events", workers, {}, dry_run=dry_run)

        title = "Enable task events: workers publish the events of their tasks"
        await confirm(self._visit, title, order, lambda _: "Enable task events", is_dangerous=False)

    def _show_charts(self, hour: list[Point]) -> None:
        times = [point.at for point in hour]
        self._rates.show(times, {name: [getattr(point, name) for point in hour] for name in _RATES})
        for chart, kind in ((self._waits, "wait"), (self._runs, "run")):
            chart.show(times, {q: [getattr(point, f"{kind}_{q}") for point in hour] for q in _QUANTILES})

    def _show_states(self, counts: dict[str, int]) -> None:
        none = NO_TASKS
        self._states.show(counts, none, mark="tasks")

    def _state_row(self, state: str) -> ui.element:
        row = ui.link(target=self._visit.link("/tasks", state=state)).props("data-state-row")
        with row:
            ui.label(state).classes(state_class(state))
        return row

    def _show_queues(self, lengths: dict[str, int] | None, trouble: str) -> None:
        none = "No queues yet. No event or worker has named one."
        if lengths is None:
            is_live = self._visit.is_live
            none = "Querying the broker…" if is_live else "Past queue depth is not recorded."
            none = f"Cannot query the broker: {trouble}" if trouble else none
        self._queues.show(lengths or {}, none, mark="queues")

    def _queue_row(self, name: str) -> ui.element:
        row = ui.element("div").props("data-queue-row")
        with row:
            ui.label(name).classes("bar-name")
        return row


# What changes each second is changed in its place. Of what is made anew the browser knows not that it is the
# same: a click on it is lost if that happens while the button of the mouse is down.


class _Alerts:
    """What matters now, each with the way to where it can be seen."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._list = ui.element("div")
        self._kinds: list[tuple[str, str, str]] = []
        self._texts: list[ui.label] = []

    def show(self, alerts: list[Alert]) -> None:
        """Show these."""
        kinds = [(alert.level, alert.page, alert.query) for alert in alerts]
        if kinds != self._kinds:
            self._kinds = kinds
            self._list.clear()
            with self._list:
                self._texts = [self._made(alert) for alert in alerts]
        for label, alert in zip(self._texts, alerts, strict=True):
            label.set_text(alert.text)

    def _made(self, alert: Alert) -> ui.label:
        target = self._visit.link("/" + alert.page, **parse_qs(alert.query))
        with ui.link(target=target).classes(f"alert is-{alert.level}"):
            return ui.label(alert.text)


class _Bars:
    """How many there are of each, as bars; ``make_row`` makes a row that says of what."""

    def __init__(self, make_row: Callable[[str], ui.element]) -> None:
        self._make_row = make_row
        self._list = ui.element("div").classes("bars")
        self._none: ui.label | None = None
        self._rows: dict[str, _Bar] = {}

    def show(self, counts: dict[str, int], none: str, *, mark: str) -> None:
        """Show so many of each; what ``none`` says if there is none."""
        if list(counts) != list(self._rows) or (not counts and self._none is None):
            self._list.clear()
            with self._list:
                self._none = None if counts else empty(none, mark=mark)
                self._rows = {name: _Bar(self._make_row(name)) for name in counts}
        if self._none is not None:
            self._none.set_text(none)
        most = max(counts.values(), default=0) or 1
        for name, count in counts.items():
            self._rows[name].show(count, count / most)


class _Bar:
    def __init__(self, row: ui.element) -> None:
        self._width = ""
        with row.classes("bar-row"):
            with ui.element("div").classes("bar").props("aria-hidden=true"):
                self._fill = ui.element("div").classes("bar-fill")
            self._count = ui.label().classes("bar-count")

    def show(self, count: int, share: float) -> None:
        """Show a number, and what share of the bar is filled."""
        self._count.set_text(format_count(count))
        width = f"width: {100 * share:.1f}%"
        if width != self._width:
            self._width = width
            self._fill.style(replace=width)
