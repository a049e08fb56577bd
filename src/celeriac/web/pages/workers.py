"""``/workers``: every worker, what it is held for, and how it is."""

from typing import Any, Final

from fastapi import Request
from nicegui import ui

from celeriac.views.format import UNKNOWN, format_count, format_duration, format_timestamp
from celeriac.views.worker import LiveWorker
from celeriac.web.board import Sight
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import badge, columns, empty, section, state_class, table
from celeriac.web.pages.visit import Visit, path_of
from celeriac.web.pages.worker_text import ago_text, drift_class, drift_text, load_text

__all__ = ["workers_page"]

#: In the order in which they are counted.
_STATES: Final = ("ALIVE", "SUSPECT", "LOST", "LEFT")
_MOST_ROWS: Final = 300
_COLUMNS: Final = columns(
    ("name", "Worker"),
    ("liveness", "Status"),
    ("reason", "Reason"),
    ("since", "Since (UTC)"),
    ("seen", "Last seen"),
    ("heartbeat", "Heartbeat", "right"),
    ("load", "Load", "right"),
    ("active", "Active", "right"),
    ("processed", "Processed", "right"),
    ("clock", "Lamport clock", "right"),
    ("drift", "Clock offset", "right"),
    ("pid", "Process ID", "right"),
    ("software", "Software"),
)


@ui.page("/workers")
def workers_page(request: Request, at: float | None = None, name: str = "") -> None:
    """Show the workers; ``name`` is part of the names of those that are listed."""
    with frame(request, "Workers", at) as visit:
        page = _WorkersPage(visit, name[:250])
        page.refresh = visit.keep(visit.sight, page.show)


class _WorkersPage:
    def __init__(self, visit: Visit, name: str) -> None:
        self._visit = visit
        self.refresh: Any = None
        with ui.element("div").classes("counts").props('role=status aria-label="Workers by status"'):
            self._counts = {state: _Count(state) for state in _STATES}
        with ui.element("div").classes("filters"):
            self._name = ui.input("Search by name", value=name, on_change=self._asked)
            self._name.props("dense outlined clearable data-search debounce=300")
        with section("Workers"):
            self._table = table(_COLUMNS, label="Workers", links=("name",), states=("liveness", "drift"))
            self._more = ui.label().classes("faint")
            self._none = empty("", mark="workers")
        self._table.set_visibility(False)
        self._none.set_visibility(False)

    async def _asked(self) -> None:
        name = self._name.value or ""
        # So that a link to what is seen can be given to others.
        self._visit.asked({"name": [name]} if name else {})
        if self.refresh is not None:
            await self.refresh()

    def show(self, sight: Sight) -> None:
        """Show the workers as they are."""
        for state, count in self._counts.items():
            count.show(sum(each.liveness == state for each in sight.workers))
        part = (self._name.value or "").casefold()
        found = [each for each in sight.workers if part in each.name.casefold()]
        self._none.set_text(
            "No matching workers. Change the search."
            if sight.workers
            else "No workers yet. Start one on this broker: celery -A PROJECT worker -E"
        )
        self._none.set_visibility(not found)
        self._table.set_visibility(bool(found))
        # Those that need somebody to look come first; a browser is not sent thousands each second.
        self._more.set_text(f"{len(found) - _MOST_ROWS} more not listed. Search by name to find them.")
        self._more.set_visibility(len(found) > _MOST_ROWS)
        rows = [self._row(number, each, sight.as_of) for number, each in enumerate(found[:_MOST_ROWS])]
        if rows != self._table.rows:
            self._table.rows = rows

    def _row(self, number: int, worker: LiveWorker, as_of: float) -> dict[str, Any]:
        return {
            "id": number,
            "name": worker.name,
            "name_to": self._visit.link(path_of("workers", worker.key)),
            "liveness": worker.liveness,
            "liveness_class": state_class(worker.liveness),
            "reason": worker.reason,
            "since": format_timestamp(worker.since_at).removesuffix(" UTC"),
            "seen": ago_text(worker.seen_at, as_of),
            "heartbeat": format_duration(worker.heartbeat),
            "load": load_text(worker.load),
            "active": format_count(worker.active),
            "processed": format_count(worker.processed),
            "clock": format_count(worker.clock),
            "drift": drift_text(worker),
            "drift_class": drift_class(worker),
            "pid": UNKNOWN if worker.pid is None else str(worker.pid),
            "software": worker.software or UNKNOWN,
        }


class _Count:
    """How many workers are held for one thing."""

    def __init__(self, state: str) -> None:
        with ui.element("div").classes("count-chip"):
            badge(state)
            self._count = ui.label("0").classes("count").props(f"data-count={state}")

    def show(self, count: int) -> None:
        self._count.set_text(format_count(count))
