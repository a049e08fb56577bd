"""Small parts that pages are made of. All that a peer said goes into them as text, and never as markup.

Two rules keep it so: what a peer said is a value, never a key of options or rows, since NiceGUI runs what is
under a key that begins with a colon; and it never goes into ``props``, ``classes``, a slot's template or
``ui.html``.
"""

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from celeriac.views.format import UNKNOWN

__all__ = [
    "LINK_CELL",
    "STATE_CELL",
    "Tile",
    "badge",
    "columns",
    "empty",
    "heading",
    "section",
    "state_class",
    "table",
]

#: How a table shows a cell that leads to another page: its row has the address under ``<name>_to``.
LINK_CELL: Final = """
<q-td :props="props"><a v-if="props.row[props.col.name + '_to']" class="cell-link"
:href="props.row[props.col.name + '_to']">{{ props.value }}</a><span v-else>{{ props.value }}</span></q-td>
"""
#: And one that shows a state: its row has the class under ``<name>_class``.
STATE_CELL: Final = """
<q-td :props="props"><span :class="props.row[props.col.name + '_class']">{{ props.value }}</span></q-td>
"""


#: States that the style sheet has a class for.
_STATES: Final = frozenset(
    {"PENDING", "RECEIVED", "STARTED", "SUCCESS", "FAILURE", "RETRY", "REVOKED", "REJECTED"}
    | {"ALIVE", "SUSPECT", "LOST", "LEFT"}
)


def state_class(state: str | None) -> str:
    """Return the class that the style sheet has for a state; one for all custom states."""
    return f"state state-{state.lower()}" if state in _STATES else "state"


def heading(text: str, level: int = 2) -> TextElement:
    """Make a heading."""
    return TextElement(tag=f"h{level}", text=text).classes(f"heading-{level}")


def section(title: str, *, wide: bool = False) -> ui.element:
    """Make a part of a page with a title; what is made within is its content."""
    with ui.element("section").classes("panel" + (" is-wide" if wide else "")) as made:
        heading(title)
    return made


def empty(text: str, *, mark: str = "") -> ui.label:
    """Say that there is nothing to show, and what to do about it."""
    return ui.label(text).classes("empty").props(f"data-empty={mark}" if mark else "data-empty")


def badge(state: str | None) -> ui.label:
    """Show a state of a task or a worker."""
    return ui.label(state or "").classes(state_class(state))


class Tile:
    """A number that matters, with what it means."""

    def __init__(self, meaning: str, *, mark: str) -> None:
        with ui.element("div").classes("tile"):
            self._value = ui.label(UNKNOWN).classes("tile-value").props(f"data-tile={mark}")
            ui.label(meaning).classes("tile-meaning")

    def show(self, text: str, *, is_bad: bool = False) -> None:
        """Show another value."""
        self._value.set_text(text)
        self._value.classes(add="is-bad" if is_bad else "", remove="" if is_bad else "is-bad")


def columns(*names: tuple[str, str] | tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return the columns of a table: the name of the field, what is written above, and how it is aligned."""
    return [
        {"name": each[0], "field": each[0], "label": each[1], "align": each[2] if len(each) > 2 else "left"}
        for each in names
    ]


class _Table(ui.table):
    """A table that shows all rows that it is given."""

    @property
    def pagination(self) -> dict[str, Any]:
        """How it is divided: not at all."""
        return super().pagination

    @pagination.setter
    def pagination(self, _: dict[str, Any]) -> None:
        # Quasar: each table tells it as soon as it is made. Taken for a change, all rows would be sent again.
        pass


def table(
    columns: list[dict[str, Any]],
    *,
    label: str,
    key: str = "id",
    links: Sequence[str] = (),
    states: Sequence[str] = (),
    selection: Any = None,
) -> ui.table:
    """Make a table that shows its rows as they are; ``links`` and ``states`` are columns of those kinds."""
    made = _Table(columns=columns, rows=[], row_key=key, selection=selection).classes("data-table")
    # A table that is wider than its place is scrolled, by keys too.
    made.props(f'flat dense hide-bottom role=region tabindex=0 aria-label="{label}" data-table')
    for name in links:
        made.add_slot(f"body-cell-{name}", LINK_CELL)
    for name in states:
        made.add_slot(f"body-cell-{name}", STATE_CELL)
    return made
