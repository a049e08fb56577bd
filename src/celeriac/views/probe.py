"""One line for the state of a worker that was probed."""

from typing import TYPE_CHECKING, Final

from celeriac.views.format import format_duration
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.node.probe import Probe

__all__ = ["probe_line"]

_NAME_CHARS: Final = 120
_SHOWN_QUEUES: Final = 10


def probe_line(probe: "Probe", timeout: float) -> str:
    """Return the state of a worker, safe to show."""
    name = visible(probe.name, _NAME_CHARS)
    if probe.error:
        return f"{name}: seen, answers with an error: {visible(probe.error, 300)}"
    if not probe.is_seen:
        return f"{name}: not seen: no heartbeat and no answer within {format_duration(timeout)}"
    if not probe.has_answered:
        return f"{name}: seen by its heartbeat, but no answer within {format_duration(timeout)}"
    if not probe.queues:
        return f"{name}: seen, answers, but consumes from no queue"
    shown = ", ".join(visible(queue, _NAME_CHARS) for queue in probe.queues[:_SHOWN_QUEUES])
    more = len(probe.queues) - _SHOWN_QUEUES
    return f"{name}: seen, answers, consumes from {shown}{f' and {more} more' if more > 0 else ''}"
