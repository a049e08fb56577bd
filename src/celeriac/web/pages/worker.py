"""``/workers/NAME``: one worker, its tasks, and what can be done to it."""

from functools import partial
from glob import escape
from typing import Any, Final, NamedTuple

from fastapi import Request
from nicegui import ui
from starlette.concurrency import run_in_threadpool

from celeriac.model.states import RECEIVED, STARTED
from celeriac.views.alert import NO_TASKS
from celeriac.views.format import UNKNOWN, format_count, format_duration, format_timestamp
from celeriac.views.task_list import ListedTask, TaskFilter, task_page
from celeriac.views.text import visible
from celeriac.views.worker import LiveWorker
from celeriac.web.board import Sight
from celeriac.web.pages.fact import Facts
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import columns, empty, section, state_class, table
from celeriac.web.pages.visit import Visit, name_of, path_of
from celeriac.web.pages.worker_control import WorkerControls
from celeriac.web.pages.worker_text import ago_text, drift_class, drift_text, load_text, setup_texts

__all__ = ["worker_page"]

#: Every look goes over all tasks in memory.
_EVERY: Final = 2.0
#: Seconds within which a worker has done what it was told.
_SETTLED: Final = 2.0
_MOST_ACTIVE: Final = 100
_MOST_RECENT: Final = 20
_FACTS: Final = {
    "liveness": "Status",
    "reason": "Reason",
    "since": "Since",
    "seen": "Last seen",
    "heartbeat": "Heartbeat interval",
    "load": "Load (1, 5, 15 min)",
    "active": "Active tasks",
    "processed": "Processed",
    "clock": "Lamport clock",
    "drift": "Clock offset",
    "task_events": "Task events",
    "queues": "Queues",
    "pool": "Pool size",
    "asked": "Queues and pool as of",
    "pid": "Process ID",
    "software": "Software",
}
_TASK_EVENTS: Final = {True: "On", False: "Off", None: UNKNOWN}
_COLUMNS: Final = columns(
    ("name", "Task"),
    ("state", "State"),
    ("since", "Since"),
    ("runtime", "Run time", "right"),
    ("args", "Arguments"),
    ("uuid", "ID"),
)


class _Told(NamedTuple):
    """A worker and its tasks."""

    worker: LiveWorker | None
    active: list[ListedTask]
    recent: list[ListedTask]
    as_of: float


@ui.page("/workers/{name:path}")
def worker_page(request: Request, name: str, at: float | None = None) -> None:
    """Show one worker."""
    name = name_of(name)
    with frame(request, f"Worker {visible(name, 120)}", at) as visit:
        page = _WorkerPage(visit, name)
        visit.keep(lambda: _told(visit.sight(), name), page.show, every=_EVERY)


def _told(sight: Sight, name: str) -> _Told:
    # By the name itself: a hostile one may be shown just like another.
    worker = next((each for each in sight.workers if each.key == name), None)
    state = sight.scene.state
    if worker is None:
        return _Told(None, [], [], sight.as_of)
    of_it = TaskFilter(worker=escape(name))
    active = task_page(state, of_it._replace(states=frozenset({STARTED, RECEIVED})), limit=_MOST_ACTIVE)
    recent = task_page(state, of_it, limit=_MOST_RECENT)
    return _Told(worker, active.tasks, recent.tasks, sight.as_of)


class _WorkerPage:
    def __init__(self, visit: Visit, name: str) -> None:
        self._visit = visit
        self._worker: LiveWorker | None = None
        self._asks = 0
        self._none = empty(
            "No worker with this name. It may have shut down before the dashboard started, or use another "
            "broker.",
            mark="worker",
        )
        self._none.set_visibility(False)
        with ui.element("div") as self._known:
            with ui.element("div").classes("panels"):
                with section("Details"):
                    self._facts = Facts(_FACTS)
                with section("Actions"):
                    WorkerControls(visit, name, on_done=self._ask_again)
            ui.element("div").classes("space-below")
            with section("Active tasks"):
                self._active = _TaskTable(visit, "Active tasks", "No active tasks.")
            with section("Recent tasks"):
                self._recent = _TaskTable(
                    visit,
                    "Recent tasks",
                    NO_TASKS,
                )
        self._known.set_visibility(False)

    def show(self, told: _Told) -> None:
        """Show the worker as it is."""
        self._none.set_visibility(told.worker is None)
        self._known.set_visibility(told.worker is not None)
        if told.worker is None:
            return
        self._show_facts(told.worker, told.as_of)
        self._active.show(told.active)
        self._recent.show(told.recent)
        # It is asked when the page is opened, and when it has changed: not each time that one looks.
        before, self._worker = self._worker, told.worker
        if self._visit.is_live and (before is None or before.liveness != told.worker.liveness):
            ui.timer(0.0, self._ask, once=True)

    async def _ask_again(self) -> None:
        ask = partial(self._ask, is_changed=True)
        # Some answer that they will do what they are told before they have done it.
        ui.timer(_SETTLED, ask, once=True)
        await ask()

    async def _ask(self, *, is_changed: bool = False) -> None:
        """Have the worker say how it is set up, and show it."""
        if self._worker is None:
            return
        self._asks += 1
        ask = self._asks
        setup = await run_in_threadpool(self._visit.desk.board.setup, self._worker, is_changed=is_changed)
        if ask == self._asks:  # else it was asked again meanwhile, as something has changed
            for mark, text in setup_texts(setup).items():
                self._facts.show(mark, text)

    def _show_facts(self, worker: LiveWorker, as_of: float) -> None:
        texts = {
            "reason": worker.reason,
            "since": format_timestamp(worker.since_at),
            "seen": f"{ago_text(worker.seen_at, as_of)} ({format_timestamp(worker.seen_at)})",
            "heartbeat": format_duration(worker.heartbeat),
            "load": load_text(worker.load),
            "active": format_count(worker.active),
            "processed": format_count(worker.processed),
            "clock": format_count(worker.clock),
            "task_events": _TASK_EVENTS[worker.task_events],
            "pid": UNKNOWN if worker.pid is None else str(worker.pid),
            "software": worker.software or UNKNOWN,
        }
        for mark, text in texts.items():
            self._facts.show(mark, text)
        self._facts.show("liveness", worker.liveness, kind=state_class(worker.liveness))
        self._facts.show("drift", drift_text(worker), kind=drift_class(worker))


class _TaskTable:
    """Tasks of a worker, each with the way to it; or that there are none."""

    def __init__(self, visit: Visit, label: str, none: str) -> None:
        self._visit = visit
        self._table = table(_COLUMNS, label=label, links=("name",), states=("state",))
        self._none = empty(none, mark="its-tasks")

    def show(self, tasks: list[ListedTask]) -> None:
        self._none.set_visibility(not tasks)
        self._table.set_visibility(bool(tasks))
        rows = [self._row(number, each) for number, each in enumerate(tasks)]
        if rows != self._table.rows:
            self._table.rows = rows

    def _row(self, number: int, task: ListedTask) -> dict[str, Any]:
        return {
            "id": number,
            "name": task.name or "(unknown name)",
            "name_to": self._visit.link(path_of("tasks", task.key)),
            "state": task.state,
            "state_class": state_class(task.state),
            "since": format_timestamp(task.state_at),
            "runtime": format_duration(task.runtime),
            "args": f"{task.args or ''} {task.kwargs or ''}".strip(),
            "uuid": task.uuid,
        }
