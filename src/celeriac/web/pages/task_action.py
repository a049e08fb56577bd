"""What can be done to tasks by buttons: skip them, stop them, send them once more."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nicegui import ui

from celeriac.errors import CallerError
from celeriac.views.task_list import TaskFilter
from celeriac.web.access import User
from celeriac.web.action import Actions, Done
from celeriac.web.pages.confirm import Order, confirm
from celeriac.web.pages.visit import Visit

__all__ = ["Chosen", "action_buttons", "action_hint"]

#: Which tasks are meant: those that are named, or those that fit.
Chosen = Sequence[str] | TaskFilter
_ACTIONS: Final = {
    "Revoke": "Revoke: workers skip them if they have not begun",
    "Terminate": "Terminate: workers skip them, and stop those that have begun",
    "Retry": "Retry: send them once more, each under a new id",
}


def action_buttons(
    visit: Visit, chosen: Callable[[], Chosen], then: Callable[[], Awaitable[None]]
) -> list[ui.button]:
    """Make a button for each action; ``then`` follows what was done, or was not."""
    return [_button(visit, name, chosen, then) for name in _ACTIONS]


def action_hint(visit: Visit) -> None:
    """Say why there are no buttons."""
    if not visit.is_live:
        text = "Nobody can change the past: go back to live to act."
    elif visit.desk.actions is None:
        text = "Actions are off: start it with --allow-control."
    else:
        text = "You may look, and not act: that takes an operator."
    ui.label(text).classes("faint").props("data-no-actions")


def _button(
    visit: Visit, name: str, chosen: Callable[[], Chosen], then: Callable[[], Awaitable[None]]
) -> ui.button:
    async def act() -> None:
        await confirm(visit, _ACTIONS[name], _order(name, chosen()), is_dangerous=name != "Retry")
        await then()

    button = ui.button(name, on_click=act).props(f"flat dense no-caps data-action={name.lower()}")
    return button.classes("quiet" if name == "Retry" else "danger")


def _order(name: str, chosen: Chosen) -> Order:
    # Those that fit are found once: what is confirmed is what is done, whatever comes in between.
    ids: list[str] = [] if isinstance(chosen, TaskFilter) else list(chosen)

    def order(actions: Actions, user: User, dry_run: bool) -> Done:
        if isinstance(chosen, TaskFilter) and not ids:
            if chosen == TaskFilter():
                raise CallerError("a filter says at least one thing: or every task would be meant")
            ids.extend(task.uuid for task in actions.chosen((), chosen))
        if not ids:
            raise CallerError("no task is meant: choose some")
        if name == "Retry":
            return actions.retry(user, ids, dry_run=dry_run)
        return actions.revoke(user, ids, terminate=name == "Terminate", dry_run=dry_run)

    return order
