"""What nodes say to each other, and what becomes of it on its way."""

from typing import TYPE_CHECKING

from celeriac.model.election import Message
from tests.simulation.plan import rng
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Network"]


class Network:
    """Carries each message to all nodes, the sender included: late, twice, out of order or not at all."""

    def __init__(self, world: World) -> None:
        plan = world.plan
        self.nodes: list[Node] = []
        self._world = world
        self._profile = plan.profile
        self._is_ordered = plan.is_ordered
        self._loss = rng(plan.seed, "loss").random
        self._duplication = rng(plan.seed, "duplication").random
        self._delay = rng(plan.seed, "delay").random
        self._split_until = 0.0
        self._side = 0
        #: When the last message from one to another arrives.
        self._last_at: dict[tuple[int, int], float] = {}

    def split(self, side: int, until: float) -> None:
        """Let nothing pass between two sides."""
        self._side, self._split_until = side, until

    def broadcast(self, sender: "Node", stamp: int, message: Message) -> None:
        """Send to all."""
        world, profile = self._world, self._profile
        now, met = world.now, world.met
        is_healed = world.is_healed
        is_split = now < self._split_until
        index, name = sender.index, sender.name
        for node in self.nodes:
            # Drawn also where it is not used: then what is drawn for the next does not depend on it.
            is_lost = self._loss() < profile.loss
            is_twice = self._duplication() < profile.duplication
            if not is_healed and is_split and (self._side >> index ^ self._side >> node.index) & 1:
                met["partition"] += 1
                continue
            if not is_healed and is_lost:
                met["loss"] += 1
                continue
            self._carry(index, node, name, stamp, message)
            if is_twice:
                met["duplicate"] += 1
                self._carry(index, node, name, stamp, message)

    def _carry(self, sender: int, node: "Node", name: str, stamp: int, message: Message) -> None:
        world = self._world
        drawn = self._delay()
        longest = self._profile.longest_delay
        delay = 0.002 + 0.1 * drawn
        if longest > 1 and drawn > 0.9 and not world.is_healed:
            delay = longest * (drawn - 0.9) * 10
            world.met["delay"] += delay > 1
        arrives_at = world.now + delay
        key = sender, node.index
        last_at = self._last_at.get(key, 0.0)
        if self._is_ordered:
            arrives_at = max(arrives_at, last_at)
        elif arrives_at < last_at:
            world.met["reorder"] += 1
        self._last_at[key] = max(arrives_at, last_at)
        world.at(arrives_at, node.hear, name, stamp, message)
