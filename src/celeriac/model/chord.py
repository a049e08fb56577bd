"""What waits for a whole group of tasks, and the tasks it waits for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from celeriac.model.result import Failure, Json

__all__ = ["ChordEnd", "ChordPart", "Gathered"]


class ChordPart(NamedTuple):
    """A task of a group that something waits for, which has ended."""

    group_id: str
    #: Its place in the group; those without one come last.
    group_index: int | None
    task_id: str
    state: str
    result: Json


class Gathered(NamedTuple):
    """All parts of a group, not yet looked at, and how it is nested, if that was saved."""

    parts: list[bytes]
    header: bytes | None = None


class ChordEnd(NamedTuple):
    """A group whose last task has ended, and what is to follow: ours to send, and then to close."""

    #: The task that was the last.
    part: ChordPart
    #: The signature that waited, as a dict.
    body: Mapping[str, Any]
    #: A list of what the tasks returned, in their order: the first argument of the body.
    results: Json = Json(b"[]")
    #: Why the body does not run, if it does not: it has failed in place of the task that did.
    error: Failure | None = None
