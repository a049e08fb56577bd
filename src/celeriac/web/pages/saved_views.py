"""Filters that somebody gave a name to. They stay in the browser: they are nobody else's."""

import json
from collections.abc import Awaitable, Callable
from typing import Final

from nicegui import events, ui

from celeriac.views.text import visible
from celeriac.web.pages.part import heading
from celeriac.web.pages.task_query import BUILT_IN_VIEWS, TaskQuery

__all__ = ["SavedViews"]

_MOST: Final = 50
_MOST_CHARS: Final = 60
_QUERY_CHARS: Final = 4000
#: A browser that is busy may take a while.
_PATIENCE: Final = 10.0


class SavedViews:
    """Lets people choose a view, save what is asked for as one, and delete it."""

    def __init__(
        self, query: Callable[[], TaskQuery], choose: Callable[[TaskQuery], Awaitable[None]]
    ) -> None:
        self._query = query
        self._choose = choose
        self._saved: dict[str, str] = {}
        self._is_told = False
        self._is_asking = False
        self._select = ui.select(list(BUILT_IN_VIEWS), label="View", on_change=self._chosen).props(
            'dense outlined options-dense aria-label="View" data-views'
        )
        self._select.classes("view-select")
        ui.button("Save view", on_click=self._ask_name).props("flat dense no-caps data-save").classes("quiet")
        self._delete = ui.button("Delete view", on_click=self._deleted).props(
            "flat dense no-caps data-delete-view"
        )
        self._delete.classes("danger").set_visibility(False)
        ui.timer(0.0, self._load, once=True)

    def compare(self) -> None:
        """Show the name of the view that asks for what is asked for, if there is one."""
        asked = str(self._query())
        views = {**BUILT_IN_VIEWS, **self._saved}
        self._tell(next((name for name, query in views.items() if query == asked), None))

    async def _load(self) -> None:
        self._take(await ui.run_javascript("window.celeriac.views()", timeout=_PATIENCE))

    def _take(self, told: object) -> None:
        """Take what the browser keeps; anything may have written there."""
        found: dict[str, str] = {}
        for each in told if isinstance(told, list) else []:
            name, query = (each.get("name"), each.get("query")) if isinstance(each, dict) else (None, None)
            if isinstance(name, str) and isinstance(query, str) and name and len(query) <= _QUERY_CHARS:
                found[visible(name, _MOST_CHARS)] = query
        own = [(name, query) for name, query in found.items() if name not in BUILT_IN_VIEWS]
        self._saved = dict(own[:_MOST])
        self._is_told = True
        self._select.set_options([*BUILT_IN_VIEWS, *self._saved])
        self.compare()

    def _tell(self, name: str | None) -> None:
        self._is_told = True
        self._select.set_value(name)
        self._is_told = False
        self._delete.set_visibility(name in self._saved)

    def _chosen(self, event: events.ValueChangeEventArguments[str | None]) -> Awaitable[None] | None:
        name = event.value
        self._delete.set_visibility(name in self._saved)
        query = {**self._saved, **BUILT_IN_VIEWS}.get(name or "")
        return None if query is None or self._is_told else self._choose(TaskQuery.parse(query))

    async def _ask_name(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        try:
            await self._save_as(await self._asked_name())
        finally:
            self._is_asking = False

    async def _asked_name(self) -> str:
        with ui.dialog() as dialog, ui.card().classes("dialog").props("role=document data-save-dialog"):
            heading("Save filter as view")
            name = ui.input("Name").props(
                f'dense outlined autofocus maxlength={_MOST_CHARS} aria-label="View name"'
            )
            name.on("keydown.enter", lambda: dialog.submit(name.value))
            ui.label("Stored in this browser. To share it, copy the page URL.").classes("faint")
            with ui.element("div").classes("row-gap"):
                ui.element("div").classes("space")
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat no-caps").classes(
                    "quiet"
                )
                ui.button("Save view", on_click=lambda: dialog.submit(name.value)).props(
                    "flat no-caps"
                ).classes("quiet")
        told = await dialog
        dialog.delete()
        return visible(str(told or "").strip(), _MOST_CHARS)

    async def _save_as(self, shown: str) -> None:
        if shown in BUILT_IN_VIEWS:
            ui.notify("A view with this name exists. Choose another name.", type="warning", html=False)
        elif shown:
            await self._keep("saveView", shown, str(self._query()))

    async def _deleted(self) -> None:
        if self._select.value in self._saved:
            await self._keep("deleteView", str(self._select.value))

    async def _keep(self, function: str, *arguments: str) -> None:
        told = ", ".join(map(json.dumps, arguments))
        self._take(await ui.run_javascript(f"window.celeriac.{function}({told})", timeout=_PATIENCE))
