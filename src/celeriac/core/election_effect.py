"""What a node's part in an election asks of the shell around it."""

from enum import StrEnum
from typing import NamedTuple

from celeriac.model.election import Election, Mode

__all__ = [
    "Acknowledge",
    "Act",
    "Announce",
    "Claim",
    "Effect",
    "Ended",
    "Finish",
    "Nominate",
    "Phase",
    "Release",
    "Renew",
    "Request",
    "Resign",
    "StepDown",
]


class Phase(StrEnum):
    """Where a node is in an election."""

    OBSERVING = "observing"
    NOMINATING = "nominating"
    BACKOFF = "backoff"
    CLAIMING = "claiming"
    WATCHING = "watching"
    ACTING = "acting"
    STEPPING_DOWN = "stepping down"
    RELEASING = "releasing"
    FINISHING = "finishing"
    FOLLOWING = "following"
    DONE = "done"
    FAILED = "failed"


class Nominate(NamedTuple):
    """Tell all nodes that we stand."""

    election: Election


class Acknowledge(NamedTuple):
    """Tell all nodes that we have heard of a candidate."""

    id: str
    candidate: str
    #: How many we have heard of.
    known: int


class Claim(NamedTuple):
    """Ask the arbiter for the election; one answer is expected to each of these four."""

    id: str
    mode: Mode
    ttl: float
    #: The highest token we know.
    floor: int


class Renew(NamedTuple):
    """Ask the arbiter to prolong our lease."""

    id: str
    token: int
    ttl: float


class Finish(NamedTuple):
    """Tell the arbiter that it is done."""

    id: str
    token: int
    is_failed: bool


class Release(NamedTuple):
    """Tell the arbiter that others may have it."""

    id: str
    token: int


class Announce(NamedTuple):
    """Tell all nodes that we were elected."""

    id: str
    token: int
    expires_in: float


class Act(NamedTuple):
    """Do what the election is about; :meth:`Candidacy.acted` is called when that has ended."""

    election: Election
    token: int
    #: What those before us left.
    note: bytes


class StepDown(NamedTuple):
    """End what we do as leader; :meth:`Candidacy.stepped_down` is called when it has ended."""

    id: str
    token: int
    reason: str


class Resign(NamedTuple):
    """Tell all nodes that we have given up a lease."""

    id: str
    token: int


class Ended(NamedTuple):
    """Our part has come to an end; for people."""

    id: str
    phase: Phase
    reason: str


#: What the arbiter is asked.
Request = Claim | Renew | Finish | Release
Effect = Nominate | Acknowledge | Request | Announce | Act | StepDown | Resign | Ended
