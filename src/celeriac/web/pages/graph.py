"""A workflow as a graph: who sent whom from left to right, and in their order from top to bottom."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from nicegui import events, ui

from celeriac.model.answer import WorkflowTask
from celeriac.views.cell import name_text, number_of, text_of
from celeriac.views.format import UNKNOWN, format_duration

__all__ = ["MOST_JOINS", "MOST_NODES", "Drawn", "Place", "WorkflowGraph", "drawn_of", "joins", "places"]

#: The most tasks that are drawn: nobody can tell more apart.
MOST_NODES: Final = 300
#: The most lines from the tasks of groups to those that waited for them: two large groups in a row have more.
MOST_JOINS: Final = 1000
_GREY: Final = "#868e96"
_MARK: Final = "#e8890c"
_COLOURS: Final = {
    "SUCCESS": "#2f9e44",
    "FAILURE": "#e03131",
    "REJECTED": "#e03131",
    "RETRY": "#e8890c",
    "STARTED": "#4c8dd6",
    "RECEIVED": "#4c8dd6",
    "REVOKED": "#8f5fd0",
}
#: In pixels of a wide screen; the graph is drawn smaller on others.
_WIDTH: Final = 1000.0
_MOST_STEP: Final = 240.0
_ROW: Final = 44.0
_LOWEST, _HIGHEST = 180.0, 640.0


class Place(NamedTuple):
    """Where a task stands: its column, its row, and the number of the task that sent it."""

    column: int
    row: float
    above: int | None


class Drawn(NamedTuple):
    """How much of a workflow is drawn."""

    tasks: int
    #: Whether lines to the body of a chord are drawn, and whether all of them are.
    has_joins: bool
    has_all_joins: bool


class WorkflowGraph:
    """Draws tasks; ``on_choose`` is given the id of one that was clicked."""

    def __init__(self, on_choose: Callable[[str], None]) -> None:
        self._on_choose = on_choose
        self._tasks: list[WorkflowTask] = []
        self._drawn = Drawn(0, False, True)
        self._chart = ui.echart(
            {
                "animation": False,
                # Not as HTML, since names are what peers said.
                "tooltip": {"renderMode": "richText", "confine": True, "formatter": "{b}\n{c}"},
                "series": [
                    {
                        "type": "graph",
                        "layout": "none",
                        "roam": True,
                        # Names stand below what they name.
                        "top": 16,
                        "bottom": 44,
                        "edgeSymbol": ["none", "arrow"],
                        "edgeSymbolSize": 7,
                        "label": {
                            "show": True,
                            "position": "bottom",
                            "color": _GREY,
                            "width": 150,
                            "overflow": "truncate",
                        },
                        "labelLayout": {"hideOverlap": True},
                        "data": [],
                        "links": [],
                    }
                ],
            },
            on_point_click=self._clicked,
            # Its texts take the colours of the page.
            renderer="svg",
        ).classes("graph")
        self._chart.props('role=img aria-label="Task graph; the table below has the same data" data-graph')

    def show(self, tasks: Sequence[WorkflowTask]) -> Drawn:
        """Draw tasks, in the order of their tree; return how much of them is drawn."""
        drawn = drawn_of(tasks)
        if drawn == self._tasks:
            return self._drawn
        self._tasks = drawn
        found = places(drawn)
        rows = max(place.row for place in found) + 1 if found else 1
        height = min(max(rows * _ROW + 60, _LOWEST), _HIGHEST)
        step = min(_WIDTH / (max((place.column for place in found), default=0) or 1), _MOST_STEP)
        line = (height - 80) / max(rows - 1, 1)
        series: dict[str, Any] = self._chart.options["series"][0]
        series["data"] = [
            _node(number, task, (place.column * step, place.row * line))
            for number, (task, place) in enumerate(zip(drawn, found, strict=True))
        ]
        joined = list(islice(joins(drawn), MOST_JOINS + 1))
        sent = [(place.above, number) for number, place in enumerate(found) if place.above is not None]
        series["links"] = [_edge(drawn, *line) for line in sent]
        series["links"] += [_edge(drawn, *line, is_inferred=True) for line in joined[:MOST_JOINS]]
        self._chart.style(f"height: {height:.0f}px")
        self._chart.update()
        self._drawn = Drawn(len(drawn), bool(joined), len(joined) <= MOST_JOINS)
        return self._drawn

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        if event.data_type == "node" and 0 <= event.data_index < len(self._tasks):
            self._on_choose(self._tasks[event.data_index].uuid)


def places(tasks: Sequence[WorkflowTask]) -> list[Place]:
    """Return where tasks stand that come in the order of their tree: each at the middle of those below."""
    above: list[int | None] = []
    line: list[int] = []
    below: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        del line[task.depth :]
        above.append(line[-1] if line else None)
        if line:
            below[line[-1]].append(number)
        line.append(number)
    rows = [0.0] * len(tasks)
    leaves = sum(not each for each in below)
    # From the last to the first: all below one come after it.
    for number in reversed(range(len(tasks))):
        if below[number]:
            rows[number] = (rows[below[number][0]] + rows[below[number][-1]]) / 2
        else:
            leaves -= 1
            rows[number] = float(leaves)
    return [Place(task.depth, row, each) for task, row, each in zip(tasks, rows, above, strict=True)]


def joins(tasks: Sequence[WorkflowTask]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of tasks that others waited for, and of those, but for what these were sent by."""
    groups: dict[int, list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        if task.group is not None:
            groups[task.group].append(number)
    for number, task in enumerate(tasks):
        for member in groups.get(task.waits_for or 0, ()):
            if tasks[member].uuid != task.parent_id:
                yield member, number


def drawn_of(tasks: Sequence[WorkflowTask]) -> list[WorkflowTask]:
    """Return the tasks to be drawn: those of the critical path, and of the others as many as fit."""
    room = MOST_NODES - min(sum(each.is_critical for each in tasks), MOST_NODES)
    drawn: list[WorkflowTask] = []
    for task in tasks:
        if task.is_critical or room > 0:
            room -= not task.is_critical
            drawn.append(task)
    return drawn[:MOST_NODES]


def _node(number: int, task: WorkflowTask, at: tuple[float, float]) -> dict[str, Any]:
    told = [
        text_of(task.state) or UNKNOWN,
        text_of(task.worker) or UNKNOWN,
        f"run time {format_duration(number_of(task.run))}",
    ]
    return {
        "id": f"n{number}",
        "name": name_text(task.name),
        "value": ", ".join(told),
        "x": at[0],
        "y": at[1],
        "symbolSize": 22 if task.is_critical else 16,
        "itemStyle": {
            "color": _COLOURS.get(task.state or "", _GREY),
            "borderColor": _MARK if task.is_critical else "transparent",
            "borderWidth": 3 if task.is_critical else 0,
        },
    }


def _edge(
    tasks: Sequence[WorkflowTask], above: int, number: int, is_inferred: bool = False
) -> dict[str, Any]:
    is_critical = tasks[above].is_critical and tasks[number].is_critical
    style = {
        "color": _MARK if is_critical else _GREY,
        "width": 3 if is_critical else 1.2,
        "opacity": 0.9,
        "type": "dashed" if is_inferred else "solid",
    }
    return {"source": f"n{above}", "target": f"n{number}", "lineStyle": style}
