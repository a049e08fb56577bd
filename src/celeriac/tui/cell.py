"""Rows of :mod:`celeriac.views` as cells of a listing: plain text in colour, in which nothing is markup."""

from typing import Final

from rich.text import Text

from celeriac.model.states import FAILURE, PENDING, RECEIVED, REJECTED, RETRY, REVOKED, STARTED, SUCCESS
from celeriac.tui.listing import Column
from celeriac.views.family import FamilyRow, more_text
from celeriac.views.format import format_duration, format_time
from celeriac.views.story import WorkflowRow
from celeriac.views.task_list import ListedTask
from celeriac.views.text import number_text
from celeriac.views.worker import LiveWorker

__all__ = [
    "RELATIVES",
    "TASKS",
    "WORKERS",
    "WORKFLOW",
    "named",
    "relative_cells",
    "style_of",
    "task_cells",
    "told",
    "worker_cells",
    "workflow_cells",
]

_STYLES: Final = {
    SUCCESS: "green",
    FAILURE: "bold red",
    RETRY: "yellow",
    REJECTED: "yellow",
    REVOKED: "magenta",
    STARTED: "cyan",
    RECEIVED: "blue",
    PENDING: "dim",
    "ALIVE": "green",
    "SUSPECT": "bold yellow",
    "LOST": "bold red",
    "LEFT": "dim",
}
_UNKNOWN: Final = "(unknown)"

#: A terminal of 80 columns has room for what has no least width.
WORKERS: Final = (
    Column("WORKER", share=3),
    Column("STATUS", width=8),
    Column("ACTIVE", width=7),
    Column("PROCESSED", width=9),
    Column("LOAD", width=6),
    Column("LAST SEEN", width=9),
    Column("CLOCK", width=11, least=110),
    Column("SOFTWARE", width=18, least=130),
    Column("REASON", share=2),
)
TASKS: Final = (
    Column("TIME", width=8),
    Column("STATE", width=9),
    Column("TASK", share=3),
    Column("ID", width=8, least=95),
    Column("WORKER", share=2),
    Column("RUN", width=9),
    Column("ATTEMPTS", width=8, least=110),
    Column("ARGS", share=2, least=120),
    Column("OUTCOME", share=3),
)
RELATIVES: Final = (
    Column("RELATION", width=10),
    Column("STATE", width=13),
    Column("TASK", share=2),
    Column("ID", share=1),
)
WORKFLOW: Final = (
    Column("TASK", share=4),
    Column("STATE", width=9),
    Column("WORKER", share=2),
    Column("BEGIN", width=9),
    Column("RUN", width=9),
    Column("*", width=1),
    Column("KIND", width=13, least=90),
    Column("ID", share=2, least=110),
)


def told(value: object) -> Text:
    """Return a text that is shown as it is; an empty one for None."""
    return Text("" if value is None else str(value))


def style_of(state: str | None) -> str:
    """Return the style of a state, or of what a worker is held for."""
    return _STYLES.get(state or "", "")


def named(name: str | None) -> Text:
    """Return a name, also of what nobody heard the name."""
    return Text(_UNKNOWN, style="dim") if name is None else Text(name)


def worker_cells(row: LiveWorker) -> list[Text]:
    """Return what is shown of a worker."""
    return [
        told(row.name),
        Text(row.liveness, style=style_of(row.liveness)),
        told(row.active),
        told(None if row.processed is None else f"{row.processed:,}"),
        told(None if row.load is None else number_text(row.load[0])),
        _time(row.seen_at),
        told(row.clock),
        told(row.software),
        Text("clock skew", style="yellow") if row.is_drifting else told(row.reason),
    ]


def task_cells(row: ListedTask) -> list[Text]:
    """Return what is shown of a task in a list."""
    return [
        _time(row.state_at),
        Text(row.state, style=style_of(row.state)),
        named(row.name),
        told(row.uuid[:8]),
        told(row.worker),
        told(format_duration(row.runtime, unknown="")),
        told(row.attempts),
        told(" ".join(each for each in (row.args, row.kwargs) if each)),
        told(row.outcome),
    ]


def relative_cells(row: tuple[str, FamilyRow]) -> list[Text]:
    """Return what is shown of a relative, below the branches that lead to it."""
    branch, relative = row
    state = relative.state or "not in memory"
    more = more_text(relative)
    return [
        told(relative.kin),
        Text(state, style=style_of(relative.state)),
        Text(branch, style="dim") + named(relative.name) + Text(f" ({more})" if more else "", style="dim"),
        told(relative.uuid),
    ]


def workflow_cells(row: tuple[str, WorkflowRow]) -> list[Text]:
    """Return what is shown of a task in its workflow, below the branches that lead to it."""
    branch, told_of = row
    name = Text(branch, style="dim") + Text(told_of.task, style="bold" if told_of.critical else "")
    return [
        name,
        Text(told_of.state, style=style_of(told_of.state)),
        told(told_of.worker),
        told("" if told_of.begin is None else f"+{format_duration(told_of.begin)}"),
        told(format_duration(told_of.run, unknown="")),
        told(told_of.critical),
        told(told_of.kind),
        told(told_of.id),
    ]


def _time(at: float | None) -> Text:
    """Return the time of day to the second."""
    return Text(format_time(at or None, None, unknown="--:--:--.---")[:8])
