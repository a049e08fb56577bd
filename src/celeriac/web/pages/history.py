"""``/history``: percentiles, rankings, comparisons and sessions, over any time that the tables have."""

import logging
from collections.abc import Callable
from time import time
from typing import Any, NamedTuple

from fastapi import Request
from nicegui import ui
from starlette.concurrency import run_in_threadpool

from celeriac.errors import CeleriacError
from celeriac.history import Warehouse
from celeriac.web.pages.frame import frame
from celeriac.web.pages.history_answer import ANSWERS, Question, range_text
from celeriac.web.pages.history_form import HistoryForm
from celeriac.web.pages.history_query import TABS, HistoryQuery
from celeriac.web.pages.part import empty
from celeriac.web.pages.trend import NO_TABLES
from celeriac.web.pages.visit import Visit

__all__ = ["history_page"]

logger = logging.getLogger(__name__)


@ui.page("/history")
def history_page(
    request: Request,
    *,
    at: float | None = None,
    tab: str = "latency",
    task: str = "",
    worker: str = "",
    queue: str = "",
    range: str = "day",  # noqa: A002 - as the address has it
    since: float | None = None,
    until: float | None = None,
    by: str = "hour",
    per: str = "task",
    against: str = "before",
    other_since: float | None = None,
    other_until: float | None = None,
) -> None:
    """Show what the tables tell. What is asked is in the address, so that a link can be shared."""
    query = HistoryQuery(
        tab=tab,
        task=task,
        worker=worker,
        queue=queue,
        range=range,
        since=since,
        until=until,
        by="" if by == "none" else by,
        per=per,
        against=against,
        other_since=other_since,
        other_until=other_until,
    ).checked()
    with frame(request, "History", at) as visit:
        _HistoryPage(visit, query)


class _Failed(NamedTuple):
    """Why there is no answer."""

    text: str
    has_tables: bool


class _HistoryPage:
    def __init__(self, visit: Visit, query: HistoryQuery) -> None:
        self._visit = visit
        self._query = query
        #: The moment that times end at.
        self._now = time() if visit.at is None else visit.at
        self._make_tabs()
        HistoryForm(query, self._ask, visit.tell)
        self._said = (
            ui.label(f"Range: {range_text(query.span(self._now))}").classes("faint hint").props("data-span")
        )
        with ui.element("div").classes("waiting").props('role=status aria-label="Loading"') as self._spinner:
            ui.spinner(size="2rem").props("aria-hidden=true")
            ui.label("Loading…")
        self._answer = ui.element("div").props("data-answer")
        ui.timer(0.0, self._load, once=True)

    def _make_tabs(self) -> None:
        with ui.element("nav").classes("tabs").props('aria-label="History views"'):
            for tab, name in TABS.items():
                link = ui.link(name, self._address(self._query._replace(tab=tab))).classes("tab-link")
                if tab == self._query.tab:
                    link.props("aria-current=page")

    def _address(self, query: HistoryQuery) -> str:
        return self._visit.link("/history", **query.address())

    def _ask(self, query: HistoryQuery) -> None:
        # The page is made anew from its address: so that what is seen is always what a link to it shows.
        ui.navigate.to(self._address(query))

    async def _load(self) -> None:
        found = await run_in_threadpool(self._asked)
        self._spinner.set_visibility(False)
        with self._answer:
            if not isinstance(found, _Failed):
                found()
            elif found.has_tables:
                self._visit.tell(found.text)
            else:
                empty(NO_TABLES, mark="history")
                ui.label(found.text).classes("faint mono wrap")

    def _asked(self) -> Callable[[], Any] | _Failed:
        """Return what shows the answer, or why there is none."""
        try:
            warehouse: Warehouse = self._visit.desk.board.warehouse
            warehouse.refresh()
        except CeleriacError as error:
            return _Failed(str(error), has_tables=False)
        try:
            return ANSWERS[self._query.tab](Question(warehouse, self._query, self._now, self._visit))
        except CeleriacError as error:
            return _Failed(str(error), has_tables=True)
        except Exception:  # a fault of ours, or of the tables: who looks is not to wait for ever
            logger.exception("web: a history query failed")
            return _Failed("The query failed. See the dashboard log.", has_tables=True)
