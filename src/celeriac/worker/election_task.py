"""The topic ``task`` of elections: the winner sends one task."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import CallerError, PeerError
from celeriac.model.election import Election
from celeriac.model.signature import TaskSignature
from celeriac.node.election import FENCING_HEADER, TASK_TOPIC, elected_task_id
from celeriac.node.posting import posting_for
from celeriac.node.sender import TaskSender
from celeriac.node.task import Task
from celeriac.wire.signature import read_signature
from celeriac.worker.mandate import Mandate

__all__ = ["ElectedTask"]

#: What a signature from another node may say of how it is called. Nothing that starts more than itself.
_OPTIONS: Final = frozenset(
    {
        "queue", "exchange", "routing_key", "priority", "countdown", "eta", "expires",
        "time_limit", "soft_time_limit", "ignore_result", "reply_to",
    }
)  # fmt: skip


class ElectedTask:
    """Sends the task of an election, under one id whoever sends it, with the token in a header."""

    def __init__(
        self, sender: TaskSender, *, settings: Settings, tasks: Mapping[str, Task], origin: str
    ) -> None:
        self._sender = sender
        self._settings = settings
        self._tasks = tasks
        self._origin = origin

    def refusal(self, election: Election) -> str:
        """Say why another node may not start this here; empty if it may."""
        if election.topic != TASK_TOPIC:
            return ""  # who added the handler of another topic allows it
        try:
            signature = _read(election.action)
        except PeerError:
            return "its action is no signature of a single task"
        if not any(fnmatchcase(signature.task, pattern) for pattern in self._settings.election_actions):
            return f"task {signature.task} is not named in election_actions"
        return ""

    def send(self, action: object, mandate: Mandate) -> None:
        """Send the task; on return the broker has it."""
        try:
            signature = _read(action)
        except PeerError:
            raise CallerError(
                "the action of an election on 'task' is the signature of a single task"
            ) from None
        task_id = signature.options.get("task_id") or elected_task_id(mandate.id)
        options: Any = {name: value for name, value in signature.options.items() if name in _OPTIONS}
        options |= {"task_id": task_id, "headers": {FENCING_HEADER: mandate.token}}
        posting = posting_for(
            signature.task,
            signature.args,
            signature.kwargs,
            options,
            settings=self._settings,
            task=self._tasks.get(signature.task),
            origin=self._origin,
        )
        if not mandate.still_leader():
            raise CallerError("the time to send it is over, and another may be elected")
        self._sender.post([posting])


def _read(action: object) -> TaskSignature:
    signature = read_signature(action)
    if signature.subtask_type is not None:
        raise PeerError("signature")
    return signature
