"""What an election that sends a task has in common, whoever sends it."""

from typing import Final
from uuid import UUID, uuid5

__all__ = ["FENCING_HEADER", "TASK_TOPIC", "elected_task_id"]

#: Celery: the topic whose action is a signature, which the winner sends.
TASK_TOPIC: Final = "task"

#: The header of a message that says under which token it was sent.
FENCING_HEADER: Final = "fencing"
_NAMESPACE: Final = UUID("6f0d9a3e-6a0b-5c56-9d0f-2b6f1c9a7e11")


def elected_task_id(election_id: str) -> str:
    """Return the id of the task that an election sends: the same, whoever wins."""
    return str(uuid5(_NAMESPACE, election_id))
