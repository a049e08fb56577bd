"""Asks one worker whether it works: whether it is seen, answers and consumes."""

from typing import NamedTuple

from celeriac.node.inspect import Inspect
from celeriac.wire.worker_setup import decode_queues

__all__ = ["Probe", "probe_worker"]


class Probe(NamedTuple):
    """The state of one worker."""

    name: str
    #: Whether it sent a heartbeat or an answer.
    is_seen: bool
    has_answered: bool
    #: The queues that it consumes from, as it answered.
    queues: tuple[str, ...]
    #: What it answered instead, if it could not say.
    error: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether it answers and consumes from a queue."""
        return self.has_answered and bool(self.queues)


def probe_worker(inspect: Inspect, name: str) -> Probe:
    """Ask a worker for its queues, and listen for its heartbeat meanwhile; one request answers all.

    ``inspect`` has to be for this worker alone.
    """
    replies = inspect.active_queues()
    has_answered = name in replies or name in replies.errors
    return Probe(
        name,
        is_seen=has_answered or name in replies.silent,
        has_answered=has_answered,
        queues=tuple(decode_queues(replies.get(name))),
        error=replies.errors.get(name, ""),
    )
