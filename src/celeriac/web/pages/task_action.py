"""What can be done to tasks by buttons: skip them, stop them, send them once more."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from celeriac.errors import CallerError
from celeriac.views.log import count_text
from celeriac.views.task_list import TaskFilter
from celeriac.web.access import User
from celeriac.web.action import Actions, Done
from celeriac.web.pages.confirm import Order, confirm
from celeriac.web.pages.visit import Visit
from celeriac.web.resend import Plan

__all__ = ["Chosen", "action_buttons", "action_hint"]

#: Which tasks are meant: those that are named, or those that fit.
Chosen = Sequence[str] | TaskFilter
_ACTIONS: Final = {
    "Revoke": "Revoke: workers skip tasks that have not started",
    "Terminate": "Terminate: workers skip waiting tasks and stop running ones",
    "Retry": "Retry: send finished tasks again, each with a new ID",
}


def action_buttons(
    visit: Visit, chosen: Callable[[], Chosen], then: Callable[[], Awaitable[None]]
) -> list[ui.button]:
    """Make a button for each action; ``then`` follows what was done, or was not."""
    return [_button(visit, name, chosen, then) for name in _ACTIONS]


def action_hint(visit: Visit) -> None:
    """Say why there are no buttons."""
    if not visit.is_live:
        text = "Actions are not available for past times. Go back to live."
    elif visit.desk.actions is None:
        text = "Read-only. To enable actions, restart with --allow-control."
    else:
        text = "View-only access. Ask an operator."
    ui.label(text).classes("faint").props("data-no-actions")


def _button(
    visit: Visit, name: str, chosen: Callable[[], Chosen], then: Callable[[], Awaitable[None]]
) -> ui.button:
    def effect(would: Done) -> str:
        return f"{name} {count_text(len(would.targets), 'task')}"

    async def act() -> None:
        picked = _Picked(chosen())
        if name == "Retry":
            retry = _Retry(picked)
            await confirm(visit, _ACTIONS[name], retry, effect, is_dangerous=False, fields=retry.make_field)
        else:
            await confirm(visit, _ACTIONS[name], _revoke(picked, terminate=name == "Terminate"), effect)
        await then()

    button = ui.button(name, on_click=act).props(f"flat dense no-caps data-action={name.lower()}")
    return button.classes("quiet" if name == "Retry" else "danger")


class _Picked:
    """The ids of tasks. Those that fit are found once: what is confirmed is what is done, whatever comes."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._ids: list[str] = []

    def ids(self, actions: Actions) -> list[str]:
        """Return them. Raises CallerError if there are none."""
        if self._ids:
            return self._ids
        if not isinstance(self._chosen, TaskFilter):
            self._ids = list(self._chosen)
        elif self._chosen == TaskFilter():
            raise CallerError("Empty filter. Set at least one field, or every task would match.")
        else:
            self._ids = [task.uuid for task in actions.chosen((), self._chosen)]
        if not self._ids:
            raise CallerError("No tasks selected.")
        return self._ids


def _revoke(picked: _Picked, *, terminate: bool) -> Order:
    def order(actions: Actions, user: User, dry_run: bool) -> Done:
        return actions.revoke(user, picked.ids(actions), terminate=terminate, dry_run=dry_run)

    return order


class _Retry:
    """Sends tasks once more: those that could be when it was asked last, to the queues that were shown."""

    def __init__(self, picked: _Picked) -> None:
        self._picked = picked
        self._queue: str | None = None
        self._plans: dict[str | None, Plan] = {}

    def __call__(self, actions: Actions, user: User, dry_run: bool) -> Done:
        """Send them, or look which can be sent."""
        queue = self._queue
        if dry_run:
            self._plans[queue] = actions.plan_retry(self._picked.ids(actions), queue=queue)
        return actions.retry(user, self._plans[queue], dry_run=dry_run)

    def make_field(self, ask_again: Callable[[], Awaitable[None]]) -> None:
        """Make the field to name another queue in."""

        async def named(event: ValueChangeEventArguments[str | None]) -> None:
            self._queue = (event.value or "").strip() or None
            await ask_again()

        label = "Target queue (optional)"
        field = ui.input(label, on_change=named)
        field.props(f'dense outlined clearable maxlength=250 debounce=300 data-queue aria-label="{label}"')
