"""``/tasks``: the tasks in memory, heard of last first, and what can be done to them."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from time import monotonic, time
from typing import Any, Final, NamedTuple

from fastapi import Request
from nicegui import ui

from celeriac.model.states import BUILT_IN_STATES
from celeriac.node.scene import Scene
from celeriac.views.alert import NO_TASKS
from celeriac.views.format import UNKNOWN, format_count, format_duration, format_time, format_timestamp
from celeriac.views.task_list import ListedTask, TaskPage, task_page
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import columns, empty, state_class, table
from celeriac.web.pages.saved_views import SavedViews
from celeriac.web.pages.task_action import Chosen, action_buttons, action_hint
from celeriac.web.pages.task_filter import FilterBar
from celeriac.web.pages.task_query import TaskQuery
from celeriac.web.pages.visit import Visit, path_of

__all__ = ["PAGE_ROWS", "format_row", "tasks_page"]

PAGE_ROWS: Final = 100
#: After a look that took long, so many times as long is waited until the next: others want to be served too.
_REST: Final = 4
_MOST_OWN_STATES: Final = 20
#: The time of a day is enough for what was less than this ago.
_RECENT: Final = 20 * 3600.0
_COLUMNS: Final = columns(
    ("state", "State"),
    ("name", "Name"),
    ("id", "ID"),
    ("worker", "Worker"),
    ("received", "Received (UTC)"),
    ("runtime", "Run time", "right"),
    ("attempts", "Attempts", "right"),
    ("args", "Arguments"),
    ("outcome", "Outcome"),
)
#: Boxes to choose rows by; a name for each, since there is no text beside them.
_CHOOSE_ALL: Final = '<q-checkbox dense v-model="props.selected" aria-label="Select all on this page" />'
_CHOOSE: Final = """
<q-checkbox dense v-model="props.selected" :aria-label="'Select ' + props.row.id" />
"""


@ui.page("/tasks")
def tasks_page(request: Request, at: float | None = None) -> None:
    """Show the tasks that are asked for."""
    with frame(request, "Tasks", at) as visit:
        page = _TasksPage(visit)
        page.refresh = visit.keep(page.load, page.show)


class _Seen(NamedTuple):
    """What there is to show."""

    total: int
    #: The states that tasks made up themselves.
    states: list[str]
    as_of: float
    #: None if what is shown stays.
    page: TaskPage | None = None
    #: What it was asked for with.
    asked: tuple[TaskQuery, int | None] | None = None


class _TasksPage:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self.refresh: Callable[[], Awaitable[None]]
        self._before: int | None = None
        self._next: int | None = None
        self._number = 1
        self._is_due = True
        self._rest_until = 0.0
        self._rows = _Numbers()
        self._bar = FilterBar(TaskQuery.read(visit.query), self._changed)
        with ui.element("div").classes("row-gap views"):
            self._views = SavedViews(lambda: self._bar.query, self._bar.show)
            ui.element("div").classes("space")
            self._total = ui.label().classes("faint").props("data-total")
        with ui.element("section").classes("panel").props('aria-label="Matching tasks"'):
            self._make_head()
            self._table = table(
                _COLUMNS,
                label="Tasks",
                key="key",
                links=("id", "worker"),
                states=("state",),
                selection="multiple" if visit.may_act else None,
            )
            self._table.add_slot("header-selection", _CHOOSE_ALL)
            self._table.add_slot("body-selection", _CHOOSE)
            self._table.on_select(self._choose)
            self._none = self._make_empty()
        self._arrange()

    def _make_head(self) -> None:
        with ui.element("div").classes("row-gap table-head"):
            self._follow = ui.label("Loading…").classes("follow").props("role=status data-follow")
            ui.element("div").classes("space")
            self._all: ui.checkbox | None = None
            self._actions: list[ui.button] = []
            if self._visit.may_act:
                self._all = ui.checkbox("Select all matching", on_change=self._arrange)
                self._all.props("dense data-all").classes("all-that-fit")
                self._actions = action_buttons(self._visit, self._chosen, self._acted)
            else:
                action_hint(self._visit)
            self._newest = ui.button("Newest", on_click=self._to_newest)
            self._newest.props("flat dense no-caps data-newest").classes("quiet")
            self._older = ui.button("Older", on_click=self._to_older)
            self._older.props("flat dense no-caps data-older").classes("quiet")

    def _make_empty(self) -> ui.element:
        with ui.element("div") as made:
            self._why_none = empty("", mark="tasks")
            self._widen = ui.button("Clear filter", on_click=self._bar.clear)
            self._widen.props("flat dense no-caps data-widen").classes("quiet")
        made.set_visibility(False)
        return made

    # -- what is looked at

    @property
    def _is_paused(self) -> bool:
        return self._before is not None or bool(self._table.selected)

    @property
    def _asked(self) -> tuple[TaskQuery, int | None]:
        return self._bar.query, self._before

    def load(self) -> _Seen:
        """Look for what is asked for; in a thread."""
        sight = self._visit.sight()
        state = sight.scene.state
        total, states = state.freeze_while(_counted, sight.scene)
        if not self._is_due and (self._is_paused or monotonic() < self._rest_until):
            return _Seen(total, states, sight.as_of)
        self._is_due = False
        began_at = monotonic()
        query, before = asked = self._asked
        found = task_page(state, query.wanted(sight.as_of), before=before, limit=PAGE_ROWS)
        ended_at = monotonic()
        self._rest_until = ended_at + _REST * (ended_at - began_at)
        return _Seen(total, states, sight.as_of, found, asked)

    def show(self, seen: _Seen) -> None:
        """Show what was found."""
        self._total.set_text(f"{format_count(seen.total)} tasks in memory")
        self._bar.offer(seen.states)
        # What was asked for may be something else by now, and is on its way.
        if seen.page is not None and seen.asked == self._asked:
            self._next = seen.page.next
            numbers = self._rows.of([task.key for task in seen.page.tasks], kept=self._table.selected)
            rows = [
                {"key": number, **format_row(self._visit, task, seen.as_of)}
                for number, task in zip(numbers, seen.page.tasks, strict=True)
            ]
            if rows != self._table.rows:
                self._table.rows = rows
            self._show_empty(seen, is_empty=not rows)
        self._arrange()

    def _show_empty(self, seen: _Seen, *, is_empty: bool) -> None:
        self._table.set_visibility(not is_empty)
        self._none.set_visibility(is_empty)
        self._widen.set_visibility(bool(seen.total))
        if seen.total:
            text = "No matching tasks. Widen the filter."
        elif self._visit.is_live:
            text = NO_TASKS
        else:
            text = "No tasks in the hour before this time. Choose another time."
        self._why_none.set_text(text)

    def _arrange(self, _: Any = None) -> None:
        chosen = len(self._table.selected)
        if self._before is not None:
            told = f"Page {self._number} (live updates paused)"
        elif chosen:
            told = f"Paused: {chosen} selected"
        else:
            told = "Live" if self._visit.is_live else ""
        if self._follow.text != told and not self._is_due:
            self._follow.set_text(told)
        self._newest.set_visibility(self._before is not None)
        self._older.set_enabled(self._next is not None)
        if self._all is not None:
            # All tasks there are is more than anyone means.
            self._all.set_enabled(self._bar.query != TaskQuery())
            for button in self._actions:
                button.set_enabled(bool(chosen or self._is_all))

    # -- what people do

    def _choose(self, _: Any) -> None:
        # A browser may send anything as a row, and any number of them.
        numbers = self._rows.numbers(self._table.selected) if self._visit.may_act else []
        self._table.selected = [{"key": number} for number in numbers]
        self._arrange()

    async def _changed(self) -> None:
        query = self._bar.query
        self._visit.asked(query.asked)
        self._views.compare()
        if self._all is not None:
            self._all.set_value(False)
        await self._go(None, 1)

    async def _to_newest(self) -> None:
        await self._go(None, 1)

    async def _to_older(self) -> None:
        # What comes next is not known while a page is on its way: somebody clicked twice.
        if self._next is not None:
            await self._go(self._next, self._number + 1)

    async def _go(self, before: int | None, number: int) -> None:
        self._before, self._number, self._next = before, number, None
        self._is_due = True
        self._table.selected = []
        await self.refresh()

    @property
    def _is_all(self) -> bool:
        return self._all is not None and bool(self._all.value) and self._bar.query != TaskQuery()

    def _chosen(self) -> Chosen:
        if self._is_all:
            return self._bar.query.wanted(time())
        return self._rows.ids(self._table.selected)

    async def _acted(self) -> None:
        await self._go(self._before, self._number)


class _Numbers:
    """Numbers that rows are known by in a browser. What it sends back names a task by nothing else."""

    def __init__(self) -> None:
        self._count = count()
        self._ids: dict[int, str] = {}

    def of(self, ids: Sequence[str], *, kept: Sequence[Any]) -> list[int]:
        """Return the numbers of tasks: a task keeps its own while it is shown or among rows that are kept."""
        numbers = {uuid: number for number, uuid in self._ids.items()}
        shown = [numbers[each] if each in numbers else next(self._count) for each in ids]
        still = {uuid: numbers[uuid] for uuid in self.ids(kept)}
        self._ids = {number: uuid for uuid, number in still.items()} | dict(zip(shown, ids, strict=True))
        return shown

    def numbers(self, rows: Sequence[Any]) -> list[int]:
        """Return the numbers of rows, each once, but for what is no row of ours."""
        told = [row.get("key") if isinstance(row, dict) else None for row in rows]
        return list(dict.fromkeys(each for each in told if isinstance(each, int) and each in self._ids))

    def ids(self, rows: Sequence[Any]) -> list[str]:
        """Return the ids of the tasks of rows."""
        return [self._ids[number] for number in self.numbers(rows)]


def _counted(scene: Scene) -> tuple[int, list[str]]:
    counts = scene.tally.by_state
    return sum(counts.values()), sorted(counts.keys() - BUILT_IN_STATES)[:_MOST_OWN_STATES]


def format_row(visit: Visit, task: ListedTask, as_of: float) -> dict[str, object]:
    """Return a task as a row of the table; a browser sends it back when it is chosen."""
    at = task.received_at
    is_recent = at is not None and abs(as_of - at) < _RECENT
    return {
        "id": task.uuid,
        "id_to": visit.link(path_of("tasks", task.key)),
        "state": task.state,
        "state_class": state_class(task.state),
        "name": task.name or UNKNOWN,
        "worker": task.worker or UNKNOWN,
        "worker_to": visit.link(path_of("workers", task.worker_key)) if task.worker_key else None,
        "received": format_time(at) if is_recent else format_timestamp(at),
        "runtime": format_duration(task.runtime),
        "attempts": format_count(task.attempts),
        "args": " ".join(each for each in (task.args, task.kwargs) if each not in (None, "()", "{}")),
        "outcome": task.outcome or "",
    }
