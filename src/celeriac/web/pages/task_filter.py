"""The fields in which people say which tasks they look for."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from nicegui import ui

from celeriac.model.states import PRECEDENCE
from celeriac.views.format import format_duration
from celeriac.views.text import visible
from celeriac.web.pages.task_query import MOST_CHARS, TaskQuery, local_text, read_local

__all__ = ["FilterBar"]

#: What the field for the time offers: seconds, or one of these.
_ANY: Final = 0
_EXACT: Final = -1
_TIMES: Final = {
    _ANY: "Any time",
    300: "Last 5 min",
    900: "Last 15 min",
    3600: "Last hour",
    _EXACT: "Custom range",
}
_FIELD: Final = "dense outlined"
#: Milliseconds without a key before what was typed is looked for.
_PAUSE: Final = 300


class FilterBar:
    """Fields for all that can be asked for. ``on_change`` is called whenever it is something else."""

    def __init__(self, query: TaskQuery, on_change: Callable[[], Awaitable[None]]) -> None:
        self._on_change = on_change
        self._is_set = False
        with ui.element("div").classes("filters").props('role=search aria-label="Filter"'):
            self._text = self._input("Search", query.text, "data-search").classes("wide-field")
            self._text.props('placeholder="ID, name, arguments, result"')
            self._states = ui.select(
                _states(query.states),
                label="State",
                multiple=True,
                value=list(query.states),
                on_change=self._changed,
            )
            self._states.props(f'{_FIELD} options-dense aria-label="State" data-filter=state')
            self._name = self._input("Name", query.name, "data-filter=name")
            self._name.props('placeholder="shop.*"')
            self._worker = self._input("Worker", query.worker, "data-filter=worker")
            self._worker.props('placeholder="celery@web*"')
            self._last = ui.select(
                _times(query), label="Time range", value=_time(query), on_change=self._changed
            )
            self._last.props(f'{_FIELD} options-dense aria-label="Time range" data-filter=time')
            self._since = self._moment("Start (UTC)", query.since, "data-filter=since")
            self._until = self._moment("End (UTC)", query.until, "data-filter=until")
            self._root = query.root
            self._root_label = ui.label().classes("faint wrap")
            self._clear = ui.button("Clear filter", on_click=self.clear).props(
                "flat dense no-caps data-clear"
            )
            self._clear.classes("quiet")
        self._arrange()

    def _input(self, label: str, value: str, mark: str) -> ui.input:
        made = ui.input(label, value=value, on_change=self._changed)
        return made.props(f'{_FIELD} debounce={_PAUSE} maxlength={MOST_CHARS} aria-label="{label}" {mark}')

    def _moment(self, label: str, value: float | None, mark: str) -> ui.input:
        made = self._input(label, local_text(value), mark)
        return made.props("type=datetime-local step=1 stack-label")

    @property
    def query(self) -> TaskQuery:
        """What is asked for."""
        chosen = self._last.value
        is_exact = chosen == _EXACT
        return TaskQuery(
            states=tuple(self._states.value or ()),
            name=_told(self._name),
            worker=_told(self._worker),
            text=_told(self._text),
            root=self._root,
            last=chosen if isinstance(chosen, int) and chosen > 0 else None,
            since=read_local(self._since.value) if is_exact else None,
            until=read_local(self._until.value) if is_exact else None,
        )

    async def show(self, query: TaskQuery) -> None:
        """Have the fields ask for something else."""
        self._is_set = True
        self._states.set_options(_states(query.states), value=list(query.states))
        for field, text in ((self._name, query.name), (self._worker, query.worker), (self._text, query.text)):
            field.set_value(text)
        self._last.set_options(_times(query), value=_time(query))
        self._since.set_value(local_text(query.since))
        self._until.set_value(local_text(query.until))
        self._root = query.root
        self._is_set = False
        self._arrange()
        await self._on_change()

    async def clear(self) -> None:
        """Ask for nothing in particular."""
        await self.show(TaskQuery())

    def offer(self, states: Iterable[str]) -> None:
        """Offer the states that tasks made up themselves too."""
        options = _states([*states, *(self._states.value or ())])
        if not set(self._states.options) >= options.keys():
            self._is_set = True
            self._states.set_options(options, value=self._states.value)
            self._is_set = False

    def _changed(self, _: Any = None) -> Awaitable[None] | None:
        if self._is_set:
            return None
        self._arrange()
        return self._on_change()

    def _arrange(self) -> None:
        for field in (self._since, self._until):
            field.set_visibility(self._last.value == _EXACT)
        self._root_label.set_text(f"Workflow {visible(self._root, 120)}" if self._root else "")
        self._root_label.set_visibility(bool(self._root))
        self._clear.set_visibility(self.query != TaskQuery())


def _told(field: ui.input) -> str:
    # A browser is told how much a field takes, and may send more.
    return str(field.value or "").strip()[:MOST_CHARS]


def _states(more: Iterable[str]) -> dict[str, str]:
    """Return the states that can be chosen, each with how it is shown."""
    known = [name for name in PRECEDENCE if name is not None]
    return {name: visible(name, 40) for name in (*known, *sorted(set(more) - set(known)))}


def _time(query: TaskQuery) -> int:
    if query.last is not None:
        return query.last
    return _ANY if query.since is None and query.until is None else _EXACT


def _times(query: TaskQuery) -> dict[int, str]:
    # An address may say another.
    own = {} if query.last is None else {query.last: f"Last {format_duration(query.last)}"}
    return {**own, **_TIMES}
