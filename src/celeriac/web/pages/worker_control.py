"""Actions on one worker, for users who may act: each shows its effect first and runs when confirmed."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from celeriac.views.text import visible
from celeriac.web.access import User
from celeriac.web.action import Actions, Done
from celeriac.web.pages.confirm import confirm
from celeriac.web.pages.part import heading
from celeriac.web.pages.task_action import action_hint
from celeriac.web.pages.visit import Visit

__all__ = ["WorkerControls"]

#: As the API has them.
_MOST: Final = 1000
_MOST_CHARS: Final = 250
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_RATE: Final = re.compile(r"\d{1,9}(/[smh])?", re.ASCII)

#: The text of the button that confirms each action.
_EFFECTS: Final = {
    "pool-grow": "Grow pool",
    "pool-shrink": "Shrink pool",
    "add-consumer": "Add queue",
    "cancel-consumer": "Remove queue",
    "rate-limit": "Set rate limit",
    "enable-events": "Enable task events",
    "shutdown": "Shut down",
}


class WorkerControls:
    """Fields and buttons, where the user may act; otherwise the reason why there are none.

    ``on_done`` is called after each action.
    """

    def __init__(self, visit: Visit, worker: str, *, on_done: Callable[[], Awaitable[object]]) -> None:
        self._visit = visit
        self._on_done = on_done
        self._worker = worker
        if not visit.may_act:
            action_hint(visit)
            return
        with ui.element("div").classes("controls").props("data-controls"):
            self._make_pool()
            self._make_queue()
            self._make_rate()
            self._make_events()
            self._make_shutdown()
            ui.label("Celeriac workers only accept commands listed in control_allow (--allow).").classes(
                "faint hint space-above"
            )

    # -- what is there

    def _make_pool(self) -> None:
        heading("Pool size", 3)
        with ui.element("div").classes("control-row"):
            # Not one of NiceGUI's for numbers: that sets right by itself what is out of bounds.
            self._n = ui.input("Change by", value="1")
            self._n.props(f'dense outlined type=number min=1 max={_MOST} step=1 aria-label="Change by"')
            _button("Grow pool", lambda: self._resize("pool-grow", "Grow pool"))
            _button("Shrink pool", lambda: self._resize("pool-shrink", "Shrink pool"))

    def _make_queue(self) -> None:
        heading("Queues", 3)
        with ui.element("div").classes("control-row"):
            self._queue = _field("Queue")
            _button("Add queue", lambda: self._consume("add-consumer", "Add queue"))
            _button("Remove queue", lambda: self._consume("cancel-consumer", "Remove queue"))

    def _make_rate(self) -> None:
        heading("Rate limit", 3)
        with ui.element("div").classes("control-row"):
            self._task = _field("Task name")
            self._rate = _field("Rate").props('placeholder="10/s, 100/m, 0 = none"')
            _button("Set rate limit", self._limit)

    def _make_events(self) -> None:
        heading("Task events", 3)
        with ui.element("div").classes("control-row"):
            _button("Enable task events", self._turn_events_on)

    def _make_shutdown(self) -> None:
        heading("Shutdown", 3)
        with ui.element("div").classes("control-row"):
            _button("Shut down", self._shut_down, is_dangerous=True)

    # -- what it does

    async def _resize(self, action: str, title: str) -> None:
        told = str("" if self._n.value is None else self._n.value)
        is_count = _COUNT.fullmatch(told) is not None and 1 <= int(told) <= _MOST
        if _checked(self._n, is_count, f"Use a whole number from 1 to {_MOST}"):
            await self._confirmed(f"{title}: {int(told)}", action, {"n": int(told)})

    async def _consume(self, action: str, title: str) -> None:
        queue = _text(self._queue)
        if _checked(self._queue, _is_name(queue), f"Enter a queue name of up to {_MOST_CHARS} characters"):
            await self._confirmed(f"{title}: {visible(queue, 80)}", action, {"queue": queue})

    async def _limit(self) -> None:
        task, rate = _text(self._task), _text(self._rate)
        is_named = _checked(
            self._task, _is_name(task), f"Enter a task name of up to {_MOST_CHARS} characters"
        )
        is_rate = _RATE.fullmatch(rate) is not None
        is_rated = _checked(self._rate, is_rate, "Use a number per second, minute or hour: 10/s, 100/m, 0")
        if is_named and is_rated:
            title = f"Rate limit for {visible(task, 80)}: {rate}"
            await self._confirmed(title, "rate-limit", {"task_name": task, "rate_limit": rate})

    async def _turn_events_on(self) -> None:
        title = "Enable task events: the worker publishes the events of its tasks"
        await self._confirmed(title, "enable-events", {})

    async def _shut_down(self) -> None:
        await self._confirmed("Warm shutdown: finish running tasks, then exit", "shutdown", {})

    async def _confirmed(self, title: str, action: str, arguments: dict[str, Any]) -> None:
        names = [self._worker]

        def order(actions: Actions, user: User, dry_run: bool) -> Done:
            return actions.on_workers(user, action, names, arguments, dry_run=dry_run)

        is_dangerous = action in ("shutdown", "pool-shrink", "cancel-consumer")
        if await confirm(self._visit, title, order, lambda _: _EFFECTS[action], is_dangerous=is_dangerous):
            await self._on_done()


def _field(label: str) -> ui.input:
    return ui.input(label).props(f'dense outlined maxlength={_MOST_CHARS} aria-label="{label}"')


def _button(text: str, act: Callable[[], Any], *, is_dangerous: bool = False) -> None:
    made = ui.button(text, on_click=act, color=None).props("outline no-caps")
    made.classes("danger" if is_dangerous else "quiet")


def _text(field: ui.input) -> str:
    return (field.value or "").strip()


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= _MOST_CHARS


def _checked(field: ValidationElement[Any], is_right: bool, wanted: str) -> bool:
    """Say below a field what is wanted, unless it has that."""
    field.error = None if is_right else wanted
    return is_right
