"""What a worker says of its tasks: events for those who watch, lines of log for those who read."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE, REJECTED, RETRY, SUCCESS
from celeriac.node.dispatcher import EventDispatcher
from celeriac.worker.assignment import Assignment
from celeriac.worker.teller import Teller

__all__ = ["TaskReport"]

logger = logging.getLogger("celeriac.task")

#: Of a custom event these are ours to say; the last two are words of who sends it.
_OURS: Final = frozenset(
    {"uuid", "type", "hostname", "utcoffset", "pid", "clock", "timestamp", "blind", "self"}
)


class TaskReport:
    """Tells how tasks go, from any thread, and never raises.

    A task with ``send_events=False`` is told of in the log alone.
    """

    def __init__(self, dispatcher: EventDispatcher) -> None:
        self._teller = Teller(dispatcher)

    def received(self, assignment: Assignment) -> None:
        """Tell that a task came."""
        request = assignment.request
        logger.info("Task %s[%s] received", request.task, request.id)
        self._send(
            assignment,
            "task-received",
            name=request.shadow or request.task,
            args=request.argsrepr,
            kwargs=request.kwargsrepr,
            root_id=request.root_id or request.id,
            parent_id=request.parent_id,
            retries=request.retries,
            eta=_iso(request.eta),
            expires=_iso(request.expires),
        )

    def started(self, assignment: Assignment) -> None:
        """Tell that a task began."""
        self._send(assignment, "task-started")

    def cancelled(self, assignment: Assignment) -> None:
        """Tell that the worker broke a task off, which is run again elsewhere."""
        self._send(assignment, "task-cancelled")

    def ended(self, assignment: Assignment, outcome: Outcome) -> None:
        """Tell how a task ended."""
        name, task_id = assignment.request.task, assignment.request.id
        match outcome.state:
            case state if state == SUCCESS:
                # What it returned is not told: who reads the log need not be who may know it.
                logger.info("Task %s[%s] succeeded in %.6fs", name, task_id, outcome.runtime)
                self._send(assignment, "task-succeeded", result=outcome.text, runtime=outcome.runtime)
            case state if state == RETRY:
                logger.info("Task %s[%s] retry: %s", name, task_id, outcome.text)
                self._send(
                    assignment, "task-retried", exception=outcome.text, traceback=outcome.traceback or ""
                )
            case state if state == FAILURE:
                told = outcome.text if outcome.is_expected else outcome.traceback or outcome.text
                level = logging.INFO if outcome.is_expected else logging.ERROR
                logger.log(level, "Task %s[%s] failed: %s", name, task_id, told)
                self._send(
                    assignment, "task-failed", exception=outcome.text, traceback=outcome.traceback or ""
                )
            case state if state == REJECTED:
                logger.warning("Task %s[%s] rejected: %s", name, task_id, outcome.text)
                self._send(assignment, "task-rejected", requeue=outcome.requeue)
            case _:
                logger.info("Task %s[%s] ended without a result", name, task_id)

    def revoked(self, assignment: Assignment, *, is_expired: bool) -> None:
        """Tell that a task was revoked, or came too late."""
        request, signal_number = assignment.request, assignment.signal_number
        why = "expired" if is_expired else "was revoked" if signal_number is None else "was terminated"
        logger.info("Task %s[%s] %s", request.task, request.id, why)
        self._send(
            assignment,
            "task-revoked",
            terminated=signal_number is not None,
            signum=signal_number,
            expired=is_expired,
        )

    def unknown(self, assignment: Assignment, error: str) -> None:
        """Tell of a task that is not known here."""
        request = assignment.request
        logger.error(
            "Task %s[%s] is not registered in this worker: import the module that defines it, or route it "
            "to a queue of its own",
            request.task,
            request.id,
        )
        # Celery: the only failure that no task-received comes before, and that has no traceback.
        self._send(assignment, "task-failed", exception=error)

    def custom(self, assignment: Assignment, kind: str, fields: Mapping[str, Any]) -> None:
        """Send an event of a task's own."""
        own = {str(name): value for name, value in fields.items() if name not in _OURS}
        self._teller.tell(kind, uuid=assignment.request.id, **own)

    def flush(self) -> None:
        """Send what is gathered."""
        self._teller.flush()

    def _send(self, assignment: Assignment, kind: str, **fields: Any) -> None:
        if assignment.traits.sends_events:
            self._teller.tell(kind, uuid=assignment.request.id, **fields)


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()
