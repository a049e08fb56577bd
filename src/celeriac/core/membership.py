"""Who is there: an accrual failure detector that distrusts itself first.

Every node hears all others through one broker, so nobody can look at a peer by another way. Two
things can be done: to learn how regular a peer is, and to know when it is our own ears that fail.
What comes of it is advice. Nothing that must be safe may depend on it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from celeriac.core.arrival import Gaps, deviations, phi
from celeriac.core.health import LocalHealth
from celeriac.core.member import (
    Farewell,
    Liveness,
    Member,
    Sign,
    is_later,
    is_not_before,
    is_of,
    is_restart,
)
from celeriac.errors import CallerError
from celeriac.model.clock import NO_CLOCK

__all__ = [
    "PULSE",
    "Effect",
    "Joined",
    "Left",
    "Liveness",
    "Lost",
    "Member",
    "Membership",
    "Refuted",
    "Sign",
    "Suspected",
    "lost_after",
    "suspect_after",
]

#: How often :meth:`Membership.tick` is to be called: that much later at most is a loss noticed.
PULSE: Final = 0.5
#: A silence that a regular peer would show once in 10^8 heartbeats is suspect.
PHI: Final = 8.0
#: But none shorter than so many heartbeats: two that are lost are no news.
SILENCE: Final = 3.0
#: So many heartbeats a suspect has to show itself. With the three before, the time to look
#: and a heartbeat of 2 s it is lost 10 s after it last spoke, and few that live are silent so long.
SUSPICION: Final = 1.75
#: So many heartbeats after our link was made again nobody is judged.
GRACE: Final = 2.0
#: A longer gap, in heartbeats, is a loss and no measure of how regular a peer is.
LONGEST_GAP: Final = 6.0
#: Whoever beats faster is judged like this: we look no closer.
LEAST_FREQUENCY: Final = 1.0
#: Who is gone so long is forgotten. No queue keeps a stale message for nearly as long.
FORGET_AFTER: Final = 3600.0
#: Others that can confirm one suspicion: as many as there are doubts to outweigh.
MAX_CONFIRMATIONS: Final = 8

_DEVIATIONS: Final = deviations(PHI)


def suspect_after(freq: float) -> float:
    """Return after how long a silence a node is suspect, where only its frequency is known."""
    return SILENCE * max(freq, LEAST_FREQUENCY)


def lost_after(freq: float) -> float:
    """Return after how long a silence a node is lost, where only its frequency is known."""
    return (SILENCE + SUSPICION) * max(freq, LEAST_FREQUENCY)


class Joined(NamedTuple):
    """A node is there: new, or back."""

    hostname: str
    pid: int


class Left(NamedTuple):
    """A node said farewell."""

    hostname: str
    pid: int


class Lost(NamedTuple):
    """A node is gone without a farewell."""

    hostname: str
    pid: int
    reason: str


class Suspected(NamedTuple):
    """A node is silent for too long: ping it, and tell the others (``cluster-suspect``)."""

    hostname: str
    pid: int
    phi: float
    #: For how many seconds it is silent, without the time when we could not hear.
    silence: float


class Refuted(NamedTuple):
    """A suspect showed itself."""

    hostname: str
    pid: int


Effect = Joined | Left | Lost | Suspected | Refuted


class Membership:
    """The nodes of a cluster as this one hears them, itself included.

    Joins on the one hand, leaves and losses on the other take turns for each node. What was sent
    before a farewell cannot bring a node back. Time when we could not hear is nobody's silence:
    without a link no one is lost. At most ``max_members`` are known; those gone longest are
    forgotten first, and while all are there newcomers are turned away. ``now`` is a clock that does
    not go back; :meth:`tick` is called every ``pulse`` seconds.
    """

    def __init__(
        self,
        hostname: str,
        *,
        pid: int = 0,
        freq: float = 2.0,
        pulse: float = PULSE,
        max_members: int = 5000,
        now: float = 0.0,
    ) -> None:
        if freq <= 0 or pulse <= 0 or max_members < 1:
            raise CallerError("freq and pulse must be above 0, and max_members at least 1")
        self.hostname = hostname
        self.max_members = max_members
        #: How far we trust ourselves.
        self.health = LocalHealth(period=freq, pulse=pulse, now=now)
        #: Messages that told nothing new of a node that is gone, or of a process replaced by another.
        self.stale = 0
        #: Newcomers for whom there was no room.
        self.turned_away = 0
        self._pulse = pulse
        self._own = Member(hostname, pid=pid, now=now)
        self._own.reason, self._own.freq = "own node", freq
        self._present: dict[str, Member] = {}
        #: In the order they went.
        self._gone: OrderedDict[str, Member] = OrderedDict()
        self._farewells: OrderedDict[tuple[str, int | None], Farewell] = OrderedDict()

    # -- what people ask

    @property
    def members(self) -> Mapping[str, Member]:
        """All nodes that are known, by name, this one first."""
        return {self.hostname: self._own, **self._present, **self._gone}

    @property
    def alive_count(self) -> int:
        """How many nodes are there, this one included."""
        return 1 + len(self._present)

    def alive(self) -> list[Member]:
        """Return the nodes that are there, this one first and suspects among them."""
        return [self._own, *self._present.values()]

    def phi(self, hostname: str, now: float) -> float:
        """Return how unlikely the present silence of a node is; 0 for one that is not there."""
        member = self._present.get(hostname)
        if member is None:
            return 0.0
        mean, deviation = _regularity(member)
        return phi(self._silence(member, now), mean=mean, deviation=deviation)

    # -- what happens

    def receive(self, sign: Sign, now: float) -> list[Effect]:
        """Take a message of a node; one of our own tells nothing."""
        if sign.hostname == self.hostname:
            return []
        farewell = self._farewells.get((sign.hostname, sign.pid))
        if farewell is not None and not is_later(sign, farewell):
            return self._drop()
        member = self._present.get(sign.hostname)
        if sign.subject == "offline":
            return self._receive_farewell(sign, member, now)
        if member is not None:
            return self._receive_of_present(sign, member, now)
        former = self._gone.get(sign.hostname)
        return self._join(sign, now) if former is None or is_later(sign, former) else self._drop()

    def confirm(self, hostname: str, *, pid: int, by: str) -> None:
        """Note that another node suspects a node, too: it counts until that is heard of again.

        Only nodes that are there count, each once.
        """
        member = self._present.get(hostname)
        is_witness = by in self._present and by != hostname
        if member is None or member.pid != pid or not is_witness:
            return
        if len(member.confirmed_by) < MAX_CONFIRMATIONS:
            member.confirmed_by.add(by)

    def tick(self, now: float) -> list[Effect]:
        """Look who is silent for too long."""
        self.health.tick(now)
        self._own.heard_at = now
        self._forget(now)
        if not self.health.can_judge(now):
            return []
        silent = [member for member in self._present.values() if now - member.heard_at > member.patience]
        judged = [self._judge(member, now) for member in silent]
        return [effect for effect in judged if effect is not None]

    def lagged(self, seconds: float, now: float) -> None:
        """Note that we were stalled for so long until now, where that shows elsewhere than in late ticks."""
        self.health.lagged(seconds, now)

    def disconnected(self, now: float) -> None:
        """Note that we hear nobody any more."""
        self.health.disconnected(now)

    def reconnected(self, now: float) -> None:
        """Note that we hear again."""
        self.health.reconnected(now)

    def beat(self, clock: int, now: float) -> None:
        """Note that our own heartbeat left, with this stamp."""
        self.health.beat(clock, now)

    def echo(self, clock: int) -> None:
        """Note that our own event with this stamp came back to us."""
        self.health.echo(clock)

    # -- those that are there

    def _join(self, sign: Sign, now: float) -> list[Effect]:
        self._gone.pop(sign.hostname, None)
        if len(self._present) + len(self._gone) >= self.max_members:
            if not self._gone:
                self.turned_away += 1
                return []
            self._gone.popitem(last=False)
        # A process that began anew under its old pid is not to be measured by its former farewell.
        self._farewells.pop((sign.hostname, sign.pid), None)
        member = self._present[sign.hostname] = Member(sign.hostname, pid=sign.pid or 0, now=now)
        self._set_frequency(member, member.freq)
        self._hear(sign, member, now)
        return [Joined(member.hostname, member.pid)]

    def _receive_of_present(self, sign: Sign, member: Member, now: float) -> list[Effect]:
        if not is_of(sign, member):
            return self._receive_of_another(sign, member, now)
        if is_restart(sign, member):
            return [self._lose(member, "restarted", now), *self._join(sign, now)]
        return self._hear(sign, member, now)

    def _hear(self, sign: Sign, member: Member, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if member.state is Liveness.SUSPECT:
            member.become(Liveness.ALIVE, "heartbeat received again", now)
            effects.append(Refuted(member.hostname, member.pid))
        if member.confirmed_by:
            member.confirmed_by.clear()
        member.heard_at = now
        if sign.subject != "other":
            if not member.is_announced:
                member.is_announced, member.pid = True, sign.pid or 0
                # Celery: a heartbeat sent on request says nothing true of the frequency.
                self._set_frequency(member, self._own.freq)
            if sign.freq is not None and (sign.clock > member.clock or sign.clock == NO_CLOCK):
                self._measure(member, sign.freq, now)
        if sign.clock > member.clock:
            member.clock, member.said_at = sign.clock, sign.timestamp
        elif sign.clock == NO_CLOCK and sign.timestamp > member.said_at:
            member.said_at = sign.timestamp
        return effects

    def _measure(self, member: Member, freq: float, now: float) -> None:
        """Learn from a regular heartbeat."""
        if member.beat_at is not None:
            gap = now - member.beat_at - self.health.stalled_since(member.beat_at, now)
            if 0 < gap <= LONGEST_GAP * freq:
                member.gaps.add(gap)
        member.beat_at = now
        self._set_frequency(member, freq)

    def _set_frequency(self, member: Member, freq: float) -> None:
        member.freq = max(freq, LEAST_FREQUENCY)
        mean, deviation = _regularity(member)
        # Where phi passes its bound, solved for the silence: nothing is to be computed while it lasts.
        member.patience = max(SILENCE * member.freq, mean + _DEVIATIONS * deviation)

    def _receive_of_another(self, sign: Sign, member: Member, now: float) -> list[Effect]:
        """Take a message of a process that has the name of a node that is there, but is not it.

        A heartbeat alone does not replace a node that lives: two nodes under one name would take
        turns for ever.
        """
        # Celery: events that task code sends carry the pid of the child that runs it.
        if sign.subject == "other":
            return []
        if not is_later(sign, member) or (sign.subject != "online" and member.state is Liveness.ALIVE):
            return self._drop()
        return [self._lose(member, f"replaced by process {sign.pid}", now), *self._join(sign, now)]

    def _silence(self, member: Member, now: float) -> float:
        return now - member.heard_at - self.health.stalled_since(member.heard_at, now)

    def _judge(self, member: Member, now: float) -> Effect | None:
        if now < self.health.reconnected_at + GRACE * member.freq:
            return None
        silence = self._silence(member, now)
        if member.state is Liveness.ALIVE:
            excess = silence - member.patience
            if excess <= 0:
                return None
            # It counts from when it was due, not from when we looked; but a ping has its chance.
            member.suspect_at = now - min(excess, self._pulse)
            member.become(Liveness.SUSPECT, f"silent for {silence:.1f} s", now)
            level = self.phi(member.hostname, now)
            return Suspected(member.hostname, member.pid, phi=level, silence=silence)
        waited = now - member.suspect_at - self.health.stalled_since(member.suspect_at, now)
        if waited < self._suspicion(member):
            return None
        return self._lose(member, f"silent for {silence:.1f} s", now)

    def _suspicion(self, member: Member) -> float:
        """Return how long a suspect has to show itself.

        The less we trust ourselves the longer; what others confirm outweighs our doubts. It never makes
        the time shorter than a healthy node gives: when a peer stalls, all of us hear the same silence.
        """
        doubts = max(0, self.health.score - len(member.confirmed_by))
        return SUSPICION * member.freq * (1 + doubts)

    # -- those that are gone

    def _receive_farewell(self, sign: Sign, member: Member | None, now: float) -> list[Effect]:
        self._farewells[sign.hostname, sign.pid] = Farewell(sign.pid or 0, sign.clock, sign.timestamp, now)
        self._farewells.move_to_end((sign.hostname, sign.pid))
        if len(self._farewells) > self.max_members:
            self._farewells.popitem(last=False)
        known = member or self._gone.get(sign.hostname)
        if known is None or not is_of(sign, known) or not is_not_before(sign, known):
            return []
        known.pid = sign.pid or 0
        known.clock, known.said_at = max(known.clock, sign.clock), max(known.said_at, sign.timestamp)
        if member is None:
            # It was lost, as was said; now it is known why.
            known.become(Liveness.LEFT, "shut down cleanly", now)
            self._gone.move_to_end(known.hostname)
            return []
        self._end(known, Liveness.LEFT, "shut down cleanly", now)
        return [Left(known.hostname, known.pid)]

    def _lose(self, member: Member, reason: str, now: float) -> Lost:
        self._end(member, Liveness.LOST, reason, now)
        return Lost(member.hostname, member.pid, reason)

    def _end(self, member: Member, state: Liveness, reason: str, now: float) -> None:
        del self._present[member.hostname]
        self._gone[member.hostname] = member
        member.become(state, reason, now)
        member.confirmed_by.clear()
        member.gaps = Gaps()

    def _forget(self, now: float) -> None:
        while self._gone and next(iter(self._gone.values())).since_at < now - FORGET_AFTER:
            self._gone.popitem(last=False)
        while self._farewells and next(iter(self._farewells.values())).heard_at < now - FORGET_AFTER:
            self._farewells.popitem(last=False)

    def _drop(self) -> list[Effect]:
        self.stale += 1
        return []


def _regularity(member: Member) -> tuple[float, float]:
    """Return the mean and the deviation of a node's gaps, neither less than an honest one can keep."""
    freq, gaps = member.freq, member.gaps
    return max(gaps.mean(freq), freq), max(gaps.deviation(freq), freq / 4)
