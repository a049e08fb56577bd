"""The program on the terminal: it has the screens, and does what is asked for on them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from celeriac.core.task import Task
from celeriac.errors import CeleriacError
from celeriac.node.stop_signals import stop_numbers
from celeriac.tui.cluster import ClusterScreen
from celeriac.tui.question import HelpScreen, Question
from celeriac.tui.screen import Lookout
from celeriac.tui.sight import Sight
from celeriac.tui.task import TaskScreen
from celeriac.tui.wish import RevokeWished, TaskWished, WorkflowWished
from celeriac.tui.workflow import WorkflowScreen
from celeriac.views.log import count_text
from celeriac.views.text import visible

__all__ = ["Revoke", "Top"]

#: Has a task revoked, and returns what workers answered.
Revoke = Callable[[str], Sequence[object] | None]

#: How often what is shown is renewed: quick enough for people, and nothing beside the work of a receiver.
_PAUSE: Final = 0.5
#: Notices that wait to be shown; in a flood the last ones tell as much as all.
_MOST_NOTICES: Final = 2
_NOT_ALLOWED: Final = "Read-only: start celeriac top with --allow-control"
_PAST: Final = "An event log is shown: nothing to revoke"


class Top(App[None]):
    """Shows a sight until somebody quits, or until no more can come of it.

    ``revoke`` is what can be done to a task; without it nothing can.
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "celeriac top"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, sight: Sight, *, revoke: Revoke | None = None) -> None:
        super().__init__()
        self.is_paused = False
        #: What went wrong within the program itself, if something did.
        self.fault: Exception | None = None
        self._sight = sight
        self._revoke = revoke
        self._notices: deque[str] = deque(maxlen=_MOST_NOTICES)

    def get_default_screen(self) -> Screen[Any]:
        """Return the first screen."""
        return ClusterScreen(self._sight)

    def on_mount(self) -> None:
        """Look at the sight from now on, and end as told by signals too."""
        self.set_interval(_PAUSE, self._tick)
        # Only the main thread can be told by signals.
        with suppress(ValueError, RuntimeError):
            for number in stop_numbers():
                asyncio.get_running_loop().add_signal_handler(number, self.exit)

    def tell(self, message: str) -> None:
        """Show a notice soon. Any thread may call it."""
        self._notices.append(visible(message))

    def _tick(self) -> None:
        try:
            self._sight.check()
        except BaseException:  # noqa: BLE001  (who runs us checks again, with a terminal to tell it on)
            self.exit()
            return
        while self._notices:
            self._warn(self._notices.popleft())
        # The timer may fire once more after the app has closed its screens.
        if not self.is_paused and self.screen_stack and isinstance(self.screen, Lookout):
            self.screen.tick()

    def _warn(self, message: str) -> None:
        self.notify(message, severity="warning", markup=False)

    def _fatal_error(self) -> None:
        """End. Textual's own way prints the values of all variables, and secrets may be among them."""
        self.fault = self._exception
        self._close_messages_no_wait()

    # -- what keys do

    def action_pause(self) -> None:
        """Have all stand still, or go on."""
        self.is_paused = not self.is_paused
        self._sight.hold(self.is_paused)
        first = self.screen_stack[0]
        if isinstance(first, ClusterScreen):
            first.pause(self.is_paused)
        if self.screen is not first:
            self.notify("paused" if self.is_paused else "live", markup=False)

    def action_help(self) -> None:
        """Show which keys there are."""
        self.push_screen(HelpScreen())

    # -- what screens wish

    def on_top_task_wished(self, wish: TaskWished) -> None:
        """Show a task."""
        self.push_screen(TaskScreen(self._sight, wish.uuid))

    def on_top_workflow_wished(self, wish: WorkflowWished) -> None:
        """Show a workflow."""
        self.push_screen(WorkflowScreen(self._sight, wish.uuid))

    def on_top_revoke_wished(self, wish: RevokeWished) -> None:
        """Ask whether a task is to be revoked, if it can be."""
        task = self._sight.scene.state.tasks.get(wish.uuid)
        obstacle = self._obstacle(task)
        if obstacle is not None or task is None:
            self._warn(obstacle or "")
            return
        name = visible(task.name or "(unknown)", 120)
        question = (
            f"Revoke {name}\n{visible(task.uuid, 120)}\n\n"
            "Workers will skip this task. A task that is already running is not stopped."
        )
        self.push_screen(Question(question), partial(self._answered, task.uuid))

    def _obstacle(self, task: Task | None) -> str | None:
        """Return why a task cannot be revoked."""
        if not self._sight.is_live:
            return _PAST
        if self._revoke is None:
            return _NOT_ALLOWED
        if task is None:
            return "The task is not in memory"
        return f"The task has ended: {visible(task.state, 40)}" if task.ready else None

    def _answered(self, uuid: str, is_yes: bool | None) -> None:
        if is_yes and self._revoke is not None:
            self.run_worker(self._have_revoked(uuid, self._revoke))

    async def _have_revoked(self, uuid: str, revoke: Revoke) -> None:
        try:
            answers = await asyncio.to_thread(revoke, uuid)
        except CeleriacError as error:
            self.notify(visible(f"not revoked: {error}"), severity="error", markup=False)
            return
        told = count_text(len(answers), "worker") if answers else "no worker"
        self.notify(f"revoked {visible(uuid, 120)}; {told} answered", markup=False)
