"""Questions about a workflow: which tasks a task brought about, and which of them it waited for."""

from typing import Any, Final

from celeriac.core.workflow import Node, Shape, critical_path, in_tree_order, shapes
from celeriac.errors import CallerError
from celeriac.history.edition import Edition
from celeriac.history.span import Days
from celeriac.model.answer import WorkflowStory, WorkflowTask
from celeriac.model.states import FAILURE, REVOKED, SUCCESS

__all__ = ["workflow_story"]

_ROOT: Final = "SELECT coalesce(root_id, uuid) FROM {tasks} WHERE uuid = $uuid ORDER BY day DESC LIMIT 1"
_SUMMARY: Final = """
    SELECT w.name, w.tasks, w.succeeded, w.failed, w.open, w.begin_at, w.end_at, w.critical_path,
        w.critical_run, w.day
    FROM {workflows} AS w WHERE w.root_id = $root ORDER BY w.day DESC LIMIT 1
"""
#: The same of a task that sent no other.
_ALONE: Final = """
    SELECT min(t.name), count(*), count(*) FILTER (WHERE t.state = $succeeded),
        count(*) FILTER (WHERE list_contains($failed, t.state)),
        count(*) FILTER (WHERE t.phase IS DISTINCT FROM 'done'), min(t.first_at), max(t.last_at),
        [$root], NULL, ''
    FROM {tasks} AS t WHERE t.uuid = $root
"""
_MEMBERS: Final = """
    SELECT t.uuid, t.name, t.state, t.worker, t.parent_id, t.first_at, t.last_at, t.runtime, t.started_at,
        coalesce(t.succeeded_at, t.failed_at, t.revoked_at),
        coalesce(list_min([each.at for each in t.history if each.type = 'started']), t.started_at, t.first_at)
    FROM {tasks} AS t WHERE %s = $root ORDER BY t.first_at NULLS LAST, t.uuid LIMIT $limit
"""
#: Two statements: files are passed over by what they say of one column, and not of one or another.
_FIRST, _REST = _MEMBERS % "t.uuid", _MEMBERS % "t.root_id"
_FAILED: Final = [FAILURE, REVOKED]


def workflow_story(edition: Edition, uuid: str, *, limit: int) -> WorkflowStory:
    """Return the workflow whose first task this is, or that it belongs to; CallerError if it is unknown.

    Of a workflow with more than ``limit`` tasks the earliest are told.
    """
    root, summary = _found(edition, uuid)
    name, count, succeeded, failed, unfinished, begin_at, end_at, path, run, day = summary
    # A workflow is filed under the day on which the first of its tasks was seen.
    known, days = {"root": root, "limit": limit}, {"tasks": Days(day)}
    members = edition.ask(_FIRST, known, days)
    if count > 1:
        members += [row for row in edition.ask(_REST, known, days) if row[0] != root]
    rows = {row[0]: row for row in members[:limit]}
    is_cut = count > len(rows)
    nodes = {uuid: _node(row) for uuid, row in rows.items()}
    found = {} if is_cut else shapes(nodes, root)
    is_joined = any(shape.waits_for is not None for shape in found.values())
    if path is not None and is_joined:
        # The tables follow who sent whom, and know of no chords.
        path = critical_path(nodes, root, found)
    critical = frozenset(path or ())
    tasks = [
        _task(rows[uuid], depth, found.get(uuid), is_critical=uuid in critical)
        for uuid, depth in in_tree_order(nodes, root)
    ]
    if is_joined or (len(tasks) == 1 and run is None):
        runs = [each.run for each in tasks if each.is_critical and each.run is not None]
        run = sum(runs) if runs else None
    counts = (count, succeeded, failed, unfinished)
    line = None if path is None else tuple(path)
    return WorkflowStory(root, name, tasks, *counts, begin_at, end_at, line, run, is_cut)


def _found(edition: Edition, uuid: str) -> tuple[str, tuple[Any, ...]]:
    """Return the id of the first task of a workflow, and what is known of the whole."""
    summary = edition.ask(_SUMMARY, {"root": uuid})
    if summary:
        return uuid, summary[0]
    roots = edition.ask(_ROOT, {"uuid": uuid})
    if not roots:
        raise CallerError(
            f"no task {uuid!r} in the tables: check the id, or run celeriac pipeline run if the task is new"
        )
    root = roots[0][0]
    summary = edition.ask(_SUMMARY, {"root": root})
    if summary:
        return root, summary[0]
    return uuid, edition.ask(_ALONE, {"root": uuid, "succeeded": SUCCESS, "failed": _FAILED})[0]


def _node(row: tuple[Any, ...]) -> Node:
    _, _, state, _, parent_id, _, last_at, _, _, ended_at, began_at = row
    return Node(parent_id, ended_at, last_at, began_at, state == SUCCESS)


def _task(row: tuple[Any, ...], depth: int, shape: Shape | None, *, is_critical: bool) -> WorkflowTask:
    uuid, name, state, worker, parent_id, first_at, last_at, runtime, started_at, ended_at, _ = row
    run = runtime
    if run is None and started_at is not None and ended_at is not None:
        run = ended_at - started_at
    told = (uuid, name, state, worker, parent_id, depth, first_at, last_at, run, is_critical)
    return WorkflowTask(*told, *(shape or ()))
