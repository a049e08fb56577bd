"""One election under a scheduler that may deliver in any order that the broker allows.

At every step all that could happen next is listed: a node begins, the head of a queue is delivered, and
whatever else a node waits for. One of these happens, each as likely as any other. Nothing is lost, nothing
comes twice, nobody is killed, and a schedule goes on until nothing is left that could happen.

As there are few queues with something in them at first, nodes soon begin. ``spread`` keeps them from it: each
waits for a number of steps below it, or until nothing else is left to happen.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final, Protocol

__all__ = ["MAX_CLOCK", "Node", "Order", "Outcome", "Step", "Tally", "play"]

#: A node's clock begins anywhere below: equal clocks are common, and so are those that are far apart.
MAX_CLOCK: Final = 20
#: Far more than an election can take: a schedule that does not end is a bug, and is said.
MAX_STEPS: Final = 100_000


class Order(StrEnum):
    """What a broker promises of the order in which nodes read."""

    #: Of two messages of one node the first is read first; RabbitMQ.
    PER_SENDER = "per sender"
    #: All nodes read all messages in one order, each at its own pace; publish and subscribe of Redis.
    TOTAL = "total"


class Node(Protocol):
    """One worker in one election."""

    #: What it has sent to all nodes, itself included, since somebody looked.
    sent: list[Any]
    #: How often the handler of the election was called here.
    wins: int

    def begin(self) -> None:
        """Call the election, and stand in it."""

    def receive(self, message: Any) -> None:
        """Take what a node sent."""

    def own_steps(self) -> Sequence["Step"]:
        """Return what else could happen here: timers, answers, the end of what it does."""

    def is_left_behind(self) -> bool:
        """Say whether it still keeps something of the election, when it should have forgotten it."""


@dataclass(frozen=True, eq=False)
class Step:
    """Something that could happen at a node."""

    node: Node
    run: Callable[[], None]


@dataclass(frozen=True, eq=False)
class Queue:
    """Messages on their way to a node, of which the first can be delivered."""

    node: Node
    waiting: deque[Any] = field(default_factory=deque)

    def run(self) -> None:
        """Deliver the first message."""
        self.node.receive(self.waiting.popleft())


@dataclass(frozen=True)
class Outcome:
    """What came of one election."""

    wins: int
    #: What ended workers.
    crashes: list[Exception]
    is_left_behind: bool


@dataclass
class Tally:
    """What came of many elections."""

    elections: int = 0
    one: int = 0
    none: int = 0
    two_or_more: int = 0
    #: Elections in which at least one worker crashed, whoever won.
    crashed: int = 0
    one_without_crash: int = 0
    left_behind: int = 0
    crashes: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one election."""
        self.elections += 1
        self.one += outcome.wins == 1
        self.none += outcome.wins == 0
        self.two_or_more += outcome.wins > 1
        self.crashed += bool(outcome.crashes)
        self.one_without_crash += outcome.wins == 1 and not outcome.crashes
        self.left_behind += outcome.is_left_behind
        self.crashes.update(f"{type(error).__name__}: {error}" for error in outcome.crashes)

    def share(self, count: int) -> float:
        """Return which part of all elections a number of them is; not rounded, as one may be too many."""
        return count / self.elections


class _Network:
    """The queues between nodes, in one of the orders."""

    def __init__(self, nodes: Sequence[Node], order: Order) -> None:
        shared = [Queue(node) for node in nodes]
        #: Those that what a node sends is put into, one for each node that reads.
        self._from: dict[int, list[Queue]] = {
            id(node): shared if order is Order.TOTAL else [Queue(each) for each in nodes] for node in nodes
        }
        #: Those with something in them.
        self.ready: list[Queue] = []
        self._gone: list[Node] = []

    def send(self, sender: Node) -> None:
        """Put what a node has sent into the queue of every node that still reads."""
        for message in sender.sent:
            for queue in self._from[id(sender)]:
                if queue.node in self._gone:
                    continue
                if not queue.waiting:
                    self.ready.append(queue)
                queue.waiting.append(message)
        sender.sent.clear()

    def leave(self, node: Node) -> None:
        """Deliver nothing more to a node; what it has sent is on its way."""
        self._gone.append(node)
        self.ready = [queue for queue in self.ready if queue.node is not node]


def play(nodes: Sequence[Node], order: Order, random: Random, *, spread: int = 1) -> Outcome:
    """Run one election to its end. A node out of which an exception comes takes no further part."""
    network = _Network(nodes, order)
    #: When each may begin.
    beginnings = {Step(node, node.begin): random.randrange(spread) for node in nodes}
    alive, crashes = list(nodes), list[Exception]()
    for number in range(MAX_STEPS):
        own = [step for node in alive for step in node.own_steps()]
        begins = [step for step, after in beginnings.items() if after <= number]
        choices: list[Step | Queue] = [*begins, *network.ready, *own] or [*beginnings]
        if not choices:
            break
        step = random.choice(choices)
        if isinstance(step, Queue):
            if len(step.waiting) == 1:
                network.ready.remove(step)
        else:
            beginnings.pop(step, None)
        try:
            step.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends a worker, and it is counted
            crashes.append(error)
            alive.remove(step.node)
            beginnings = {each: after for each, after in beginnings.items() if each.node is not step.node}
            network.leave(step.node)
        network.send(step.node)
    else:
        raise RuntimeError(f"the election did not end in {MAX_STEPS:,} steps")
    return Outcome(sum(node.wins for node in nodes), crashes, any(node.is_left_behind() for node in alive))
