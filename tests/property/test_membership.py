"""The laws of membership, whatever is lost, late or doubled, and however ill the observer is.

Beside the membership runs a plain ledger, which knows what was said, what was heard, and for how long
the observer could hear.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from celeriac.core.health import MAX_SCORE
from celeriac.core.member import Liveness, Sign
from celeriac.core.membership import (
    GRACE,
    PULSE,
    SILENCE,
    SUSPICION,
    Effect,
    Joined,
    Left,
    Lost,
    Membership,
    Refuted,
    Suspected,
)
from tests.property.effort import COSTLY

US = "us@here"
FREQ = 2.0
HOSTS = ("a@there", "b@there", "c@there")

hosts = st.sampled_from(HOSTS)
subjects = st.sampled_from(("online", "heartbeat", "heartbeat", "offline", "other"))


@dataclass
class Host:
    """A node of the world: the process it runs, and what the observer was told of it."""

    name: str
    pid: int = 1
    clock: int = 0
    #: The process that is there, as the effects have it.
    joined: int | None = None
    #: Whether that process spoke for itself; else its pid is a guess.
    is_announced: bool = False
    is_suspect: bool = False
    #: For how long the observer could hear since it heard of it.
    silence: float = 0.0
    #: By process: the highest stamp heard while it was there, and that of a farewell.
    known: dict[int, int] = field(default_factory=dict)
    farewells: dict[int, int] = field(default_factory=dict)


class MembershipMachine(RuleBasedStateMachine):
    """Any interleaving of what nodes say, what arrives of it, and what befalls the observer."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.membership = Membership(US, freq=FREQ)
        self.membership.tick(self.now)
        self.world = {name: Host(name) for name in HOSTS}
        self.said: list[Sign] = []
        self.is_connected = True
        self.reconnected_at = -1000.0

    # -- what nodes do

    @rule(name=hosts, subject=subjects, arrives=st.booleans())
    def say(self, name: str, subject: str, arrives: bool) -> None:
        host = self.world[name]
        host.clock += 1
        sign = Sign(name, subject, host.pid, host.clock, FREQ, timestamp=self.now)  # type: ignore[arg-type]
        self.said.append(sign)
        if arrives:
            self.hear(sign)

    @rule(name=hosts, seconds=st.sampled_from((6.0, 7.0, 9.0)))
    def fall_silent(self, name: str, seconds: float) -> None:
        """Speak once more, and then not for long enough to be suspect, or nearly so."""
        self.say(name=name, subject="heartbeat", arrives=True)
        self.wait(seconds=seconds)

    @rule(name=hosts)
    def restart(self, name: str) -> None:
        host = self.world[name]
        host.pid += 1
        # By greeting the others a process starts where the cluster is.
        host.clock += 10

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """Let anything that was ever said arrive, for the first time or again."""
        self.hear(data.draw(st.sampled_from(self.said)))

    @rule(name=hosts, by=hosts)
    def confirm(self, name: str, by: str) -> None:
        self.membership.confirm(name, pid=self.world[name].pid, by=by)

    # -- what befalls the observer

    @rule(seconds=st.sampled_from((0.5, 2.0, 4.0, 6.5, 10.0, 30.0)))
    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / PULSE)):
            self.pass_time(PULSE)
        self.check()

    @rule(seconds=st.sampled_from((1.5, 3.0, 8.0, 100.0)))
    def stall(self, seconds: float) -> None:
        self.pass_time(seconds)
        self.check()

    @rule()
    def disconnect(self) -> None:
        self.is_connected = False
        self.membership.disconnected(self.now)

    @rule()
    def reconnect(self) -> None:
        if not self.is_connected:
            self.is_connected, self.reconnected_at = True, self.now
        self.membership.reconnected(self.now)

    # -- what holds

    def hear(self, sign: Sign) -> None:
        host, pid = self.world[sign.hostname], sign.pid or 0
        speaks = sign.subject != "other"
        is_guess = host.joined is not None and not host.is_announced
        if is_guess and speaks and sign.clock > host.farewells.get(pid, 0):
            host.joined, host.is_announced = pid, True
        was_there = host.joined

        effects = self.membership.receive(sign, self.now)

        for effect in effects:
            assert isinstance(effect, Joined | Left | Lost | Refuted)
            if isinstance(effect, Joined):
                # Nothing brings back what it was sent before, be it a farewell or a last word.
                assert effect.pid == pid
                assert sign.clock > max(host.farewells.get(pid, 0), host.known.get(pid, 0))
            if isinstance(effect, Left):
                assert sign.subject == "offline"
                assert was_there == pid
            self.note(effect)
            host.is_announced = speaks
        if sign.subject == "offline":
            host.farewells[pid] = max(host.farewells.get(pid, 0), sign.clock)
        if host.joined == pid:
            if sign.clock > host.farewells.get(pid, 0):
                host.silence = 0.0
            host.known[pid] = max(host.known.get(pid, 0), sign.clock)
        self.check()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.is_connected:
            for host in self.world.values():
                # Of a stall only the time until the tick was due counts.
                host.silence += min(seconds, PULSE) if seconds > 2 * PULSE else seconds

        effects = self.membership.tick(self.now)

        # What came while we were stalled waits to be read: nobody is judged before it is.
        assert not (effects and seconds > 2 * PULSE)
        for effect in effects:
            assert isinstance(effect, Suspected | Lost)
            assert self.is_connected
            assert self.now >= self.reconnected_at + GRACE * FREQ
            host = self.world[effect.hostname]
            if isinstance(effect, Suspected):
                assert host.silence > SILENCE * FREQ
                assert effect.silence <= host.silence + 1e-6
            else:
                assert host.is_suspect
                assert host.silence >= (SILENCE + SUSPICION) * FREQ - 1e-6
            self.note(effect)

    def note(self, effect: Effect) -> None:
        """Write an effect into the ledger: it must follow from what was there."""
        host = self.world[effect.hostname]
        match effect:
            case Joined():
                assert host.joined is None
                host.joined = effect.pid
            case Left() | Lost():
                assert host.joined == effect.pid
                host.joined, host.is_suspect = None, False
            case Suspected():
                assert host.joined == effect.pid
                assert not host.is_suspect
                host.is_suspect = True
            case Refuted():
                assert host.is_suspect
                host.is_suspect = False

    def check(self) -> None:
        membership = self.membership
        there = {host.name for host in self.world.values() if host.joined is not None}
        assert {member.hostname for member in membership.alive()} == {US} | there
        assert membership.alive_count == 1 + len(there)
        for name, member in membership.members.items():
            if name == US:
                assert member.state is Liveness.ALIVE
                continue
            host = self.world[name]
            assert member.is_present == (host.joined is not None)
            assert (member.state is Liveness.SUSPECT) == host.is_suspect
            assert member.since_at <= self.now
            assert membership.phi(name, self.now) >= 0
        assert 0 <= membership.health.score <= MAX_SCORE

    def teardown(self) -> None:
        """In the end, when nobody speaks and we hear well, nobody is there."""
        self.reconnect()
        self.wait(400.0)
        assert self.membership.alive_count == 1


TestMembership = MembershipMachine.TestCase
TestMembership.settings = COSTLY


@given(
    st.lists(
        st.tuples(st.sampled_from(("online", "heartbeat", "offline")), st.integers(1, 20)),
        min_size=1,
        unique_by=lambda each: each[1],
    ),
    st.data(),
)
def test_who_is_there_does_not_depend_on_the_order_of_arrival(
    messages: list[tuple[str, int]], data: st.DataObject
) -> None:
    arrivals = data.draw(st.permutations(messages * 2))
    membership = Membership(US)

    for subject, clock in arrivals:
        sign = Sign("a@there", subject, 1, clock, FREQ, timestamp=float(clock))  # type: ignore[arg-type]
        membership.receive(sign, 0.0)

    latest = max(messages, key=lambda each: each[1])
    assert membership.alive_count == (1 if latest[0] == "offline" else 2)


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(("online", "heartbeat", "offline", "other")))),
)
def test_no_flood_of_names_makes_it_outgrow_its_limit_or_pushes_out_who_is_there(
    limit: int, messages: list[tuple[int, str]]
) -> None:
    membership = Membership(US, max_members=limit)

    views = [set[str]()]
    for clock, (number, subject) in enumerate(messages, 1):
        sign = Sign(f"n{number}@there", subject, 1, clock, FREQ, timestamp=0.0)  # type: ignore[arg-type]
        effects = membership.receive(sign, float(clock))
        views.append({member.hostname for member in membership.alive()})
        gone = {effect.hostname for effect in effects if isinstance(effect, Left)}

        assert views[-2] - views[-1] == gone
        assert len(membership.members) <= limit + 1
        assert len(membership._farewells) <= limit

    assert all(len(new - old - {US}) <= 1 for old, new in pairwise(views))


@given(st.lists(st.floats(0.5, 11.0), max_size=60))
def test_a_silence_is_suspect_just_when_phi_says_so_and_three_heartbeats_are_missing(
    gaps: list[float],
) -> None:
    membership = Membership(US, pulse=1000.0)
    now, clock = 0.0, 1
    membership.receive(Sign("a@there", "heartbeat", 1, clock, FREQ), now)
    for gap in gaps:
        now, clock = now + gap, clock + 1
        membership.receive(Sign("a@there", "heartbeat", 1, clock, FREQ), now)
    patience = membership.members["a@there"].patience

    assert patience >= SILENCE * FREQ
    assert membership.phi("a@there", now + patience + 0.01) > 8.0
    if patience > SILENCE * FREQ:
        assert membership.phi("a@there", now + patience - 0.01) < 8.0
