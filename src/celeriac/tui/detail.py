"""One task as it is written on its screen: what is known of it, its events, attempts and traceback."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from celeriac.tui.cell import named, style_of, told
from celeriac.views.format import format_duration, format_time
from celeriac.views.log import moment_text
from celeriac.views.task import AttemptRow, TaskDetail, TaskEventRow

__all__ = ["detail_text", "detail_title"]


def detail_title(detail: TaskDetail) -> Text:
    """Return the name, the id and the state of a task."""
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(" task ", style="reverse bold")
    title.append("  ")
    title.append_text(named(detail.task.name))
    title.append(f"  {detail.task.uuid}  ")
    title.append(detail.task.state, style=style_of(detail.task.state))
    return title


def detail_text(detail: TaskDetail) -> RenderableType:
    """Return all else that is known of a task. Nothing in it is markup."""
    parts: list[RenderableType] = [_facts(detail)]
    parts += [_head("EVENT HISTORY"), _events(detail.events)]
    if detail.attempts:
        parts += [_head("ATTEMPTS"), _attempts(detail.attempts)]
    if detail.traceback:
        parts += [_head("TRACEBACK"), *(Text(line) for line in detail.traceback)]
    if detail.family.notes:
        parts += [_head("RELATED TASKS"), *(Text(note) for note in detail.family.notes)]
    return Group(*parts)


def _facts(detail: TaskDetail) -> Table:
    task = detail.task
    facts = {
        "phase": f"{detail.phase}, {task.state} since {moment_text(task.state_at) or 'unknown'}",
        "worker": task.worker,
        "client": detail.client,
        "queue": task.queue,
        "ran": format_duration(task.runtime, unknown="") or None,
        "runs": f"{detail.deliveries} deliveries, {detail.executions} executions",
        "eta": detail.eta,
        "expires": detail.expires,
        "root": detail.root_id,
        "parent": detail.parent_id,
        "args": detail.args,
        "kwargs": detail.kwargs,
        "result": detail.result,
        "exception": detail.exception,
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact is not None:
            table.add_row(Text(name), Text(fact))
    if detail.is_conflict:
        table.add_row(Text("conflict"), Text("events report several ends", style="bold yellow"))
    return table


def _events(rows: Sequence[TaskEventRow]) -> Table:
    table = _table("TIME", "CLOCK", "EVENT", "NODE", "PID", "DETAIL")
    for row in rows:
        table.add_row(
            Text(format_time(row.at, None, unknown="")),
            told(row.clock),
            told(row.type),
            told(row.node),
            told(row.pid or None),
            told(row.detail),
        )
    return table


def _attempts(rows: Sequence[AttemptRow]) -> Table:
    table = _table("ATTEMPT", "WORKER", "PID", "STARTED", "WAITED", "RAN", "OUTCOME")
    for row in rows:
        table.add_row(
            told(row.number + 1),
            told(row.worker),
            told(row.pid or None),
            Text(format_time(row.started_at, None, unknown="")),
            told(format_duration(row.wait, unknown="")),
            told(format_duration(row.run, unknown="")),
            told(row.outcome or "open"),
        )
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _head(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
