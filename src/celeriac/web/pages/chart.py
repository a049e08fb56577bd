"""Charts. ECharts draws them; it comes with NiceGUI."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import ui

__all__ = ["LineChart"]

#: Readable on light and on dark ground.
_GREY: Final = "#868e96"
COLOURS: Final = {
    "received": "#4c8dd6",
    "succeeded": "#2f9e44",
    "failed": "#e03131",
    "retried": "#e8890c",
    "attempts": "#4c8dd6",
    "p50": "#2f9e44",
    "p95": "#e8890c",
    "p99": "#e03131",
}


class LineChart:
    """Lines over time; ``names`` are those of the lines. ``label`` tells what it shows in words."""

    def __init__(self, names: Sequence[str], *, label: str) -> None:
        self._names = names
        self._chart = ui.echart(
            {
                "animation": False,
                "grid": {"left": 8, "right": 12, "top": 32, "bottom": 4, "containLabel": True},
                "legend": {
                    "top": 0,
                    "right": 0,
                    "itemWidth": 14,
                    "icon": "rect",
                    "itemHeight": 4,
                    "textStyle": {"color": _GREY},
                },
                "tooltip": {"trigger": "axis", "confine": True},
                "xAxis": {"type": "time", "axisLabel": {"color": _GREY, "hideOverlap": True}},
                "yAxis": {
                    "type": "value",
                    "axisLabel": {"color": _GREY},
                    "splitLine": {"lineStyle": {"color": "#868e9640"}},
                },
                "useUTC": True,
                "series": [_line(name, COLOURS.get(name)) for name in names],
            }
        ).classes("chart")
        self._chart.props(f'role=img aria-label="{label}"')

    def show(self, times: Sequence[float], lines: Mapping[str, Sequence[float | None]]) -> None:
        """Show other values: moments in seconds of the epoch, and a value of each line for each of them."""
        data = [
            [
                [at * 1000, None if value is None else round(value, 6)]
                for at, value in zip(times, lines[name], strict=True)
            ]
            for name in self._names
        ]
        series: list[dict[str, Any]] = self._chart.options["series"]
        if data != [line["data"] for line in series]:
            for line, values in zip(series, data, strict=True):
                line["data"] = values
            self._chart.update()


def _line(name: str, colour: str | None) -> dict[str, Any]:
    line: dict[str, Any] = {"type": "line", "name": name, "symbolSize": 3, "connectNulls": False, "data": []}
    return line if colour is None else {**line, "color": colour}
