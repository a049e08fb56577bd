"""What goes wrong in one run, drawn from its seed before anything happens."""

from random import Random
from typing import Final, NamedTuple

from celeriac.model.election import Mode
from celeriac.transport.arbiter import CALL_PATIENCE

__all__ = [
    "ALL",
    "FAULT_KINDS",
    "ID",
    "LEADER",
    "PROFILES",
    "Fault",
    "NodePlan",
    "Plan",
    "Profile",
    "draw",
    "rng",
]

#: The election that every run is about.
ID: Final = "e1"
#: Who is hit: whoever leads, or is granted the election, at that moment; or everybody.
LEADER, ALL = -1, -2
#: Rates of clocks differ from true time by up to so much.
DRIFT: Final = 0.02


class Profile(NamedTuple):
    """A kind of weather."""

    name: str
    #: Who decides: ``register`` is one with a clock of its own, ``log`` one that only keeps an order.
    arbiter: str
    #: What may happen to nodes and to the way to the arbiter; how often is drawn, up to this.
    kinds: tuple[str, ...] = ()
    most_faults: int = 0
    #: Of messages between nodes.
    loss: float = 0.0
    duplication: float = 0.0
    longest_delay: float = 0.1
    #: Whether all of one sender arrive in order; None for drawn.
    is_ordered: bool | None = None
    #: Of requests and replies on their way to and from the arbiter.
    arbiter_loss: float = 0.0
    arbiter_delay: float = 0.03
    #: Whether clocks are as wrong as they may be.
    is_adrift: bool = False
    #: Whether nothing disturbs the preference of candidates: then the preferred one must win.
    is_fair: bool = False


class Fault(NamedTuple):
    """Something that happens to a node at a moment of true time."""

    at: float
    kind: str
    node: int
    length: float
    #: One side of a partition, a bit for each node.
    side: int = 0


class NodePlan(NamedTuple):
    """What one node is like."""

    number: int
    rate: float
    offset: float
    #: When it is told of the election; below zero, it is not told.
    told_at: float
    may_act: bool
    #: Whether it gets the same pid when it is started again, as in a container.
    keeps_pid: bool


class Plan(NamedTuple):
    """One run: all that is not decided by the code under test."""

    seed: int
    mode: Mode
    profile: Profile
    ttl: float
    heal_at: float
    nodes: tuple[NodePlan, ...]
    faults: tuple[Fault, ...]
    is_ordered: bool
    #: Whether the nodes of a lease only ask the arbiter, and say nothing to each other.
    is_direct: bool
    #: Whether whoever called the election repeats it once all is well.
    is_repeated: bool
    arbiter_rate: float
    #: How long a node waits for an answer of the arbiter.
    patience: float


FAULT_KINDS: Final = ("crash", "pause", "partition", "cut", "stall", "hush", "resign")


def _profiles(arbiter: str) -> dict[str, Profile]:
    bad = Profile("", arbiter, loss=0.15, duplication=0.10, longest_delay=6.0)
    made = {
        # Everything at once.
        "storm": bad._replace(kinds=FAULT_KINDS, most_faults=7, arbiter_loss=0.05, arbiter_delay=0.5),
        # Nodes stop, die and sleep; what they began goes on without them.
        "freeze": bad._replace(
            kinds=("pause", "pause", "crash", "stall", "resign"), most_faults=7, arbiter_delay=0.3
        ),
        # The worst clocks, and leaders that cannot renew: where leases would overlap.
        "drift": Profile(
            "",
            arbiter,
            kinds=("cut", "hush", "stall"),
            most_faults=5,
            loss=0.05,
            longest_delay=0.5,
            is_adrift=True,
        ),
        # No fault but duplicates, and all of one sender in order: the preferred candidate wins.
        "fair": Profile("", arbiter, duplication=0.3, is_ordered=True, is_fair=True),
    }
    return {f"{arbiter}-{name}": profile._replace(name=f"{arbiter}-{name}") for name, profile in made.items()}


PROFILES: Final = _profiles("register") | _profiles("log")


def rng(seed: int, source: str, index: int = 0) -> Random:
    """Return the generator of one source of chance: to draw more from one does not move the others."""
    # A number, as a text would be hashed first; each source has a place of its own in it.
    place = _SOURCES.index(source)
    return Random((seed * 64 + place) * 16 + index)


_SOURCES: Final = (
    "nodes", "faults", "loss", "duplication", "delay", "arbiter", "timer", "handler", "node", "sink", "views",
    "wake", "log",
)  # fmt: skip


def draw(seed: int, mode: Mode, profile: Profile) -> Plan:
    """Draw a run."""
    chance = rng(seed, "nodes")
    count = chance.randint(2, 7)
    lease = mode is Mode.LEASE
    calm = profile.is_fair
    ttl = chance.choice((3.0, 4.0, 5.0))
    heal_at = 2.0 if calm else chance.uniform(18.0, 30.0) if lease else chance.uniform(8.0, 16.0)
    nodes = []
    for index in range(count):
        rate = chance.choice((1 - DRIFT, 1 + DRIFT)) if profile.is_adrift else chance.uniform(0.98, 1.02)
        told_at = chance.uniform(0.0, 0.05 if calm else 0.3)
        if not calm and not lease and index and chance.random() < 0.3:
            told_at = chance.choice((-1.0, chance.uniform(0.3, 8.0)))
        may_act = lease or calm or index == 0 or chance.random() > 0.1
        offset = chance.uniform(0.0, 1e5)
        nodes.append(NodePlan(index, rate, offset, told_at, may_act, chance.random() < 0.5))
    arbiter_rate = 1 + DRIFT if profile.is_adrift else chance.uniform(0.98, 1.02)
    is_ordered = chance.random() < 0.5 if profile.is_ordered is None else profile.is_ordered
    return Plan(
        seed, mode, profile, ttl, heal_at, tuple(nodes), _faults(seed, mode, profile, count, heal_at),
        is_ordered, lease and chance.random() < 0.5, chance.random() < 0.5, arbiter_rate,
        chance.choice((CALL_PATIENCE, CALL_PATIENCE, 1.0)),
    )  # fmt: skip


def _faults(seed: int, mode: Mode, profile: Profile, nodes: int, heal_at: float) -> tuple[Fault, ...]:
    if not profile.kinds:
        return ()
    chance = rng(seed, "faults")
    found = []
    for _ in range(chance.randint(1, profile.most_faults)):
        kind = chance.choice(profile.kinds)
        # Most of what can go wrong goes wrong only for who leads.
        node = LEADER if chance.random() < 0.6 else chance.randrange(nodes)
        if kind in {"cut", "stall", "hush"} and chance.random() < 0.2:
            node = ALL
        length = 8.0 * chance.random() ** 1.5 + 0.05
        # Where it is over soon, most of it at the start.
        at = chance.uniform(0.0, 3.0 if mode is not Mode.LEASE and chance.random() < 0.6 else heal_at)
        side = chance.randrange(1, 2**nodes - 1) if kind == "partition" else 0
        found.append(Fault(at, kind, node, length, side))
    return tuple(sorted(found))
