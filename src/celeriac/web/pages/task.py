"""``/tasks/<id>``: all that is known of one task."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fastapi import Request
from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from celeriac.history import Warehouse
from celeriac.model.answer import TaskStory
from celeriac.views.cell import number_of
from celeriac.views.family import Family, story_family
from celeriac.views.format import UNKNOWN, format_count, format_duration, format_time, format_timestamp
from celeriac.views.story import attempt_rows, task_lines, timeline, unread_text
from celeriac.views.task import AttemptRow, TaskDetail, TaskEventRow, task_detail
from celeriac.views.text import visible, visible_lines
from celeriac.web.pages.family import show_family
from celeriac.web.pages.frame import frame
from celeriac.web.pages.from_tables import FromTables, Told
from celeriac.web.pages.part import badge, columns, empty, section, table
from celeriac.web.pages.task_action import action_buttons, action_hint
from celeriac.web.pages.visit import Visit, name_of, path_of

__all__ = ["task_page"]

_CHARS: Final = 120
_LINE_CHARS: Final = 500
_EVENT_COLUMNS: Final = columns(
    ("clock", "Clock", "right"),
    ("at", "Time (UTC)"),
    ("type", "Event"),
    ("node", "Node"),
    ("detail", "Details"),
)
_ATTEMPT_COLUMNS: Final = columns(
    ("number", "Attempt", "right"),
    ("worker", "Worker"),
    ("received", "Received (UTC)"),
    ("started", "Started (UTC)"),
    ("ended", "Ended (UTC)"),
    ("wait", "Queue wait", "right"),
    ("run", "Run time", "right"),
    ("outcome", "Outcome"),
)
_EVENTS: Final = "Event history"
_RELATIVES: Final = "Related tasks"
#: The most tasks of a workflow that are looked through for relatives in the tables.
_MOST_LOOKED_AT: Final = 2000


class _Past(NamedTuple):
    """What the tables know of a task."""

    story: TaskStory
    family: Family


#: What is known of a task: from memory, or from the tables.
_Seen = TaskDetail | Told[_Past]
#: A name of ours, what is known under it, and where it leads.
_Fact = tuple[str, str | None, str | None]


@ui.page("/tasks/{uuid:path}")
def task_page(request: Request, uuid: str, at: float | None = None) -> None:
    """Show a task."""
    uuid = name_of(uuid)
    with frame(request, "Task", at) as visit:
        page = _TaskPage(visit, uuid)
        refresh = visit.keep(page.load, page.show)
        with page.actions:
            if visit.may_act:
                action_buttons(visit, lambda: [uuid], refresh)
            else:
                action_hint(visit)


class _TaskPage:
    def __init__(self, visit: Visit, uuid: str) -> None:
        self._visit = visit
        self._uuid = uuid
        self._tables: FromTables[_Past] = FromTables(visit, self._ask)
        self._seen: _Seen | None = None
        with ui.element("div").classes("row-gap title-row"):
            self._title = ui.element("div").classes("row-gap title")
            ui.element("div").classes("space")
            self.actions = ui.element("div").classes("row-gap")
        self._body = ui.element("div")

    def load(self) -> _Seen:
        """Look it up; in a thread."""
        known = task_detail(self._visit.sight().scene.state, self._uuid)
        return self._tables.look() if known is None else known

    def _ask(self, warehouse: Warehouse) -> _Past:
        story = warehouse.task(self._uuid)
        workflow = warehouse.workflow(self._uuid, limit=_MOST_LOOKED_AT)
        return _Past(story, story_family(workflow, self._uuid))

    def show(self, seen: _Seen) -> None:
        """Show it, if it is not shown as it is already: somebody may be reading, or copying."""
        if seen == self._seen:
            return
        self._seen = seen
        self._title.clear()
        self._body.clear()
        with self._body:
            if isinstance(seen, TaskDetail):
                self._show_detail(seen)
            elif seen.story is not None:
                self._show_story(*seen.story)
            else:
                self._show_nothing(seen.reason)

    def _show_title(self, name: str, state: str | None) -> None:
        with self._title:
            if state is not None:
                badge(state).props("data-state")
            ui.label(name).classes("task-name wrap").props("data-name")

    # -- from memory

    def _show_detail(self, told: TaskDetail) -> None:
        self._show_title(told.task.name or "(unknown name)", told.task.state)
        if told.is_conflict:
            ui.label(
                "Conflicting results: it succeeded twice, or succeeded and failed. See the event history."
            ).classes("notice")
        with ui.element("div").classes("panels"):
            with section("Details"):
                self._show_facts(self._facts(told))
            with section("Arguments and result"):
                _texts(
                    {
                        "Arguments": told.args,
                        "Keyword arguments": told.kwargs,
                        "Result": told.result,
                        "Exception": told.exception,
                        "Traceback": "\n".join(told.traceback),
                    }
                )
            with section(_EVENTS, wide=True):
                _show_events(told.events)
            with section("Attempts", wide=True):
                self._show_attempts(told.attempts)
            with section(_RELATIVES, wide=True):
                show_family(self._visit, told.family)

    def _facts(self, told: TaskDetail) -> list[_Fact]:
        task, link = told.task, self._visit.link
        parent = told.parent
        return [
            ("ID", task.uuid, None),
            ("Phase", told.phase, None),
            ("Worker", task.worker, task.worker_key and link(path_of("workers", task.worker_key))),
            ("Queue", task.queue, None),
            ("Client", told.client, None),
            ("Sent", format_timestamp(task.sent_at), None),
            ("Received", format_timestamp(task.received_at), None),
            ("Started", format_timestamp(task.started_at), None),
            ("Last state change", format_timestamp(task.state_at), None),
            ("Run time", format_duration(task.runtime), None),
            ("Attempts", format_count(task.attempts), None),
            ("Deliveries", format_count(told.deliveries), None),
            ("Executions", format_count(told.executions), None),
            ("Not before", told.eta, None),
            ("Expires", told.expires, None),
            ("Workflow", told.root_id or task.uuid, link(path_of("workflows", told.root_key or task.key))),
            ("Parent", parent and parent.uuid, parent and link(path_of("tasks", parent.key))),
        ]

    def _show_attempts(self, attempts: Sequence[AttemptRow]) -> None:
        if not attempts:
            empty("No worker has received this task yet.", mark="attempts")
            return
        made = table(_ATTEMPT_COLUMNS, label="Attempts", key="key", links=("worker",)).props("data-attempts")
        made.rows = [
            {
                "key": number,
                "number": each.number + 1,
                "worker": each.worker,
                "worker_to": self._visit.link(path_of("workers", each.worker_key)),
                "received": format_time(each.received_at),
                "started": format_time(each.started_at),
                "ended": format_time(each.ended_at),
                "wait": format_duration(each.wait),
                "run": format_duration(each.run),
                "outcome": each.outcome or UNKNOWN,
            }
            for number, each in enumerate(attempts)
        ]

    # -- from the tables

    def _show_story(self, story: TaskStory, family: Family) -> None:
        told = story.task
        self._show_title(visible(told["name"] or "(unknown name)", _CHARS), visible(told["state"], 40))
        with ui.element("div").classes("faint title-row"):
            ui.label("From the history tables: the task is no longer in memory.").props("data-from-tables")
            for note in story.notes:
                ui.label(visible(note, _LINE_CHARS))
        with ui.element("div").classes("panels"):
            with section("Details"):
                facts: list[_Fact] = [
                    (name.capitalize(), text, None) for name, text in task_lines(story._replace(payload={}))
                ]
                root = str(told["root_id"] or told["uuid"])
                to = self._visit.link(path_of("workflows", root))
                self._show_facts([*facts, ("Workflow", visible(root, _CHARS), to)])
            with section("Arguments and result"):
                _texts(
                    {
                        name.capitalize(): "\n".join(visible_lines(text, _LINE_CHARS))
                        for name, text in story.payload.items()
                    }
                )
            with section(_EVENTS, wide=True):
                _show_events(timeline(story))
                if story.unread:
                    ui.label(unread_text(story)).classes("faint").props("data-unread")
            with section("Attempts", wide=True):
                _show_rows(*attempt_rows(story))
            with section(_RELATIVES, wide=True):
                show_family(self._visit, family)

    def _show_nothing(self, reason: str) -> None:
        self._show_title(visible(self._uuid, _CHARS), None)
        empty(f"Task not in memory. {reason}", mark="task")
        ui.link("Open Tasks", self._visit.link("/tasks"))

    def _show_facts(self, facts: Sequence[_Fact]) -> None:
        with ui.element("dl").classes("facts"):
            for name, text, to in facts:
                if text in (None, "", UNKNOWN):
                    continue
                TextElement(tag="dt", text=name).classes("fact-name")
                with ui.element("dd").classes("fact-value"):
                    if to:
                        ui.link(text or "", to)
                    else:
                        ui.label(text or "")


def _show_events(events: Sequence[TaskEventRow]) -> None:
    made = table(_EVENT_COLUMNS, label="Events", key="key").props("data-events")
    made.rows = [_event_row(number, each) for number, each in enumerate(events)]


def _show_rows(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Show the attempts as the tables have them; ``heads`` are names of ours."""
    made = table(columns(*((name, name.capitalize()) for name in heads)), label="Attempts", key="key")
    told = [
        {"key": number, **{name: _cell(name, value) for name, value in zip(heads, row, strict=True)}}
        for number, row in enumerate(rows)
    ]
    made.props("data-attempts").rows = told


def _cell(name: str, value: object) -> object:
    if value is None:
        return UNKNOWN
    return (
        format_duration(number_of(value)) if name in ("wait", "run") and isinstance(value, float) else value
    )


def _texts(texts: dict[str, str | None]) -> None:
    """Show texts of some length, each under a name of ours."""
    known = {name: text for name, text in texts.items() if text}
    if not known:
        empty("No arguments or result in its events.", mark="texts")
    for name, text in known.items():
        TextElement(tag="h3", text=name).classes("heading-3")
        ui.label(text).classes("mono wrap text-block")


def _event_row(number: int, told: TaskEventRow) -> dict[str, object]:
    return {
        "key": number,
        "clock": UNKNOWN if told.clock is None else format_count(told.clock),
        "at": format_time(told.at),
        "type": told.type,
        "node": f"{told.node} ({told.pid})" if told.pid else told.node,
        "detail": told.detail,
    }
