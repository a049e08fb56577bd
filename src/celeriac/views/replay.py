"""A cluster as it was."""

from collections.abc import Iterable

from celeriac.model.events import Event, Gap
from celeriac.node.state import State
from celeriac.views.cluster import task_rows, totals, worker_rows
from celeriac.views.event import event_dict
from celeriac.views.log import moment_text

__all__ = ["past_dict"]


def past_dict(state: State, *, as_of: float, gaps: Iterable[Gap], last: Iterable[Event]) -> dict[str, object]:
    """Return what a cluster was as of a moment, for JSON; tasks newest first, events oldest first."""
    return {
        "as_of": as_of or None,
        "as_of_text": moment_text(as_of),
        "totals": totals(state)._asdict(),
        "workers": [row._asdict() for row in worker_rows(state)],
        "tasks": [row._asdict() for row in task_rows(state)],
        "gaps": [event_dict(gap) for gap in gaps],
        "last_events": [event_dict(event) for event in last],
    }
