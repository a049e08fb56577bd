"""The way to whoever decides, and what can go wrong on it; one that decides by its own clock."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celeriac.core.election_effect import Claim, Finish, Release, Renew, Request
from celeriac.core.register import Register
from celeriac.model.election import Answer, Granted
from tests.simulation.checker import Checker, Identity
from tests.simulation.plan import rng
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["RegisterArbiter", "SimulatedArbiter"]


class SimulatedArbiter:
    """Carries a request there and the answer back, each lost, late, or carried twice.

    A request that nobody waits for any more can still be done.
    """

    def __init__(self, world: World, checker: Checker) -> None:
        self.world = world
        self.checker = checker
        self._profile = world.plan.profile
        self._random = rng(world.plan.seed, "arbiter").random

    def ask(self, node: "Node", call: int, request: Request) -> None:
        """Begin a call: the node takes one answer to it, now or later."""
        raise NotImplementedError

    def carry(self, node: "Node", arrive: Callable[..., None], *args: Any) -> None:
        """Carry something from a node, perhaps late, twice or not at all."""
        world, random = self.world, self._random
        now = world.now
        is_lost, delay, is_twice = random() < self._profile.arbiter_loss, self._delay(), random() < 0.03
        if not world.is_healed:
            if now < node.cut_until or is_lost:
                world.met["request lost"] += 1
                return
            if now < node.stall_until:
                delay += node.stall_until - now
        world.at(now + delay, arrive, *args)
        if is_twice and not world.is_healed:
            world.met["request repeated"] += 1
            world.at(now + delay + 3.0 * random(), arrive, *args)

    def reply(self, node: "Node", boot: int, step: Callable[..., None], *args: Any) -> None:
        """Carry something back to the process that asked, if it is still there."""
        world = self.world
        is_lost, delay = self._random() < self._profile.arbiter_loss, self._delay()
        if not world.is_healed and (world.now < node.hush_until or world.now < node.cut_until or is_lost):
            world.met["reply lost"] += 1
            return
        world.at(world.now + delay, node.do, boot, step, *args)

    def note(self, identity: Identity, request: Request, answer: Answer) -> None:
        """Show the checker what was decided."""
        if self.world.transcript is not None:
            self.world.tell("arbiter", f"{identity} {request}: {answer}")
        if type(answer) is Granted:
            self.checker.granted(identity, answer.token)
        elif type(request) is Finish and answer:
            self.checker.finished()

    def _delay(self) -> float:
        drawn = self._random()
        longest = self._profile.arbiter_delay
        if drawn > 0.95 and longest > 0.1 and not self.world.is_healed:
            return longest + 120.0 * (drawn - 0.95)  # up to 6 s
        return 0.001 + longest * drawn


class RegisterArbiter(SimulatedArbiter):
    """One register, with a clock of its own: Redis."""

    def __init__(self, world: World, checker: Checker) -> None:
        super().__init__(world, checker)
        self._register = Register()
        self._rate = world.plan.arbiter_rate

    def ask(self, node: "Node", call: int, request: Request) -> None:
        """Carry the request there."""
        patience_ends_at = self.world.now + self.world.plan.patience / node.plan.rate
        about = node.boot, node.identity, node.owner, patience_ends_at
        self.carry(node, self._decide, node, about, call, request)

    def _decide(
        self, node: "Node", about: tuple[int, Identity, str, float], call: int, request: Request
    ) -> None:
        boot, identity, owner, patience_ends_at = about
        self.world.met["late request"] += self.world.now > patience_ends_at
        now = self._rate * self.world.now
        register = self._register
        answer: Answer
        match request:
            case Claim(key, mode, ttl, floor):
                answer = register.claim(key, owner, ttl=ttl, mode=mode, floor=floor, now=now)
            case Renew(key, token, ttl):
                answer = register.renew(key, owner, token, ttl=ttl, now=now)
            case Finish(key, token, is_failed):
                answer = register.finish(key, owner, token, is_failed=is_failed, now=now)
            case Release(key, token):
                answer = register.release(key, owner, token, now=now)
        self.note(identity, request, answer)
        self.reply(node, boot, node.take, call, answer)
