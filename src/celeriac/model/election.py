"""The nouns of elections: who stands, who decides, and what was decided."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

__all__ = [
    "Ack",
    "Answer",
    "Candidate",
    "Decision",
    "Denied",
    "Elect",
    "Elected",
    "Election",
    "Granted",
    "Level",
    "Message",
    "Mode",
    "Record",
    "RecordState",
    "Resigned",
]


class Mode(StrEnum):
    """How often, and for how long, somebody is elected."""

    #: One winner for an id, for good: if it dies before it has acted, nobody acts.
    ONCE = "once"
    #: One winner at a time until one has acted: if it dies, another acts, under a higher token.
    TAKEOVER = "takeover"
    #: One leader at a time, for as long as it renews its lease.
    LEASE = "lease"


class Level(IntEnum):
    """How far the promise of one winner holds; see docs/explanation/elections.md."""

    #: Nodes take part that ask nobody.
    L0 = 0
    #: Best effort: an acknowledged grant can vanish.
    L1 = 1
    #: Restarts are survived; a crash may cost the last second.
    L2 = 2
    #: What was granted stays granted while the disk, or most of the broker's nodes, live.
    L3 = 3

    def __str__(self) -> str:
        return self.name


class RecordState(StrEnum):
    """What became of a grant."""

    HELD = "held"
    DONE = "done"
    FAILED = "failed"


class Record(NamedTuple):
    """What an arbiter knows of a key."""

    key: str
    #: Who it was granted to: a node, a process and a boot of it.
    owner: str
    #: Higher than that of every grant before; 0 where the arbiter has none to give.
    token: int
    mode: Mode
    state: RecordState
    ttl: float
    #: Until another may have it; of a record that is kept, until it is forgotten.
    remaining: float
    #: When it was granted, by a wall clock; for people.
    since: float
    #: What its owners left for those that follow.
    note: bytes = b""


class Granted(NamedTuple):
    """The key is ours, from when we asked, for the time that we asked for."""

    token: int
    #: What owners before us left.
    note: bytes = b""


class Denied(NamedTuple):
    """The key is another's, or it is done."""

    owner: str
    token: int
    state: RecordState
    #: Until it makes sense to ask again.
    remaining: float


Decision = Granted | Denied
#: What an arbiter said: to a claim a decision, to all else whether it was done; None for not known.
Answer = Decision | bool | None


class Candidate(NamedTuple):
    """Who stands; the least of all wins: the earliest by the clock, then by name."""

    clock: int
    #: ``hostname.pid``.
    name: str


class Election(NamedTuple):
    """What an election is about, as whoever calls it says."""

    id: str
    #: Which handler acts.
    topic: str
    #: What the handler is given: JSON.
    action: object = None
    mode: Mode = Mode.ONCE


class Elect(NamedTuple):
    """A node stands: ``worker-elect``."""

    election: Election
    candidate: Candidate
    #: Whether it asks the arbiter; Celery's nodes do not.
    is_ours: bool = True


class Ack(NamedTuple):
    """A node has heard of a candidate: ``worker-elect-ack``."""

    id: str
    #: Who has heard, as ``hostname.pid``.
    sender: str
    #: Of whom; empty where a node of Celery says it, which names nobody.
    candidate: str = ""


class Elected(NamedTuple):
    """A node was granted the election, or a lease: ``cluster-elected``."""

    id: str
    owner: str
    token: int
    #: After so many seconds another may be granted it.
    expires_in: float


class Resigned(NamedTuple):
    """A node has given up a lease: ``cluster-resign``."""

    id: str
    owner: str
    token: int


#: What nodes say to each other in an election.
Message = Elect | Ack | Elected | Resigned
