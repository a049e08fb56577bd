"""The promises of an election, looked at after everything that happens."""

from typing import TYPE_CHECKING

from celeriac.core.election import FORGET_AFTER, STEP_DOWN
from celeriac.core.election_effect import Act, Phase, Release, Request
from celeriac.model.election import Answer, Candidate, Granted, Mode
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Checker"]

#: A process, by host, boot and entry: who somebody truly is.
Identity = tuple[int, int, int]


class Checker:
    """Sees all nodes, the arbiter and the sink in true time, and raises Violation.

    It trusts nothing that the code under test says of itself: who is who it knows from the world.
    """

    def __init__(self, world: World) -> None:
        self.nodes: list[Node] = []
        self.mode = world.plan.mode
        #: Who was granted each token, in the order of the grants.
        self.grants: dict[int, Identity] = {}
        #: What was acted on, in that order.
        self.acts: list[tuple[Identity, int]] = []
        self.candidates: dict[Identity, Candidate] = {}
        #: Whether the arbiter knows that it is done.
        self.is_done = False
        #: Writes that the sink took, and those it refused: without it they would have been taken.
        self.writes = 0
        self.stale = 0
        self.highest = 0
        self.last_write_at = -1.0
        #: How often a leader stepped down, and who died with a grant.
        self.step_downs = 0
        self.crashed_owners: set[Identity] = set()
        self._world = world
        self._answered: dict[Identity, int] = {}

    # -- at the arbiter

    def granted(self, identity: Identity, token: int) -> None:
        """E1, E2: one owner for an id; tokens that rise, each of one owner."""
        known = self.grants.get(token)
        if known == identity:
            return
        if known is not None:
            raise Violation("E2", f"token {token} was granted to {known}, and to {identity}")
        if self.grants and token <= next(reversed(self.grants)):
            raise Violation("E2", f"token {token} was granted after {next(reversed(self.grants))}")
        if self.mode is Mode.ONCE and self.grants:
            raise Violation("E1", f"granted to {identity}, after {list(self.grants.values())}")
        if self.is_done:
            raise Violation("E1", f"granted to {identity} though it was done")
        self.grants[token] = identity

    def finished(self) -> None:
        """Note that nobody is to be granted it any more."""
        self.is_done = True

    # -- at a node

    def stood(self, node: "Node", candidate: Candidate) -> None:
        """Note who stands."""
        self.candidates.setdefault(node.identity, candidate)

    def asked(self, node: "Node", request: Request) -> None:
        """Others may lead once what was done has ended, or has had its time to."""
        handler = node.handler
        if (
            type(request) is Release
            and handler is not None
            and handler.is_running
            and handler.token == request.token
            and (handler.told_at is None or node.local() < handler.told_at + STEP_DOWN)
        ):
            raise Violation("release", f"{node.label} lets others lead before it has ended what it does")

    def answered(self, node: "Node", answer: Answer) -> None:
        """Note what a node was granted, as it knows."""
        if type(answer) is Granted:
            self._answered[node.identity] = answer.token

    def acted(self, node: "Node", act: Act) -> None:
        """E1, E3, E6: one acts for an id, a candidate that was granted it, once for each grant."""
        identity, token = node.identity, act.token
        if not node.has_stood:
            raise Violation("E3", f"{node.label} acts, and did not stand")
        if self.grants.get(token) != identity or self._answered.get(identity) != token:
            raise Violation("E3", f"{node.label} acts by token {token}, which it was not granted")
        if (identity, token) in self.acts:
            raise Violation("E6", f"{node.label} acts twice by token {token}")
        if self.mode is Mode.ONCE and self.acts:
            raise Violation("E1", f"{node.label} acts after {self.acts}")
        self.acts.append((identity, token))

    def looked(self, node: "Node") -> None:
        """E4: no two pass the check at the same true time; looked at whenever a belief may have begun."""
        if self.mode is Mode.ONCE or not node.is_leader():
            return
        for other in self.nodes:
            if other is not node and other.is_up and other.is_leader():
                raise Violation("E4", f"{node.label} and {other.label} both lead")

    used = looked

    def ticked(self, node: "Node") -> None:
        """A leader is told once it leads no more."""
        candidacy = node.candidacy()
        if (
            self.mode is Mode.LEASE
            and candidacy is not None
            and candidacy.phase is Phase.ACTING
            and node.local() >= candidacy.deadline
        ):
            raise Violation("step-down", f"{node.label} is not told that its lease is over")

    def crashed(self, node: "Node") -> None:
        """Note that nothing more can come of a process."""
        self.crashed_owners.add(node.identity)

    # -- at the sink

    def written(self, identity: Identity, token: int) -> None:
        """E5: a sink takes nothing of an older leader after something of a newer one."""
        if self.grants.get(token) != identity:
            raise Violation("E2", f"{identity} writes by token {token} of {self.grants.get(token)}")
        if token < self.highest:
            self.stale += 1
            self._world.tell("sink", f"refuses a write by token {token}: it has seen {self.highest}")
            return
        self.highest = token
        self.writes += 1
        self.last_write_at = self._world.now

    # -- at the end

    def forgotten(self) -> None:
        """E8: of what is over nothing is left after a while."""
        for node in self.nodes:
            if not node.is_up:
                continue
            left = len(node.elections.all)
            node.elections.tick(node.local() + FORGET_AFTER + 1)
            node.elections.tick(node.local() + FORGET_AFTER + 1)
            if len(node.elections.all):
                raise Violation(
                    "E8", f"{node.label} still knows {len(node.elections.all)} of {left} elections"
                )

    def preferred(self) -> None:
        """Where nothing is lost and all of one sender arrives in order, the first of all candidates wins."""
        if not self.acts:
            raise Violation("preference", "nobody was elected on a good day")
        winner = self.acts[0][0]
        best = min(self.candidates, key=self.candidates.__getitem__)
        if winner != best:
            raise Violation("preference", f"{winner} was elected and {best} was preferred: {self.candidates}")
