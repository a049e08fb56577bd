"""The screen of a workflow: the tasks that one task brought about, as a tree."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from celeriac.model.answer import WorkflowStory
from celeriac.tui.cell import WORKFLOW, workflow_cells
from celeriac.tui.listing import Listing
from celeriac.tui.screen import Lookout
from celeriac.tui.sight import Sight
from celeriac.tui.wish import RevokeWished, TaskWished
from celeriac.views.live_workflow import live_workflow
from celeriac.views.story import WorkflowRow, workflow_lines, workflow_rows

__all__ = ["DEEPEST", "WorkflowScreen", "branches"]

#: Levels that are set in; those below stand under the last of them.
DEEPEST: Final = 20


class WorkflowScreen(Lookout):
    """Shows the workflow that a task is of; its tasks can be opened."""

    DEFAULT_CSS = """
    #summary { height: auto; }
    #tree { margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "revoke", "Revoke")]

    def __init__(self, sight: Sight, uuid: str) -> None:
        super().__init__(sight)
        self.uuid = uuid
        self._summary = Static(id="summary", markup=False)
        self._tree = Listing(
            WORKFLOW,
            cells=lambda row: workflow_cells(row[1]),
            key=lambda row: str(row[0]),
            empty="No task of this workflow is in memory",
            id="tree",
        )

    def compose(self) -> ComposeResult:
        """Yield what it is made of, from the top."""
        yield self._summary
        yield self._tree
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Have keys go to the tree."""
        self._tree.focus()

    def look(self) -> Callable[[], WorkflowStory | None]:
        """Ask for the workflow."""
        state, uuid = self.sight.scene.state, self.uuid
        return lambda: live_workflow(state, uuid)

    def present(self, seen: WorkflowStory | None) -> None:
        """Show the tree."""
        if seen is None:
            return
        lines = [Text(f"{name:<14}{told}") for name, told in workflow_lines(seen)]
        self._summary.update(Text("\n").join(lines))
        is_first = not self._tree.rows
        self._tree.renew(tree_rows(seen))
        if is_first:
            places = [place for place, (uuid, _) in enumerate(self._tree.rows) if uuid == self.uuid]
            self._tree.choose(places[0] if places else 0)

    @on(Listing.Opened, "#tree")
    def open_task(self, event: Listing.Opened) -> None:
        """Show one of its tasks."""
        self.post_message(TaskWished(event.row[0]))

    def action_revoke(self) -> None:
        """Ask whether the chosen task is to be revoked."""
        chosen = self._tree.chosen
        if chosen is not None:
            self.post_message(RevokeWished(chosen[0]))


def tree_rows(story: WorkflowStory) -> list[tuple[str, tuple[str, WorkflowRow]]]:
    """Return the id of each task, the branch that leads to it, and what is told of it."""
    depths = [min(each.depth, DEEPEST) for each in story.tasks]
    # The rows are set in by blanks; here branches do that.
    rows = [
        row._replace(task=row.task[2 * depth :])
        for row, depth in zip(workflow_rows(story), depths, strict=True)
    ]
    ids = [each.uuid for each in story.tasks]
    return list(zip(ids, zip(branches(depths), rows, strict=True), strict=True))


def branches(depths: Sequence[int]) -> list[str]:
    """Return the lines that lead to each row of a tree, of which the depths are given from the top."""
    found: list[str] = []
    # From the end, so that it is known of each level whether another row of it follows.
    following: set[int] = set()
    for depth in reversed(depths):
        lead = "".join("│ " if level in following else "  " for level in range(1, depth))
        found.append(lead + ("" if depth == 0 else "├─" if depth in following else "└─"))
        following = {level for level in following if level < depth} | {depth}
    return found[::-1]
