"""What a node makes of what the workers of its cluster say to each other."""

from typing import Any, Final, NamedTuple

from celeriac.core import membership as members
from celeriac.core.clock import LamportClock
from celeriac.core.member import Sign
from celeriac.core.membership import Membership, Suspected
from celeriac.core.state import ClusterState
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import (
    Event,
    Other,
    Sent,
    TaskEvent,
    WorkerEvent,
    WorkerHeartbeat,
    WorkerOffline,
    WorkerOnline,
)

__all__ = ["SUSPECT_EVENT", "Effect", "ElectionHeard", "Gossip", "suspicion_fields"]

#: The event by which a node tells that it suspects another.
SUSPECT_EVENT: Final = "cluster-suspect"
#: Messages between nodes about who is to act: no part of a worker's description.
_ELECTION: Final = frozenset({"worker-elect", "worker-elect-ack", "cluster-elected", "cluster-resign"})


class ElectionHeard(NamedTuple):
    """A node says something of an election, ourselves included: what we say comes back with its stamp."""

    event: Other


Effect = members.Effect | ElectionHeard


def suspicion_fields(effect: Suspected) -> dict[str, Any]:
    """Return the fields of the ``cluster-suspect`` event that tells of a suspicion."""
    return {"suspect": effect.hostname, "suspect_pid": effect.pid}


class Gossip:
    """Takes each event that workers send all others: moves the clock, the state and the membership.

    Events of our own, which come back to us as they go to all, only forward the clock. ``state`` is
    changed without its lock: where threads share it, call :meth:`receive` by its ``freeze_while``. Who wants
    to know of the members alone gives none.
    """

    def __init__(
        self, hostname: str, *, clock: LamportClock, membership: Membership, state: ClusterState | None = None
    ) -> None:
        self.hostname = hostname
        self.clock = clock
        self.state = state
        self.membership = membership

    def receive(self, event: Event, now: float, *, received_at: float | None = None) -> list[Effect]:
        """Take one event that came at ``now``.

        ``now`` is the membership's clock. ``received_at`` is by the wall clock, for the state; without it
        the receiver's own note in the event counts.
        """
        if event.hostname == self.hostname:
            self.clock.forward()
            self.membership.echo(event.clock)
            return _of_election(event)
        if type(event) is Sent:
            # Celery: a client has no clock to trust, and it is no member.
            self.clock.receive_client()
            return []
        is_adopted = self.clock.receive(event.clock, peer=event.hostname, alive=self.membership.alive_count)
        if received_at is None:
            received_at = event.local_received
        # A clock that cannot be true must not make what is true look stale.
        clock = event.clock if is_adopted else NO_CLOCK
        if isinstance(event, Other):
            return self._receive_other(event, clock, now, received_at)
        self._apply(event, received_at)
        if isinstance(event, WorkerEvent):
            return [*self.membership.receive(_sign(event, clock), now)]
        return self._hear(event, clock, now) if isinstance(event, TaskEvent) else []

    def tick(self, now: float) -> list[Effect]:
        """Look who is silent for too long."""
        return [*self.membership.tick(now)]

    def _receive_other(self, event: Other, clock: int, now: float, received_at: float | None) -> list[Effect]:
        if event.type == SUSPECT_EVENT:
            self._confirm(event)
            return self._hear(event, clock, now)
        if event.type in _ELECTION:
            return [*self._hear(event, clock, now), *_of_election(event)]
        if event.group != "worker":
            return []
        self._apply(event, received_at)
        return self._hear(event, clock, now)

    def _apply(self, event: Event, received_at: float | None) -> None:
        if self.state is not None:
            self.state.apply(event, received_at)

    def _hear(self, event: Event, clock: int, now: float) -> list[Effect]:
        sign = Sign(event.hostname, pid=event.pid, clock=clock, timestamp=event.timestamp)
        return [*self.membership.receive(sign, now)]

    def _confirm(self, event: Other) -> None:
        suspect, pid = event.get("suspect"), event.get("suspect_pid")
        if isinstance(suspect, str) and isinstance(pid, int):
            self.membership.confirm(suspect, pid=pid, by=event.hostname)


def _of_election(event: Event) -> list[Effect]:
    return [ElectionHeard(event)] if isinstance(event, Other) and event.type in _ELECTION else []


def _sign(event: WorkerEvent, clock: int) -> Sign:
    # Celery: a heartbeat sent on request says freq=5 whatever the true one, and leaves out the load.
    freq = event.freq if event.active is not None else None
    match event:
        case WorkerHeartbeat():
            return Sign(event.hostname, "heartbeat", event.pid, clock, freq, event.timestamp)
        case WorkerOnline():
            return Sign(event.hostname, "online", event.pid, clock, freq, event.timestamp)
        case WorkerOffline():
            return Sign(event.hostname, "offline", event.pid, clock, None, event.timestamp)
        case _:
            return Sign(event.hostname, "other", event.pid, clock, None, event.timestamp)
