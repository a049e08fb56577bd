"""The workflow of a task from what is in memory; :mod:`celeriac.history.workflow` has it from the tables."""

from collections import deque
from typing import Final

from celeriac.core.task import Task
from celeriac.core.workflow import Node, Shape, critical_path, in_tree_order, shapes
from celeriac.model.answer import WorkflowStory, WorkflowTask
from celeriac.model.states import SUCCESS
from celeriac.node.state import State
from celeriac.views.story import workflow_dict
from celeriac.views.text import visible

__all__ = ["live_workflow", "live_workflow_dict"]

#: The most tasks of a workflow that are followed; anyone can send a million under one root.
_MOST: Final = 5000
_NAME_CHARS: Final = 120


def live_workflow(state: State, uuid: str) -> WorkflowStory | None:
    """Return the workflow that a task is of; None if nothing is known of the task.

    Ids are as peers have them, as they are in what the tables tell; all other texts are safe to show.
    """
    task: Task | None = state.tasks.get(uuid)
    root = uuid if task is None else task.root_id or uuid
    members, is_cut = state.freeze_while(_members, state, root)
    if not members:
        return None
    nodes = {uuid: _node(each) for uuid, each in members.items()}
    # Part of the tasks tell neither how many were sent together nor which of them all ended last.
    found = {} if is_cut else shapes(nodes, root)
    path = None if is_cut else critical_path(nodes, root, found)
    critical = frozenset(path or ())
    tasks = [
        _told(members[each], depth, found.get(each), is_critical=each in critical)
        for each, depth in in_tree_order(nodes, root)
    ]
    first = members.get(root)
    runs = [each.run for each in tasks if each.is_critical and each.run is not None]
    is_done = {each: task.phase == "done" for each, task in members.items()}
    succeeded = sum(task.state == SUCCESS for task in members.values())
    return WorkflowStory(
        root_id=root,
        name=None if first is None else _shown(first.name),
        tasks=tasks,
        size=len(tasks),
        succeeded=succeeded,
        failed=sum(is_done.values()) - succeeded,
        open=len(tasks) - sum(is_done.values()),
        begin_at=min((each.begin_at for each in tasks if each.begin_at is not None), default=None),
        end_at=None
        if is_cut
        else max((each.end_at for each in tasks if each.end_at is not None), default=None),
        critical_path=path,
        critical_run=sum(runs) if runs else None,
        is_cut=is_cut,
    )


def live_workflow_dict(story: WorkflowStory) -> dict[str, object]:
    """Return a workflow for JSON: every text is safe to show, and ids themselves are beside, as keys."""
    path = story.critical_path
    tasks = [
        each._asdict() | {"uuid": _shown(each.uuid), "key": each.uuid, "parent_id": _shown(each.parent_id)}
        for each in story.tasks
    ]
    return workflow_dict(story) | {
        "root_id": _shown(story.root_id),
        "root_key": story.root_id,
        "critical_path": None if path is None else [_shown(each) for each in path],
        "tasks": tasks,
    }


def _members(state: State, root: str) -> tuple[dict[str, Task], bool]:
    """Return the tasks below one, and itself, those nearest first; and whether there are more."""
    found: dict[str, Task] = {}
    waiting = deque([root])
    seen = {root}
    while waiting and len(found) < _MOST:
        uuid = waiting.popleft()
        task = state.tasks.get(uuid)
        if task is not None:
            found[uuid] = task
        children = sorted(state.children_of(uuid), key=lambda child: (_first_at(child) or 0.0, child.uuid))
        for child in children:
            if child.uuid not in seen:
                seen.add(child.uuid)
                waiting.append(child.uuid)
    return found, bool(waiting)


def _node(task: Task) -> Node:
    began_at = task.first("started")
    return Node(
        parent_id=task.parent_link,
        ended_at=_ended_at(task),
        last_at=_last_at(task),
        began_at=_first_at(task) if began_at is None else began_at,
        has_returned=task.state == SUCCESS,
    )


def _told(task: Task, depth: int, shape: Shape | None, *, is_critical: bool) -> WorkflowTask:
    started_at, ended_at = task.started, _ended_at(task)
    took = None if started_at is None or ended_at is None or ended_at < started_at else ended_at - started_at
    return WorkflowTask(
        uuid=task.uuid,
        name=_shown(task.name),
        state=visible(task.state, 40),
        worker=_shown(task.host),
        parent_id=task.parent_link,
        depth=depth,
        begin_at=_first_at(task),
        end_at=_last_at(task),
        run=took if task.runtime is None else task.runtime,
        is_critical=is_critical,
        kind=shape and shape.kind,
        group=shape and shape.group,
        waits_for=shape and shape.waits_for,
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else visible(text, _NAME_CHARS)


def _ended_at(task: Task) -> float | None:
    return task.timestamp if task.phase == "done" else None


def _first_at(task: Task) -> float | None:
    return min((event.timestamp for event in task.history if event.timestamp > 0), default=None)


def _last_at(task: Task) -> float | None:
    return max((event.timestamp for event in task.history if event.timestamp > 0), default=None)
