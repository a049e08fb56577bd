"""What people ask for on one screen that another one answers; the program hears of it."""

from textual.message import Message

__all__ = ["RevokeWished", "TaskWished", "WorkflowWished"]


class _OfTask(Message):
    """Something about the task of an id, as rows show it."""

    def __init__(self, uuid: str) -> None:
        super().__init__()
        self.uuid = uuid


class TaskWished(_OfTask, namespace="top"):
    """Somebody wants to see a task."""


class WorkflowWished(_OfTask, namespace="top"):
    """Somebody wants to see the workflow that a task is of."""


class RevokeWished(_OfTask, namespace="top"):
    """Somebody wants a task revoked."""
