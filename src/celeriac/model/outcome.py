"""What came of running a task."""

from typing import NamedTuple

from celeriac.model.result import ResultTree
from celeriac.model.task_request import Posting

__all__ = ["Outcome"]


class Outcome(NamedTuple):
    """How one run of a task ended. All in it can cross from one process to another."""

    #: SUCCESS, FAILURE, RETRY, IGNORED or REJECTED.
    state: str
    #: JSON: what the task returned, or how its failure is stored.
    result: bytes = b"null"
    #: The same for people, cut: what events tell.
    text: str = ""
    traceback: str | None = None
    #: Seconds that the task ran.
    runtime: float = 0.0
    #: Messages to publish before the task counts as ended: its callbacks, its retry.
    postings: tuple[Posting, ...] = ()
    #: The tasks that it started.
    children: tuple[ResultTree, ...] = ()
    #: JSON of the signature that waits for the whole group of this task; empty if none does.
    chord: bytes = b""
    #: The tasks after it in its chain, which fail with it.
    also_failed: tuple[str, ...] = ()
    #: Whether a message that was rejected goes back to its queue.
    requeue: bool = False
    #: Why there was no regular end: ``lost`` (its process died), ``time-limit``, ``terminated``; else empty.
    cause: str = ""
    #: Whether the task says itself that it may fail like this: then it is logged without a trace.
    is_expected: bool = False
