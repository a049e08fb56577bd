"""The screen of one task."""

from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from celeriac.tui.cell import RELATIVES, relative_cells
from celeriac.tui.detail import detail_text, detail_title
from celeriac.tui.listing import Listing
from celeriac.tui.screen import Lookout
from celeriac.tui.sight import Sight
from celeriac.tui.wish import RevokeWished, TaskWished, WorkflowWished
from celeriac.tui.workflow import DEEPEST, branches
from celeriac.views.family import FamilyRow
from celeriac.views.task import TaskDetail, task_detail
from celeriac.views.text import visible

__all__ = ["TaskScreen"]

_GONE: Final = "Task not in memory: newer tasks replaced it, or no event of it came yet"
#: The part of the screen that relatives may take.
_RELATIVES_SHARE: Final = 4


class TaskScreen(Lookout):
    """Shows what is known of a task, without secrets; its relatives can be opened."""

    DEFAULT_CSS = """
    #title { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #story { height: 1fr; }
    #detail { height: auto; }
    #relatives { height: 2; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "workflow", "Workflow"),
        Binding("r", "revoke", "Revoke"),
        Binding("p", "parent", "Parent"),
        Binding("tab", "app.focus_next", "Related tasks", key_display="tab"),
    ]

    def __init__(self, sight: Sight, uuid: str) -> None:
        super().__init__(sight)
        self.uuid = uuid
        self._heading = Static(Text(visible(uuid)), id="title", markup=False)
        self._detail = Static(id="detail", markup=False)
        self._relatives = Listing(RELATIVES, cells=relative_cells, key=lambda row: row[1].key, id="relatives")
        self._relatives.display = False
        self._parent_id: str | None = None

    def compose(self) -> ComposeResult:
        """Yield what it is made of, from the top."""
        yield self._heading
        with VerticalScroll(id="story"):
            yield self._detail
        yield self._relatives
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Have keys go to the story."""
        self.query_one("#story").focus()

    def look(self) -> Callable[[], TaskDetail | None]:
        """Ask for one task."""
        state, uuid = self.sight.scene.state, self.uuid
        return lambda: task_detail(state, uuid)

    def present(self, seen: TaskDetail | None) -> None:
        """Show what is known of it."""
        if seen is None:
            self._detail.update(Text(_GONE, style="bold yellow"))
            return
        self._parent_id = None if seen.parent is None else seen.parent.key
        self._heading.update(detail_title(seen))
        self._detail.update(detail_text(seen))
        self._present_relatives(seen.family.rows)

    def _present_relatives(self, rows: list[FamilyRow]) -> None:
        most = max(2, self.size.height // _RELATIVES_SHARE)
        is_first = not self._relatives.rows
        self._relatives.display = len(rows) > 1
        self._relatives.styles.height = min(len(rows) + 1, most)
        leads = branches([min(each.depth, DEEPEST) for each in rows])
        self._relatives.renew(list(zip(leads, rows, strict=True)))
        if is_first:
            self._relatives.choose([each.kin for each in rows].index("self"))

    @on(Listing.Opened, "#relatives")
    def open_relative(self, event: Listing.Opened) -> None:
        """Show a relative."""
        _, relative = event.row
        self._open(relative.key)

    def action_parent(self) -> None:
        """Show the task that sent this one."""
        if self._parent_id is None:
            self.notify("Parent unknown", severity="warning", markup=False)
        else:
            self._open(self._parent_id)

    def _open(self, uuid: str) -> None:
        if uuid == self.uuid:
            return
        if self.sight.scene.state.tasks.get(uuid) is None:
            self.notify(f"{visible(uuid)} is not in memory", severity="warning", markup=False)
        else:
            self.post_message(TaskWished(uuid))

    def action_workflow(self) -> None:
        """Show the workflow it is of."""
        self.post_message(WorkflowWished(self.uuid))

    def action_revoke(self) -> None:
        """Ask whether it is to be revoked."""
        self.post_message(RevokeWished(self.uuid))
