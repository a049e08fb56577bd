"""Finds workers that run tasks without sending task events.

Celery workers send heartbeats always and task events only on request: with ``-E``, the setting
``worker_send_task_events`` or the command ``enable_events``. A monitor shows a worker without task events as
alive and idle, so its numbers are too low and nothing says so.

Heartbeats carry the number of tasks that a worker started (``processed``). The rule: the count rises, and no
task event arrives until some heartbeats later. The delay is needed because workers buffer task events, so a
heartbeat can overtake them. A worker that runs no task stays unknown: there is nothing to send.

A task with ``send_events = False`` counts like any other. A worker that runs no other tasks is reported,
although its task events are on.
"""

from typing import Final

__all__ = ["MAX_WORKERS", "TaskEventCheck"]

#: Workers that are checked: as many as a state has room for by default. Those beyond it stay unknown.
MAX_WORKERS: Final = 5000
#: Heartbeats after the first with a higher count. Celery buffers task events for up to a second and sends a
#: heartbeat every two seconds: more make the report later, fewer make it wrong on a busy broker.
_GRACE: Final = 2


class _Record:
    __slots__ = ("baseline", "pid", "raised", "sends")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: The count at the first heartbeat after the last task event; None until there is one.
        self.baseline: int | None = None
        #: Heartbeats with a higher count than the baseline.
        self.raised = 0
        self.sends: bool | None = None


class TaskEventCheck:
    """Tells for each worker whether it sends task events. It sees events in the order of receipt."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def take_heartbeat(self, hostname: str, pid: int, processed: int | None) -> None:
        """Compare the number of started tasks with the one before."""
        record = self._records.get(hostname)
        if record is None or record.pid != pid:
            if record is None and len(self._records) >= MAX_WORKERS:
                return
            record = self._records[hostname] = _Record(pid)
        if processed is None:  # a heartbeat on request may leave it out
            return
        if record.baseline is None or processed < record.baseline:
            record.baseline, record.raised = processed, 0
        elif processed > record.baseline:
            record.raised += 1
            if record.raised > _GRACE:
                record.sends = False

    def take_task_event(self, hostname: str) -> None:
        """Note a task event of a worker."""
        record = self._records.get(hostname)
        if record is not None:
            record.sends, record.baseline, record.raised = True, None, 0

    def take_gap(self) -> None:
        """Start all comparisons again: task events may be among the missing ones."""
        for record in self._records.values():
            record.baseline, record.raised = None, 0

    def forget(self, hostname: str) -> None:
        """Remove a worker that shut down."""
        self._records.pop(hostname, None)

    def sends(self, hostname: str) -> bool | None:
        """Return whether a worker sends task events; None while that is unknown."""
        record = self._records.get(hostname)
        return None if record is None else record.sends
