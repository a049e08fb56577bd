"""``/workflows/<id>``: the tasks that one task brought about, as a graph and as a table."""

from typing import Final

from fastapi import Request
from nicegui import ui

from celeriac.model.answer import WorkflowStory, WorkflowTask
from celeriac.views.cell import name_text, number_of, text_of
from celeriac.views.format import UNKNOWN, format_count, format_duration, format_timestamp
from celeriac.views.live_workflow import live_workflow
from celeriac.views.story import INFERRED_NOTE, KINDS_NOTE, kind_texts
from celeriac.views.text import visible
from celeriac.web.pages.frame import frame
from celeriac.web.pages.from_tables import FromTables, Told
from celeriac.web.pages.graph import Drawn, WorkflowGraph
from celeriac.web.pages.part import Tile, columns, empty, section, state_class, table
from celeriac.web.pages.visit import Visit, name_of, path_of

__all__ = ["workflow_page"]

#: Seconds between two looks: a large workflow takes a while to put together.
_EVERY: Final = 2.0
#: The most rows of the table.
_ROWS: Final = 1000
_MOST_DEPTH: Final = 20
_MOST_STATES: Final = 12
_COLUMNS: Final = columns(
    ("name", "Task"),
    ("state", "State"),
    ("worker", "Worker"),
    ("began", "Started after", "right"),
    ("run", "Run time", "right"),
    ("critical", "Critical path"),
    ("kind", "Type"),
    ("id", "ID"),
)
_TILES: Final = {
    "size": "Tasks",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "open": "Open",
    "took": "Total duration",
    "critical": "Critical path run time",
}


@ui.page("/workflows/{uuid:path}")
def workflow_page(request: Request, uuid: str, at: float | None = None) -> None:
    """Show the workflow that a task is of."""
    uuid = name_of(uuid)
    with frame(request, "Workflow", at) as visit:
        page = _WorkflowPage(visit, uuid)
        visit.keep(page.load, page.show, every=_EVERY)


class _WorkflowPage:
    def __init__(self, visit: Visit, uuid: str) -> None:
        self._visit = visit
        self._uuid = uuid
        self._tables: FromTables[WorkflowStory] = FromTables(visit, lambda tables: tables.workflow(uuid))
        with ui.element("div").classes("title-row"):
            self._name = ui.label().classes("task-name wrap").props("data-name")
            self._origin = ui.label().classes("faint").props("data-origin")
        self._none = empty("", mark="workflow")
        self._none.set_visibility(False)
        with ui.element("div") as self._body:
            with ui.element("div").classes("tiles"):
                self._tiles = {mark: Tile(meaning, mark=mark) for mark, meaning in _TILES.items()}
            with section("Task graph"):
                self._graph = WorkflowGraph(self._go)
                self._legend = ui.element("div").classes("row-gap").props("data-legend")
                self._states: list[str] = []
                self._drawn = ui.label().classes("faint").props("data-drawn")
                self._kinds = ui.label().classes("faint").props("data-kinds")
            with section("Tasks"):
                self._table = table(
                    _COLUMNS, label="Workflow tasks", key="key", links=("id",), states=("state",)
                )
                self._listed = ui.label().classes("faint").props("data-listed")
        self._body.set_visibility(False)

    def load(self) -> Told[WorkflowStory]:
        """Put it together; in a thread."""
        story = live_workflow(self._visit.sight().scene.state, self._uuid)
        return self._tables.look() if story is None else Told(story, is_in_memory=True)

    def show(self, told: Told[WorkflowStory]) -> None:
        """Show it, or why it cannot be shown."""
        story = told.story
        self._body.set_visibility(story is not None)
        self._none.set_visibility(story is None)
        if story is None:
            self._name.set_text(visible(self._uuid, 120))
            self._origin.set_text("")
            self._none.set_text(f"Task not in memory. {told.reason}")
            return
        self._name.set_text(f"{name_text(story.name)} {text_of(story.root_id)}")
        self._origin.set_text(_origin(story, is_in_memory=told.is_in_memory))
        self._show_tiles(story)
        drawn = self._graph.show(story.tasks)
        self._drawn.set_text(_drawn(story, drawn))
        self._kinds.set_text(_kinds(story, drawn))
        self._show_legend(story)
        kinds = kind_texts(story.tasks)
        rows = [
            self._row(number, each, story.begin_at) | {"kind": kinds[number]}
            for number, each in enumerate(story.tasks[:_ROWS])
        ]
        if rows != self._table.rows:
            self._table.rows = rows
        listed = f"First {format_count(_ROWS)} of {format_count(len(story.tasks))} tasks."
        self._listed.set_text(listed if len(story.tasks) > _ROWS else "")

    def _show_tiles(self, story: WorkflowStory) -> None:
        more = "+" if story.is_cut and story.size == len(story.tasks) else ""
        self._tiles["size"].show(format_count(story.size) + more)
        self._tiles["succeeded"].show(format_count(story.succeeded) + more)
        self._tiles["failed"].show(format_count(story.failed) + more, is_bad=story.failed > 0)
        self._tiles["open"].show(format_count(story.open) + more)
        self._tiles["took"].show(format_duration(story.makespan))
        self._tiles["critical"].show(format_duration(story.critical_run))

    def _show_legend(self, story: WorkflowStory) -> None:
        states = sorted({text_of(each.state) or UNKNOWN for each in story.tasks})[:_MOST_STATES]
        if states == self._states:
            return
        self._states = states
        self._legend.clear()
        with self._legend:
            for state in states:
                ui.label(f"● {state}").classes(state_class(state))

    def _row(self, number: int, task: WorkflowTask, begin_at: float | None) -> dict[str, object]:
        began = None if task.begin_at is None or begin_at is None else number_of(task.begin_at - begin_at)
        return {
            "key": number,
            # A browser would leave out other spaces.
            "name": "\u00a0" * 4 * min(task.depth, _MOST_DEPTH) + name_text(task.name),
            "state": text_of(task.state) or UNKNOWN,
            "state_class": state_class(task.state),
            "worker": text_of(task.worker) or UNKNOWN,
            "began": format_duration(began),
            "run": format_duration(number_of(task.run)),
            "critical": "yes" if task.is_critical else "",
            "id": text_of(task.uuid),
            "id_to": self._visit.link(path_of("tasks", task.uuid)),
        }

    def _go(self, uuid: str) -> None:
        ui.navigate.to(self._visit.link(path_of("tasks", uuid)))


def _origin(story: WorkflowStory, *, is_in_memory: bool) -> str:
    told = [f"Started {format_timestamp(story.begin_at)}."]
    if not is_in_memory:
        told.append("From the history tables: the workflow is no longer in memory.")
    if story.is_cut:
        told.append(f"Shows the first {format_count(len(story.tasks))} tasks of more.")
    return " ".join(told)


def _drawn(story: WorkflowStory, drawn: Drawn) -> str:
    told = ["Thick lines: critical path, the chain of tasks that ended last."]
    if story.critical_path is None:
        told = ["Too many tasks to compute the critical path."]
    if drawn.tasks < len(story.tasks):
        told.append(f"The graph shows {format_count(drawn.tasks)} of {format_count(story.size)} tasks.")
    return " ".join(told)


def _kinds(story: WorkflowStory, drawn: Drawn) -> str:
    """Say what is known of chains, groups and chords, and what is not."""
    if story.is_cut:
        return "Chains, groups and chords are not identified, because some tasks are missing."
    told = [KINDS_NOTE]
    if drawn.has_joins:
        told.append(f"{INFERRED_NOTE} Dashed lines lead to it from the tasks that it waited for.")
    if not drawn.has_all_joins:
        told.append("Some dashed lines are left out.")
    return " ".join(told)
