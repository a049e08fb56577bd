"""Signatures as the dicts that Celery puts into messages."""

from typing import Any, Final

from celeriac.errors import PeerError
from celeriac.model.signature import TaskSignature
from celeriac.wire.task_request import is_task_name

__all__ = ["MAX_MEMBERS", "members_of", "read_signature", "spell_signature"]

#: Tasks of one group or chain. Each is a message that we would have to send on behalf of a peer.
MAX_MEMBERS: Final = 10_000
_MAX_TYPE_CHARS: Final = 64


def read_signature(value: object) -> TaskSignature:
    """Read the dict of a signature; raises PeerError for what is none."""
    if not isinstance(value, dict):
        raise PeerError("signature")
    task, kind = value.get("task"), value.get("subtask_type")
    args, kwargs, options = value.get("args") or (), value.get("kwargs") or {}, value.get("options") or {}
    is_fine = (
        is_task_name(task)
        and isinstance(args, list | tuple)
        and isinstance(kwargs, dict)
        and isinstance(options, dict)
        and (kind is None or (isinstance(kind, str) and len(kind) <= _MAX_TYPE_CHARS))
        and all(isinstance(name, str) for table in (kwargs, options) for name in table)
    )
    if not is_fine:
        raise PeerError("signature")
    return TaskSignature(str(task), tuple(args), kwargs, options, kind or None, bool(value.get("immutable")))


def members_of(signature: TaskSignature) -> tuple[TaskSignature, ...]:
    """Return the signatures that a group or a chain is made of."""
    members = signature.kwargs.get("tasks")
    if not isinstance(members, list | tuple) or len(members) > MAX_MEMBERS:
        raise PeerError("signature")
    return tuple(read_signature(each) for each in members)


def spell_signature(signature: TaskSignature) -> dict[str, Any]:
    """Return a signature as Celery writes it."""
    return {
        "task": signature.task,
        "args": list(signature.args),
        "kwargs": dict(signature.kwargs),
        "options": dict(signature.options),
        "subtask_type": signature.subtask_type,
        "immutable": signature.is_immutable,
    }
