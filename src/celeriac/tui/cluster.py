"""The first screen: the cluster in a few numbers, its workers, and its tasks a page at a time."""

from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from celeriac.tui.cell import TASKS, WORKERS, task_cells, worker_cells
from celeriac.tui.heading import place_line, total_lines
from celeriac.tui.listing import Listing
from celeriac.tui.query import read_query
from celeriac.tui.screen import Lookout
from celeriac.tui.sight import Sight
from celeriac.tui.wish import RevokeWished, TaskWished, WorkflowWished
from celeriac.views.overview import Overview, overview
from celeriac.views.task_list import MAX_PAGE, TaskFilter, TaskPage, task_page
from celeriac.views.worker import LiveWorker

__all__ = ["ClusterScreen"]

_HINT: Final = "text, state:FAILURE, name:shop.*, worker:w1@*, since:-1h; Enter keeps it, Escape clears it"
_NO_TASKS: Final = "No tasks yet. Turn on task events: celeriac control enable-events"
_NO_FIT: Final = "No task in memory matches the search"
#: The part of the screen that workers may take.
_WORKERS_SHARE: Final = 4


class _Seen(NamedTuple):
    as_of: float
    workers: list[LiveWorker]
    totals: Overview
    wanted: TaskFilter
    page: TaskPage


def _look(sight: Sight, query: str, *, before: int | None, limit: int) -> _Seen:
    as_of, workers = sight.as_of, sight.workers()
    totals = overview(sight.scene, as_of=as_of, workers=workers)
    # Read each time: an hour ago is not what it was when it was typed.
    wanted = read_query(query, now=as_of)
    page = task_page(sight.scene.state, wanted, before=before, limit=limit)
    return _Seen(as_of, workers, totals, wanted, page)


class ClusterScreen(Lookout):
    """Shows a cluster; Enter opens a task."""

    DEFAULT_CSS = """
    #place, #totals { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    #search { height: 1; border: none; padding: 0; background: $boost; }
    #workers { margin-top: 1; height: 2; }
    #tasks { margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # Before all others: what is typed right after it belongs into the box, and quits and revokes nothing.
        Binding("slash", "search", "Search", key_display="/", priority=True),
        Binding("w", "workflow", "Workflow"),
        Binding("r", "revoke", "Revoke"),
        Binding("escape", "back", "Clear", show=False),
    ]

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._place = Static(id="place", markup=False)
        self._totals = Static(id="totals", markup=False)
        self._box = Input(placeholder=_HINT, id="search", select_on_focus=False)
        self._box.display = False
        self._workers = Listing(
            WORKERS, cells=worker_cells, key=lambda row: row.key, empty="No workers", id="workers"
        )
        self._tasks = Listing(
            TASKS, cells=task_cells, key=lambda row: row.key, empty=_NO_TASKS, is_part=True, id="tasks"
        )
        self._query = ""
        #: Where each page begins that was turned to; the last is shown.
        self._pages: list[int | None] = [None]
        self._next: int | None = None
        self._as_of: float | None = None
        self._is_paused = False

    def compose(self) -> ComposeResult:
        """Yield what it is made of, from the top."""
        yield from (self._place, self._totals, self._workers, self._box, self._tasks)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Have keys go to the tasks."""
        self._tasks.focus()

    # -- looking

    def look(self) -> Callable[[], _Seen]:
        """Ask for the page that is shown, and no more of the tasks than there is room for."""
        sight, query = self.sight, self._query
        before, limit = self._pages[-1], min(self._tasks.room, MAX_PAGE)
        return lambda: _look(sight, query, before=before, limit=limit)

    def present(self, seen: _Seen) -> None:
        """Show what was seen."""
        self._as_of, self._next = seen.as_of, seen.page.next
        self._present_place()
        self._totals.update(total_lines(seen.totals))
        most = max(2, self.size.height // _WORKERS_SHARE)
        self._workers.styles.height = min(len(seen.workers) + 1, most) if seen.workers else 1
        self._workers.renew(seen.workers)
        self._tasks.empty = _NO_TASKS if seen.wanted == TaskFilter() else _NO_FIT
        self._tasks.renew(seen.page.tasks)

    def pause(self, is_paused: bool) -> None:
        """Say that all stands still, or that it goes on."""
        self._is_paused = is_paused
        self._present_place()

    def _present_place(self) -> None:
        line = place_line(self.sight, as_of=self._as_of, is_paused=self._is_paused)
        if len(self._pages) > 1:
            line.append(f"  page {len(self._pages)}", style="bold")
        self._place.update(line)

    def on_resize(self) -> None:
        """Fill what room there is now."""
        self.renew()

    # -- searching

    def action_search(self) -> None:
        """Open the search box."""
        self._box.display = True
        self.set_focus(self._box)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the key of the search to the box itself while that is open for typing."""
        if action == "search":
            return self.focused is not self._box
        return super().check_action(action, parameters)

    @on(Input.Changed, "#search")
    def narrow(self, event: Input.Changed) -> None:
        """Show the tasks that fit what is typed."""
        now = self.sight.as_of
        before, self._query = read_query(self._query, now=now), event.value
        if read_query(self._query, now=now) != before:
            self._turn_to_first()

    @on(Input.Submitted, "#search")
    def keep_search(self) -> None:
        """Go to the tasks that were found."""
        self._tasks.focus()
        self._show_box()

    def action_back(self) -> None:
        """Clear the search, and go to the tasks."""
        self._box.value = ""
        self._tasks.focus()
        self._show_box()

    def _show_box(self) -> None:
        self._box.display = bool(self._box.value)

    # -- turning pages

    @on(Listing.Beyond, "#tasks")
    def turn(self, event: Listing.Beyond) -> None:
        """Show the page after, before, or the first."""
        if event.step > 0 and self._next is not None:
            self._pages.append(self._next)
            self._next = None  # until it is known what follows that page
            self._tasks.let_go()
            self.renew()
        elif event.step > 0:
            self._tasks.action_last()
        elif event.step < 0 and len(self._pages) > 1:
            self._pages.pop()
            self._tasks.action_last()
            self.renew()
        else:
            self._turn_to_first()

    def _turn_to_first(self) -> None:
        self._pages = [None]
        self._tasks.let_go()
        self.renew()

    # -- what is done about a row

    @on(Listing.Opened, "#tasks")
    def open_task(self, event: Listing.Opened) -> None:
        """Show one task."""
        self.post_message(TaskWished(event.row.key))

    @on(Listing.Opened, "#workers")
    def search_worker(self, event: Listing.Opened) -> None:
        """Show the tasks of one worker."""
        self._box.value = f'worker:"{_literal(event.row.name)}"'
        self._tasks.focus()
        self._show_box()

    def action_workflow(self) -> None:
        """Show the workflow of the chosen task."""
        if self._tasks.chosen is not None:
            self.post_message(WorkflowWished(self._tasks.chosen.key))

    def action_revoke(self) -> None:
        """Ask whether the chosen task is to be revoked."""
        if self._tasks.chosen is not None:
            self.post_message(RevokeWished(self._tasks.chosen.key))


def _literal(name: str) -> str:
    """Return a glob that only a name fits; for a quote, which a query cannot hold, any character does."""
    return "".join(f"[{char}]" if char in "*?[" else "?" if char == '"' else char for char in name)
