"""Rows for one task and for one workflow. Every text is safe to show; moments are ISO 8601 in UTC."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from celeriac.model.answer import TaskStory, WorkflowStory
from celeriac.views.cell import foreign_cell, foreign_value, moment_of, name_text, number_of, shown, text_of
from celeriac.views.text import duration_text, visible_lines

__all__ = [
    "WorkflowRow",
    "attempt_rows",
    "task_dict",
    "task_lines",
    "workflow_dict",
    "workflow_lines",
    "workflow_rows",
]

_TEXT_CHARS: Final = 400


class WorkflowRow(NamedTuple):
    """A task of a workflow; ``begin`` is seconds after that of the workflow."""

    task: str
    state: str
    worker: str
    begin: float | None
    run: float | None
    critical: str
    id: str


def workflow_rows(story: WorkflowStory) -> list[WorkflowRow]:
    """Return a row for each task, set in below the one that sent it."""
    begin_at = story.begin_at
    return [
        WorkflowRow(
            f"{'  ' * min(each.depth, 20)}{name_text(each.name)}",
            text_of(each.state),
            text_of(each.worker),
            None if begin_at is None or each.begin_at is None else number_of(each.begin_at - begin_at),
            number_of(each.run),
            "*" if each.is_critical else "",
            text_of(each.uuid),
        )
        for each in story.tasks
    ]


def workflow_lines(story: WorkflowStory) -> list[tuple[str, str]]:
    """Return what is known of a workflow, by name."""
    counts = f"{story.size:,}: {story.succeeded:,} succeeded, {story.failed:,} failed, {story.open:,} open"
    critical = "" if story.critical_path is None else f"{len(story.critical_path)} tasks"
    ran = f", which ran {duration_text(story.critical_run)}" if story.critical_run is not None else ""
    lines = {
        "workflow": text_of(story.root_id),
        "name": name_text(story.name),
        "tasks": counts,
        "shown": f"{len(story.tasks):,}, as there are too many" if story.is_cut else "",
        "began": moment_of(story.begin_at) or "",
        "took": duration_text(story.makespan),
        "critical path": f"{critical}{ran}" if critical else "not followed, as there are too many tasks",
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
        lines.append(("runtime", duration_text(task["runtime"])))
    for name, text in story.payload.items():
        first, *rest = visible_lines(text, _TEXT_CHARS) or [""]
        lines += [(name, first), *(("", line) for line in rest)]
    return lines


_ATTEMPT: Final = ("retries", "worker", "pid", "started_at", "ended_at", "outcome", "wait", "run")


def attempt_rows(story: TaskStory) -> tuple[tuple[str, ...], list[list[object]]]:
    """Return heads and rows of the attempts of a task, with what each raised."""
    raised = {each["raised_at"]: each["exception"] for each in story.failures}
    rows = [
        [moment_of(each[name]) if name.endswith("_at") else shown(each[name]) for name in _ATTEMPT]
        + [text_of(raised.get(each["ended_at"]))]
        for each in story.attempts
    ]
    return (*(name.removesuffix("_at") for name in _ATTEMPT), "exception"), rows


def task_dict(story: TaskStory) -> dict[str, object]:
    """Return a task for JSON; moments are seconds of the epoch."""
    return {
        **{name: foreign_value(value) for name, value in story.task.items()},
        "tries": [_values(each) for each in story.attempts],
        "failures": [_values(each) for each in story.failures],
        **story.payload,
        "notes": story.notes,
    }


def _values(row: Mapping[str, Any]) -> dict[str, object]:
    return {name: foreign_value(value) for name, value in row.items()}
