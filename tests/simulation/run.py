"""One run: faults, then healing; safe all the time, and alive in the end."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from celeriac.core.election import NOMINATION, RETRY_CAP, STAGGER, WATCH
from celeriac.core.election_rules import CLOCK_ERROR
from celeriac.model.election import Mode
from celeriac.transport.arbiter import CALL_PATIENCE
from tests.simulation.arbiters import RegisterArbiter, SimulatedArbiter
from tests.simulation.checker import Checker
from tests.simulation.log_arbiter import LogArbiter
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.plan import ALL, LEADER, PROFILES, Fault, Plan, draw
from tests.simulation.world import Violation, World

__all__ = ["Outcome", "Run", "run", "run_plan"]

#: So often it is looked whether a run has come to its end.
_LOOK = 0.5


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    mode: Mode
    profile: str
    #: How often somebody acted; of leases, how many led.
    acts: int = 0
    writes: int = 0
    stale: int = 0
    events: int = 0
    met: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None
    transcript: list[str] = field(default_factory=list)

    @property
    def law(self) -> str:
        """The promise that was broken; empty if none was."""
        return self.violation.law if self.violation is not None else ""

    @property
    def replay(self) -> str:
        """What to type to see it again."""
        return f"SEED={self.seed} MODE={self.mode} PROFILE={self.profile}"


def run(seed: int, mode: Mode, profile: str, *, is_traced: bool = False) -> Outcome:
    """Run what a seed says."""
    return run_plan(draw(seed, mode, PROFILES[profile]), is_traced=is_traced)


def run_plan(plan: Plan, *, is_traced: bool = False) -> Outcome:
    """Run a plan."""
    made = Run(plan, is_traced=is_traced)
    outcome = Outcome(plan.seed, plan.mode, plan.profile.name)
    try:
        made.go()
    except Violation as violation:
        outcome.violation = violation
        made.world.tell("checker", f"VIOLATION of {violation}")
    checker = made.checker
    outcome.acts, outcome.writes, outcome.stale = len(checker.acts), checker.writes, checker.stale
    outcome.events, outcome.met = made.world.events, made.world.met
    outcome.transcript = made.world.transcript or []
    return outcome


class Run:
    """A world with its nodes, on the way through one plan."""

    def __init__(self, plan: Plan, *, is_traced: bool = False) -> None:
        self.plan = plan
        self.world = World(plan, is_traced=is_traced)
        self.checker = Checker(self.world)
        self.network = Network(self.world)
        self.arbiter = make_arbiter(self.world, self.checker)
        self.nodes = [Node(node, self.world, self.network, self.arbiter, self.checker) for node in plan.nodes]
        self.network.nodes = self.checker.nodes = self.nodes

    def go(self) -> None:
        """Let it happen; raises Violation."""
        plan, world = self.plan, self.world
        for node in self.nodes:
            node.start()
            if node.plan.told_at >= 0:
                world.at(node.plan.told_at, node.stand)
        for fault in plan.faults:
            world.at(fault.at, self._strike, fault)
        rates = [node.rate for node in plan.nodes]
        world.met["clock rate"] += max(rates) - min(rates) > 0.02
        world.run(plan.heal_at)
        self._heal()
        world.run(world.now + _LOOK)  # who is told of it once more has heard it
        self._wait_for(self._is_decided, "nobody was elected")
        if plan.mode is Mode.LEASE:
            self._keep_leading()
            self.world.is_over = True
            for node in self.nodes:
                if node.is_up and node.candidacy() is not None:
                    node.resign()
        self._wait_for(self._is_over, "it does not come to an end")
        if plan.profile.is_fair and not plan.is_direct:
            self.checker.preferred()
        if not self.checker.grants and self._standing() and plan.mode is not Mode.LEASE:
            raise Violation("progress", "nobody was granted anything")
        self.checker.forgotten()

    # -- faults

    def _strike(self, fault: Fault) -> None:
        nodes = (
            self.nodes if fault.node == ALL else [node for node in [self._victim(fault)] if node is not None]
        )
        until = min(self.world.now + fault.length, self.plan.heal_at)
        if fault.kind == "partition":
            self.world.tell("network", f"is split: {fault.side:b}")
            self.network.split(fault.side, until)
            return
        for node in nodes:
            self._hit(node, fault.kind, until)

    def _hit(self, node: Node, kind: str, until: float) -> None:
        world = self.world
        match kind:
            case "crash" if node.is_up:
                world.met["crash"] += 1
                node.crash()
                world.at(until, self._restart, node)
            case "pause" if node.is_up and not node.is_paused:
                world.met["pause"] += 1
                node.pause()
                world.at(until, node.resume, node.boot)
            case "resign" if node.is_up and not node.is_paused and node.candidacy() is not None:
                world.met["resign"] += 1
                node.resign()
            case "cut" | "stall" | "hush":
                world.tell(node.label, f"{kind} from the arbiter until {until:.3f}")
                setattr(node, f"{kind}_until", until)
            case _:
                pass  # it is in no state to be hit so

    def _victim(self, fault: Fault) -> Node | None:
        if fault.node == LEADER:
            owner = next(reversed(self.checker.grants.values()), (0, 0, 0))
            wanted = owner[0]
        else:
            wanted = fault.node
        return next((node for node in self.nodes if node.index == wanted), None)

    def _restart(self, node: Node) -> None:
        node.start()
        if self.plan.mode is Mode.LEASE:
            node.later(0.5, node.stand)

    # -- healing

    def _heal(self) -> None:
        self.world.tell("world", "is healed")
        for node in self.nodes:
            node.cut_until = node.stall_until = node.hush_until = 0.0
            if not node.is_up:
                self._restart(node)
            node.resume(node.boot)
            if self.plan.is_repeated and self.plan.mode is not Mode.LEASE:
                node.later(0.1, node.stand)

    def _bound(self) -> float:
        """E7, with what was under way: a call that nobody answers any more, and the wait after it."""
        ttl = self.plan.ttl * (1 + 2 * CLOCK_ERROR)
        wait = NOMINATION + len(self.nodes) * STAGGER + ttl + RETRY_CAP + CALL_PATIENCE + WATCH + STAGGER
        return wait / (1 - CLOCK_ERROR) + 1.0

    def _wait_for(self, condition: Callable[[], bool], text: str) -> None:
        until = self.world.now + self._bound()
        while not condition():
            if self.world.now > until:
                raise Violation("E7", f"{text} {self._bound():.1f} s after all was well")
            self.world.run(self.world.now + _LOOK)

    def _standing(self) -> list[Node]:
        """Those who can be expected to act."""
        return [node for node in self.nodes if node.is_up and node.has_stood and not node.has_resigned]

    def _is_decided(self) -> bool:
        checker = self.checker
        if not self._standing():
            return True
        match self.plan.mode:
            case Mode.LEASE:
                return checker.last_write_at > self.plan.heal_at
            case Mode.TAKEOVER:
                return checker.writes > 0
            case Mode.ONCE:
                granted = next(iter(checker.grants.values()), None)
                return granted is not None and (bool(checker.acts) or not self._is_up(granted))

    def _is_up(self, identity: tuple[int, int, int]) -> bool:
        return any(node.identity == identity and not node.has_resigned for node in self.nodes)

    def _keep_leading(self) -> None:
        """Who leads goes on to, once no call is left that was lost before."""
        self.world.run(self.plan.heal_at + CALL_PATIENCE / (1 - CLOCK_ERROR) + 1.0)
        leaders = [node for node in self.nodes if node.is_leader()]
        self.world.run(self.world.now + 1.3 * self.plan.ttl)
        for node in leaders:
            if not node.is_leader():
                raise Violation("E7", f"{node.label} led, nothing went wrong, and it leads no more")

    def _is_over(self) -> bool:
        for node in self.nodes:
            candidacy = node.candidacy()
            if node.is_up and candidacy is not None and candidacy.due_at < float("inf"):
                return False
            if node.is_up and candidacy is not None and not candidacy.is_over and node.has_stood:
                return False
        return True


def make_arbiter(world: World, checker: Checker) -> SimulatedArbiter:
    """Return whoever decides in this world."""
    kind = RegisterArbiter if world.plan.profile.arbiter == "register" else LogArbiter
    return kind(world, checker)
