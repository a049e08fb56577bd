"""Attempts, failures and percentiles over time, from the tables of the pipeline."""

from collections.abc import Sequence
from math import isfinite
from time import time
from typing import Final

from nicegui import ui

from celeriac.errors import CeleriacError
from celeriac.history.span import WIDTHS, By
from celeriac.model.answer import AttemptTimes, Spread
from celeriac.web.pages.chart import LineChart
from celeriac.web.pages.part import empty, heading
from celeriac.web.pages.visit import Visit

__all__ = ["NO_TABLES", "LastDay", "LatencyCharts"]

NO_TABLES: Final = (
    "No history yet. celeriac up builds it every 10 minutes; otherwise run celeriac record, then celeriac "
    "pipeline run."
)
_QUANTILES: Final = ("p50", "p95", "p99")
_COUNTS: Final = ("attempts", "failed", "retried")
#: Times without attempts are shown as gaps in a line, up to so many.
_MOST_FILLED: Final = 5000
_DAY: Final = 86_400.0
_EVERY: Final = 60.0


class LatencyCharts:
    """The wait in queues and the run time, side by side."""

    def __init__(self) -> None:
        with ui.element("div").classes("chart-pair"):
            with ui.element("div"):
                heading("Queue wait (s)", 3)
                self._waits = LineChart(_QUANTILES, label="Queue wait percentiles over time")
            with ui.element("div"):
                heading("Run time (s)", 3)
                self._runs = LineChart(_QUANTILES, label="Run time percentiles over time")

    def show(self, found: Sequence[AttemptTimes], by: By, *, least: int = 1) -> None:
        """Show other times, of one length each; at least so many, up to the last that is known."""
        times, filled = _filled(found, by, least)
        for chart, spreads in (
            (self._waits, [None if each is None else each.wait for each in filled]),
            (self._runs, [None if each is None else each.run for each in filled]),
        ):
            chart.show(times, {name: [_value(each, name) for each in spreads] for name in _QUANTILES})


class CountChart:
    """How many attempts there were, and how many of them failed or are to be tried again."""

    def __init__(self) -> None:
        heading("Attempts per hour", 3)
        self._chart = LineChart(_COUNTS, label="Attempts, failures and retries per hour")

    def show(self, found: Sequence[AttemptTimes], *, least: int = 1) -> None:
        """Show other hours; at least so many, up to the last that is known."""
        times, filled = _filled(found, "hour", least)
        self._chart.show(
            times,
            {name: [None if each is None else getattr(each, name) for each in filled] for name in _COUNTS},
        )


def _filled(
    found: Sequence[AttemptTimes], by: By, least: int
) -> tuple[list[float], Sequence[AttemptTimes | None]]:
    """Return all times from the first to the last, those without attempts as None."""
    width = WIDTHS[by]
    known = {each.at: each for each in found if each.at is not None}
    if not known:
        return [], []
    last = max(known)
    first = min(*known, last - (least - 1) * width)
    count = round((last - first) / width) + 1
    if count > _MOST_FILLED:
        return list(known), list(known.values())
    times = [first + number * width for number in range(count)]
    return times, [known.get(at) for at in times]


def _value(spread: Spread | None, name: str) -> float | None:
    value: float | None = None if spread is None else getattr(spread, name)
    return value if value is None or isfinite(value) else None


class LastDay:
    """The attempts and percentiles of each hour of the last day, once a minute; or how to have them."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with ui.element("div") as self._shown:
            self._counts = CountChart()
            self._charts = LatencyCharts()
        self._none = empty("", mark="history")
        self._shown.set_visibility(False)
        self._none.set_visibility(False)
        visit.keep(self._load, self._show, every=_EVERY)

    def _load(self) -> list[AttemptTimes] | str:
        """Return the hours, or why there are none: that must not keep the page from showing all else."""
        now = time() if self._visit.at is None else self._visit.at
        try:
            warehouse = self._visit.desk.board.warehouse
            warehouse.refresh()
        except CeleriacError:
            return NO_TABLES
        try:
            return warehouse.latency(since=now - _DAY, until=now, by="hour")
        except CeleriacError as error:
            return f"Cannot query the history tables: {error}"

    def _show(self, told: list[AttemptTimes] | str) -> None:
        if isinstance(told, str):
            self._none.set_text(told)
        elif not told:
            self._none.set_text("No attempts in these 24 hours. To update the tables: celeriac pipeline run")
        else:
            self._counts.show(told, least=24)
            self._charts.show(told, "hour", least=24)
        has_some = not isinstance(told, str) and bool(told)
        self._shown.set_visibility(has_some)
        self._none.set_visibility(not has_some)
