"""Rows for one task and for one workflow. Every text is safe to show; moments are ISO 8601 in UTC."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from celeriac.model.answer import TaskStory, WorkflowStory, WorkflowTask
from celeriac.views.cell import foreign_cell, foreign_value, moment_of, name_text, number_of, shown, text_of
from celeriac.views.format import format_duration
from celeriac.views.task import TaskEventRow, event_rows
from celeriac.views.text import visible_lines
from celeriac.views.unit import Seconds

__all__ = [
    "INFERRED_NOTE",
    "KINDS_NOTE",
    "WorkflowRow",
    "attempt_rows",
    "kind_texts",
    "task_dict",
    "task_lines",
    "timeline",
    "timeline_rows",
    "unread_text",
    "workflow_dict",
    "workflow_lines",
    "workflow_rows",
]

_TEXT_CHARS: Final = 400
#: What the kinds of tasks rest on.
KINDS_NOTE: Final = (
    "Types are derived from parents: an only child is a chain link, several children are a group. A group or "
    "chord without a parent task shows as one workflow per task."
)
INFERRED_NOTE: Final = (
    "A chord body is inferred: it started after all tasks of a group had returned, was sent by one of them, "
    "and none of the others sent a task."
)


class WorkflowRow(NamedTuple):
    """A task of a workflow; ``begin`` is seconds after that of the workflow."""

    task: str
    state: str
    worker: str
    begin: Seconds | None
    run: Seconds | None
    critical: str
    kind: str
    id: str


def workflow_rows(story: WorkflowStory) -> list[WorkflowRow]:
    """Return a row for each task, set in below the one that sent it."""
    begin_at = story.begin_at
    kinds = kind_texts(story.tasks)
    return [
        WorkflowRow(
            f"{'  ' * min(each.depth, 20)}{name_text(each.name)}",
            text_of(each.state),
            text_of(each.worker),
            None if begin_at is None or each.begin_at is None else number_of(each.begin_at - begin_at),
            number_of(each.run),
            "*" if each.is_critical else "",
            kind,
            text_of(each.uuid),
        )
        for each, kind in zip(story.tasks, kinds, strict=True)
    ]


def kind_texts(tasks: Sequence[WorkflowTask]) -> list[str]:
    """Return how each task of a workflow was sent, in words; nothing where that cannot be told."""
    sizes = Counter(each.group for each in tasks)
    return [_kind_text(each, sizes) for each in tasks]


def _kind_text(task: WorkflowTask, sizes: Mapping[int | None, int]) -> str:
    group = "" if task.group is None else f"group of {sizes[task.group]:,}"
    match task.kind:
        case "chain":
            return "chain link"
        case "body":
            return f"chord body, {group}" if group else "chord body"
        case _:
            return group


def workflow_lines(story: WorkflowStory) -> list[tuple[str, str]]:
    """Return what is known of a workflow, by name."""
    counts = f"{story.size:,}: {story.succeeded:,} succeeded, {story.failed:,} failed, {story.open:,} open"
    critical = "" if story.critical_path is None else f"{len(story.critical_path)} tasks"
    ran = f", run time {format_duration(story.critical_run)}" if story.critical_run is not None else ""
    bodies = sum(each.waits_for is not None for each in story.tasks)
    lines = {
        "workflow": text_of(story.root_id),
        "name": name_text(story.name),
        "tasks": counts,
        "shown": f"first {len(story.tasks):,}" if story.is_cut else "",
        "started": moment_of(story.begin_at) or "",
        "duration": format_duration(story.makespan, unknown=""),
        "critical path": f"{critical}{ran}" if critical else "not computed: too many tasks",
        "chord bodies": f"{bodies:,}, inferred: each started after all tasks of a group had returned"
        if bodies
        else "",
    }
    return [(name, text) for name, text in lines.items() if text]


def workflow_dict(story: WorkflowStory) -> dict[str, object]:
    """Return a workflow for JSON; moments are seconds of the epoch."""
    told = story._asdict() | {"makespan": story.makespan}
    return told | {"tasks": [each._asdict() for each in story.tasks]}


#: What is told of a task, and as what.
_MOMENTS: Final = (
    "sent_at",
    "received_at",
    "started_at",
    "succeeded_at",
    "failed_at",
    "retried_at",
    "revoked_at",
    "rejected_at",
)
_TOLD: Final = (
    "name",
    "state",
    "phase",
    "worker",
    "client",
    "queue",
    "root_id",
    "parent_id",
    "attempts",
    "retries",
)


def task_lines(story: TaskStory) -> list[tuple[str, str]]:
    """Return what is known of a task, by name; a text of several lines takes several."""
    task = story.task
    lines = [("task", text_of(task["uuid"]))]
    lines += [
        (name.removesuffix("_id"), foreign_cell(task[name])) for name in _TOLD if task[name] is not None
    ]
    lines += [
        (name.removesuffix("_at"), moment)
        for name in _MOMENTS
        if (moment := moment_of(task[name])) is not None
    ]
    if task["runtime"] is not None:
        lines.append(("runtime", format_duration(task["runtime"])))
    for name, text in story.payload.items():
        first, *rest = visible_lines(text, _TEXT_CHARS) or [""]
        lines += [(name, first), *(("", line) for line in rest)]
    return lines


def timeline(story: TaskStory) -> list[TaskEventRow]:
    """Return the events of a task in logical order, as of one that is in memory."""
    return event_rows(story.events)


def timeline_rows(story: TaskStory) -> tuple[tuple[str, ...], list[list[object]]]:
    """Return heads and rows of the events of a task, as a terminal shows them."""
    rows: list[list[object]] = [
        [moment_of(each.at), each.clock, each.type, each.node, each.pid or None, each.detail]
        for each in timeline(story)
    ]
    return ("at", "clock", "event", "node", "pid", "detail"), rows


def unread_text(story: TaskStory) -> str:
    """Return of how many events the log was not read, and why; nothing for none."""
    if not story.unread:
        return ""
    return (
        f"Details of {story.unread:,} of {len(story.events):,} events are missing: the event log no longer "
        "has them, or they are in too many of its files."
    )


_ATTEMPT: Final = ("retries", "worker", "pid", "started_at", "ended_at", "outcome", "wait", "run")


def attempt_rows(story: TaskStory) -> tuple[tuple[str, ...], list[list[object]]]:
    """Return heads and rows of the attempts of a task, with what each raised."""
    raised = {each["raised_at"]: each["exception"] for each in story.failures}
    rows = [
        [_attempt_cell(name, each[name]) for name in _ATTEMPT] + [text_of(raised.get(each["ended_at"]))]
        for each in story.attempts
    ]
    return (*(name.removesuffix("_at") for name in _ATTEMPT), "exception"), rows


def _attempt_cell(name: str, value: Any) -> object:
    if name.endswith("_at"):
        return moment_of(value)
    return format_duration(value, unknown="") if name in ("wait", "run") else shown(value)


def task_dict(story: TaskStory) -> dict[str, object]:
    """Return a task for JSON; moments are seconds of the epoch."""
    return {
        **{name: foreign_value(value) for name, value in story.task.items()},
        "tries": [_values(each) for each in story.attempts],
        "failures": [_values(each) for each in story.failures],
        **story.payload,
        "events": [each._asdict() for each in timeline(story)],
        "unread": story.unread,
        "notes": story.notes,
    }


def _values(row: Mapping[str, Any]) -> dict[str, object]:
    return {name: foreign_value(value) for name, value in row.items()}
