"""A task among its relatives: lists within lists, as screen readers read a tree."""

from nicegui import ui

from celeriac.views.family import Family, FamilyRow, more_text
from celeriac.web.pages.part import empty, state_class
from celeriac.web.pages.visit import Visit, path_of

__all__ = ["show_family"]


def show_family(visit: Visit, family: Family) -> None:
    """Show a tree; each relative leads to its page."""
    if len(family.rows) == 1 and not family.rows[0].more:
        empty("No related tasks.", mark="relatives")
    else:
        _show_tree(visit, family)
    for note in family.notes:
        ui.label(note).classes("faint").props("data-family-note")


def _show_tree(visit: Visit, family: Family) -> None:
    top = ui.element("ul").classes("family").props('aria-label="Related tasks" data-related')
    #: The list that rows of each depth go into, and the last row of it.
    lists: list[ui.element] = [top]
    last: dict[int, ui.element] = {}
    for row in family.rows:
        del lists[row.depth + 1 :]
        if len(lists) == row.depth:
            with last[row.depth - 1]:
                lists.append(ui.element("ul").classes("family"))
        with lists[row.depth], ui.element("li").props(f"data-kin={row.kin}") as last[row.depth]:
            _show_row(visit, row)


def _show_row(visit: Visit, row: FamilyRow) -> None:
    ui.label(row.state or "unknown").classes(f"inline {state_class(row.state)}")
    name = f"{row.name or '(unknown name)'} {row.uuid}"
    if row.kin == "self":
        ui.label(name).classes("inline family-self").props("aria-current=true")
    else:
        ui.link(name, visit.link(path_of("tasks", row.key))).classes("wrap")
    kin = "self" if row.kin == "self" else row.kin
    more = more_text(row)
    ui.label(f"{kin}, {more}" if more else kin).classes("inline faint")
