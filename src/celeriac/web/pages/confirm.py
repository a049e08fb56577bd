"""Asks before something is done to the cluster, says whom it concerns, and then what came of it."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

from nicegui import ui
from starlette.concurrency import run_in_threadpool

from celeriac.errors import CeleriacError
from celeriac.views.log import count_text
from celeriac.web.access import User
from celeriac.web.action import Actions, Done
from celeriac.web.pages.part import heading
from celeriac.web.pages.visit import Visit

__all__ = ["Effect", "Fields", "Order", "confirm"]

logger = logging.getLogger(__name__)

#: What is to be done: for whom, and whether it is only said whom it would concern.
Order = Callable[[Actions, User, bool], Done]
#: Makes fields that say more of what is wanted; it is given what to call when they have changed.
Fields = Callable[[Callable[[], Awaitable[None]]], None]
#: The text of the button that does it, such as ``Revoke 3 tasks``.
Effect = Callable[[Done], str]
#: Names that are shown; of the others it is said how many there are.
_MOST_SHOWN: Final = 12


async def confirm(
    visit: Visit,
    title: str,
    order: Order,
    effect: Effect,
    *,
    is_dangerous: bool = True,
    fields: Fields | None = None,
) -> bool:
    """Say what would be done, do it if who looks at the page says so, and return whether it was done."""
    would = await _carried_out(visit, order, dry_run=True)
    if would is None:
        return False
    question = _Question(visit, title, order, effect, is_dangerous=is_dangerous, fields=fields)
    question.show(would)
    is_wanted = await question.dialog
    question.dialog.delete()
    done = await _carried_out(visit, order, dry_run=False) if is_wanted else None
    if done is not None:
        _tell_done(done)
    return done is not None


class _Question:
    """A dialog that shows the effect of an action, and updates it when a field changes."""

    def __init__(
        self,
        visit: Visit,
        title: str,
        order: Order,
        effect: Effect,
        *,
        is_dangerous: bool,
        fields: Fields | None,
    ) -> None:
        self._visit = visit
        self._order = order
        self._effect = effect
        self._asked = 0
        with (
            ui.dialog() as self.dialog,
            ui.card().classes("dialog").props("role=document data-confirm"),
        ):
            heading(title)
            self._told = ui.element("div").classes("dialog-part")
            if fields is not None:
                fields(self._ask_again)
            with ui.element("div").classes("row-gap"):
                ui.element("div").classes("space")
                cancel = ui.button("Cancel", on_click=lambda: self.dialog.submit(False))
                cancel.props("flat no-caps autofocus").classes("quiet")
                self._do = ui.button(on_click=lambda: self.dialog.submit(True))
                self._do.props("flat no-caps data-confirm-action").classes(
                    "danger" if is_dangerous else "quiet"
                )

    def show(self, would: Done | None) -> None:
        """Say what would be done, and offer to do it if there is something."""
        self._told.clear()
        self._do.set_visibility(would is not None and bool(would.targets or not would.refused))
        if would is not None:
            self._do.set_text(self._effect(would))
            with self._told:
                _tell_targets(would)
                _tell_refused(would)

    async def _ask_again(self) -> None:
        self._asked = asked = self._asked + 1
        # What is confirmed is what was shown: nothing can be until that is known.
        self.show(None)
        would = await _carried_out(self._visit, self._order, dry_run=True)
        if asked == self._asked and not self._told.is_deleted:
            self.show(would)


async def _carried_out(visit: Visit, order: Order, *, dry_run: bool) -> Done | None:
    try:
        # Asked each time: who may act when a page is made may be logged out by now.
        actions, user = visit.acting()
        return await run_in_threadpool(order, actions, user, dry_run)
    except CeleriacError as error:
        _notify(str(error), kind="negative")
    except Exception:
        # Who asked for it has to know that it may be done in part.
        logger.exception("web: an action failed")
        _notify("The action failed and may be partly done. See the dashboard log.", kind="negative")
    return None


def _tell_targets(would: Done) -> None:
    if would.targets:
        ui.label(f"{_subject(would)}:").props("data-concerns")
        if would.queues:
            _names([f"{task} → {queue}" for task, queue in zip(would.targets, would.queues, strict=True)])
            ui.label(f"Target queues: {_counts(Counter(would.queues))}").props("data-queues")
        else:
            _names(would.targets)
    elif not would.refused:
        ui.label("All workers").props("data-concerns")
    else:
        ui.label("Nothing to do.").props("data-concerns")


def _subject(would: Done) -> str:
    """Return the targets as counts: of tasks by their states, else of workers."""
    if would.states:
        return f"{count_text(sum(would.states.values()), 'task')} ({_counts(would.states)})"
    return count_text(len(would.targets), "worker")


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted.items())


def _tell_refused(would: Done) -> None:
    if would.refused:
        ui.label(f"{len(would.refused)} skipped:").classes("faint")
        _names([f"{each.uuid}: {each.reason}" for each in would.refused])


def _names(names: list[str]) -> None:
    with ui.element("div").classes("mono wrap"):
        for name in names[:_MOST_SHOWN]:
            ui.label(name)
        if len(names) > _MOST_SHOWN:
            ui.label(f"and {len(names) - _MOST_SHOWN} more")


def _tell_done(done: Done) -> None:
    said = "; ".join(f"{name}: {told}" for name, told in list(done.replies.items())[:3])
    refused = f" {len(done.refused)} skipped." if done.refused else ""
    # Workers are told by a broadcast, and one that is away says nothing; a task is sent by ourselves.
    nothing = "nothing sent" if done.action == "retry" else "no worker answered in time"
    is_well = bool(done.replies) and not any("'error'" in told for told in done.replies.values())
    _notify(f"{done.action}: {said or nothing}.{refused}", kind="positive" if is_well else "warning")


def _notify(text: str, *, kind: Literal["positive", "negative", "warning"]) -> None:
    # Quasar shows it as text: markup in it is not read as such.
    ui.notify(text, type=kind, html=False, multi_line=True, close_button="Close", timeout=8000)
