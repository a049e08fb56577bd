"""A node: the production machine in a shell of simulated clocks, calls and pauses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from celeriac.core.clock import LamportClock
from celeriac.core.election import Candidacy
from celeriac.core.election_effect import (
    Acknowledge,
    Act,
    Announce,
    Claim,
    Effect,
    Ended,
    Finish,
    Nominate,
    Release,
    Renew,
    Request,
    Resign,
    StepDown,
)
from celeriac.core.election_rules import Rules
from celeriac.core.elections import Elections
from celeriac.model.election import Ack, Answer, Candidate, Elect, Elected, Election, Message, Mode, Resigned
from tests.simulation.handler import Handler
from tests.simulation.plan import ID, NodePlan, rng
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.arbiters import SimulatedArbiter
    from tests.simulation.checker import Checker
    from tests.simulation.network import Network

__all__ = ["Node"]

#: A timer fires up to so late.
LATENESS: Final = 0.05
NEVER: Final = 1e18


class DirectElections(Elections):
    """Those of a process that only asks the arbiter, as ``app.leadership`` does."""

    def _of(self, election: Election, now: float, *, may_act: bool) -> Candidacy | None:
        known = self._all.get(election.id)
        if known is None:
            self._all[election.id] = known = Candidacy(
                election, self.rules, self._grants, ttl=self._ttl, may_act=may_act, nominates=False, now=now
            )
        return known


class Node:
    """One host: processes that come and go on it, with the clock of the host.

    Whatever happens to a process goes through :meth:`do`: while it is paused it happens to nobody, and
    afterwards all at once.
    """

    def __init__(
        self,
        plan: NodePlan,
        world: World,
        network: "Network",
        arbiter: "SimulatedArbiter",
        checker: "Checker",
    ) -> None:
        seed = world.plan.seed
        self.index = plan.number
        self.plan = plan
        self.world = world
        self.checker = checker
        self.election = Election(ID, "topic", mode=world.plan.mode)
        self.boot = 0
        self.is_up = False
        self.is_paused = False
        #: What the way to the arbiter does to requests and replies until then.
        self.cut_until = self.stall_until = self.hush_until = 0.0
        self.handler_random = rng(seed, "handler", plan.number).random
        self.sink_random = rng(seed, "sink", plan.number).random
        self._random = rng(seed, "node", plan.number).random
        self._timer_random = rng(seed, "timer", plan.number).random
        self._views = rng(seed, "views", plan.number)
        self._wake = rng(seed, "wake", plan.number)
        self._network = network
        self._arbiter = arbiter
        self._backlog: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._call = 0
        self._open_call = 0
        self._wake_at = NEVER

    # -- processes

    def start(self) -> None:
        """Start a process: it knows nothing of those before."""
        self.boot += 1
        self.is_up = True
        self.is_paused = False
        self._backlog.clear()
        self.clock = LamportClock()
        pid = 1 if self.plan.keeps_pid else 100 + self.boot
        self.name = f"n{self.index}@sim.{pid}"
        self.entry = 0
        self._blind = {
            index
            for index in range(len(self._network.nodes))
            if not self.world.plan.profile.is_fair and self._views.random() < 0.1
        }
        self.world.met["view"] += bool(self._blind - {self.index})
        self.enter()
        self.world.tell(self.label, f"starts as {self.owner}")

    def enter(self) -> None:
        """Begin with no elections; a leadership that was given up begins so anew."""
        self.entry += 1
        self.owner = owner_of(self.name, self.boot, self.entry)
        self._open_call = 0
        self._wake_at = NEVER
        kind = DirectElections if self.world.plan.is_direct else Elections
        rules = Rules(self.name, self.owner, self._random, alive=self._alive)
        self.elections = kind(rules, ttl=self.world.plan.ttl, may_act=lambda _: self.plan.may_act)
        self.handler: Handler | None = None
        self.has_stood = False
        self.has_resigned = False

    def crash(self) -> None:
        """End the process, and all it knew."""
        self.is_up = False
        self._backlog.clear()
        self.checker.crashed(self)
        self.world.tell(self.label, "crashes")

    def pause(self) -> None:
        """Stop the process in whatever it does."""
        self.is_paused = True
        self.world.tell(self.label, "is paused")

    def resume(self, boot: int) -> None:
        """Let it go on: everything that waited happens now, in any order."""
        if boot != self.boot or not self.is_up or not self.is_paused:
            return
        self.is_paused = False
        self.world.tell(self.label, "goes on")
        backlog, self._backlog = self._backlog, []
        if not self.world.plan.is_ordered:
            self._wake.shuffle(backlog)
        for step, args in backlog:
            step(*args)
        self._arm()

    def do(self, boot: int, step: Callable[..., Any], *args: Any) -> None:
        """Let something happen to the process of that boot."""
        if boot != self.boot or not self.is_up:
            return
        if self.is_paused:
            self._backlog.append((step, args))
        else:
            step(*args)

    def later(self, seconds: float, step: Callable[..., Any], *args: Any) -> None:
        """Let something happen to this process after a time of its own clock."""
        self.world.at(self.world.now + seconds / self.plan.rate, self.do, self.boot, step, *args)

    @property
    def label(self) -> str:
        """What it is called in a transcript."""
        return f"n{self.index}.{self.boot}"

    @property
    def identity(self) -> tuple[int, int, int]:
        """Who it truly is, whatever it says."""
        return self.index, self.boot, self.entry

    def local(self) -> float:
        """What its clock says."""
        return self.plan.offset + self.plan.rate * self.world.now

    def candidacy(self) -> Candidacy | None:
        """Its part in the election."""
        return self.elections.all.get(ID)

    def is_leader(self) -> bool:
        """Whether it would pass the check, just now."""
        candidacy = self.elections.all.get(ID)
        return candidacy is not None and candidacy.is_leader(self.local())

    def is_waiting_for(self, call: int) -> bool:
        """Whether it still waits for the answer to a call."""
        return self._open_call == call != 0

    # -- what happens to it

    def stand(self) -> None:
        """Be told of the election."""
        if not self.is_up:
            return
        if self.is_paused:
            self._backlog.append((self.stand, ()))
            return
        self.has_stood |= self.plan.may_act
        self.world.tell(self.label, "is told of the election")
        elections = self.elections
        stand = elections.stand if self.election.mode is Mode.LEASE else elections.join
        self.perform(stand(self.election, self.local()))

    def resign(self) -> None:
        """Want no more of it."""
        self.has_resigned = True
        self.world.tell(self.label, "resigns")
        self.perform(self.elections.resign(ID, self.local()))

    def hear(self, sender: str, stamp: int, message: Message) -> None:
        """Receive a message, by whichever process is there."""
        if not self.is_up:
            return
        if self.is_paused:
            self._backlog.append((self.hear, (sender, stamp, message)))
            return
        self.clock.receive(stamp, peer=sender)
        self.perform(self.elections.receive(message, self.local()))

    def acted(self, *, is_failed: bool) -> None:
        """Have ended what was to be done."""
        # Who leads no more, or has failed, does not try again.
        self.has_resigned |= is_failed or self.election.mode is Mode.LEASE
        self.world.tell(self.label, f"has acted{', and failed' if is_failed else ''}")
        self.perform(self.elections.acted(ID, self.local(), is_failed=is_failed))

    def stepped_down(self) -> None:
        """Have ended what was done as leader."""
        self.world.tell(self.label, "has ended what it did as leader")
        self.perform(self.elections.stepped_down(ID, self.local()))

    def take(self, call: int, answer: Answer) -> None:
        """Receive what the arbiter said, or that it said nothing in time: one answer to each request."""
        if call != self._open_call:
            self.world.met["late reply"] += answer is not None
            return
        self._open_call = 0
        if self.world.transcript is not None:
            self.world.tell(self.label, f"is answered {answer}")
        self.checker.answered(self, answer)
        self.perform(self.elections.answer(ID, answer, self.local()))

    def tick(self, wake_at: float) -> None:
        """Do what is due, unless another timer was set instead."""
        if wake_at != self._wake_at:
            return
        self._wake_at = NEVER
        effects = self.elections.tick(self.local())
        self.checker.ticked(self)
        self.perform(effects)

    # -- what it does

    def perform(self, effects: list[Effect]) -> None:
        """Do what the machine wants."""
        for effect in effects:
            if self.world.transcript is not None and type(effect) is not Acknowledge:
                self.world.tell(self.label, f"→ {effect}")
            _PERFORM[type(effect)](self, effect)
        self.checker.looked(self)
        self._arm()

    def _arm(self) -> None:
        plan = self.plan
        due_at = (self.elections.due_at() - plan.offset) / plan.rate
        if due_at < self._wake_at - LATENESS:
            now = self.world.now
            at = max(due_at, now) + 1e-6 + LATENESS * self._timer_random()
            self._wake_at = at
            self.world.at(at, self.do, self.boot, self.tick, at)

    def _alive(self) -> list[str]:
        """Who else is there, as far as this node can see."""
        return [
            node.name
            for node in self._network.nodes
            if node.is_up and node is not self and node.index not in self._blind
        ]

    def _say(self, message: Message) -> None:
        if not self.world.plan.is_direct:
            self._network.broadcast(self, self.clock.value, message)

    def _nominate(self, effect: Nominate) -> None:
        self.checker.stood(self, Candidate(self.clock.forward(), self.name))
        self._say(Elect(effect.election, Candidate(self.clock.value, self.name)))

    def _acknowledge(self, effect: Acknowledge) -> None:
        self.clock.forward()
        self._say(Ack(effect.id, self.name, effect.candidate))

    def _announce(self, effect: Announce) -> None:
        self.clock.forward()
        self._say(Elected(effect.id, self.owner, effect.token, effect.expires_in))

    def _tell_resigned(self, effect: Resign) -> None:
        self.clock.forward()
        self._say(Resigned(effect.id, self.owner, effect.token))

    def _ask(self, request: Request) -> None:
        self.checker.asked(self, request)
        self._call += 1
        self._open_call = call = self._call
        self.later(self.world.plan.patience, self.take, call, None)
        self._arbiter.ask(self, call, request)

    def _act(self, effect: Act) -> None:
        self.checker.acted(self, effect)
        self.handler = Handler(self, effect)
        self.handler.start()

    def _step_down(self, effect: StepDown) -> None:
        handler = self.handler
        if handler is not None and handler.token == effect.token:
            handler.step_down()
        if self.world.plan.is_direct:
            self.elections.resign(ID, self.local())

    def _ended(self, _: Ended) -> None:
        if self.world.plan.is_direct and not self.world.is_over:
            self.has_resigned = False
            # It is entered again, as another owner.
            self.later(0.2 + self.handler_random(), self._enter_again, self.entry)

    def _enter_again(self, entry: int) -> None:
        if entry == self.entry and not self.world.is_over:
            self.enter()
            self.stand()


def owner_of(name: str, boot: int, entry: int) -> str:
    """Return what a process is known by to the arbiter: no other is, before or after it."""
    return f"{name}.{boot}.{entry}"


_PERFORM: Final[dict[type, Callable[[Node, Any], None]]] = {
    Nominate: Node._nominate,
    Acknowledge: Node._acknowledge,
    Announce: Node._announce,
    Resign: Node._tell_resigned,
    Claim: Node._ask,
    Renew: Node._ask,
    Release: Node._ask,
    Finish: Node._ask,
    Act: Node._act,
    StepDown: Node._step_down,
    Ended: Node._ended,
}
