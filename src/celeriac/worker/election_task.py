"""The topic ``task`` of elections: the winner sends one task."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from celeriac.errors import CallerError, PeerError
from celeriac.model.election import Election
from celeriac.model.signature import TaskSignature
from celeriac.node.election import FENCING_HEADER, TASK_TOPIC, elected_task_id
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
    """Has the task of an election sent, under one id whoever sends it, with the token in a header.

    ``actions`` are the names, or patterns of names, of tasks that other nodes may have sent.
    """

    def __init__(self, send: Callable[[TaskSignature], object], *, actions: Sequence[str]) -> None:
        self._send = send
        self._actions = actions

    def refusal(self, election: Election) -> str:
        """Say why another node may not have this sent; empty if it may."""
        if election.topic != TASK_TOPIC:
            return ""  # who added the handler of another topic allows it
        try:
            signature = _read(election.action)
        except PeerError:
            return "the action is not a signature of a single task"
        if not any(fnmatchcase(signature.task, pattern) for pattern in self._actions):
            return f"task {signature.task} is not listed in election_actions"
        return ""

    def send(self, action: object, mandate: Mandate) -> None:
        """Send the task; on return the broker has it."""
        try:
            signature = _read(action)
        except PeerError:
            raise CallerError(
                "the action of an election on 'task' must be the signature of a single task"
            ) from None
        options = {name: value for name, value in signature.options.items() if name in _OPTIONS}
        options["task_id"] = signature.options.get("task_id") or elected_task_id(mandate.id)
        options["headers"] = {FENCING_HEADER: mandate.token}
        if not mandate.still_leader():
            raise CallerError("the lease expired before the task was sent, and another node may be elected")
        self._send(signature._replace(options=options))


def _read(action: object) -> TaskSignature:
    signature = read_signature(action)
    if signature.subtask_type is not None:
        raise PeerError("signature")
    return signature
