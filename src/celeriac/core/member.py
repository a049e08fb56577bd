"""One node as others hear it, and which of its messages came after which."""

from enum import StrEnum
from typing import Final, Literal, NamedTuple

from celeriac.core.arrival import Gaps
from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK

__all__ = ["Farewell", "Liveness", "Member", "Sign", "is_later", "is_not_before", "is_of", "is_restart"]

#: The frequency of one that has told none, because only its tasks are heard of.
SILENT_FREQUENCY: Final = 60.0


class Liveness(StrEnum):
    """What we hold a node for. A suspect is not lost: it counts as there until it is."""

    ALIVE = "ALIVE"
    SUSPECT = "SUSPECT"
    LOST = "LOST"
    LEFT = "LEFT"


class Sign(NamedTuple):
    """A message that shows that a process lives, or its farewell."""

    hostname: str
    subject: Literal["online", "heartbeat", "offline", "other"] = "other"
    #: None if the message does not say: a reply to a command.
    pid: int | None = None
    #: Its Lamport clock; 0 when there is none to be trusted.
    clock: int = NO_CLOCK
    #: Seconds between its heartbeats, where it says the true ones.
    freq: float | None = None
    #: When it was sent, by the sender's clock; only ever compared with others of the same host.
    timestamp: float = 0.0


class Farewell(NamedTuple):
    """What a process said last."""

    pid: int
    clock: int
    said_at: float
    heard_at: float


class Member:
    """A node as it was last heard. Moments are by our own clock, but for ``said_at``."""

    __slots__ = (
        "beat_at", "clock", "confirmed_by", "freq", "gaps", "heard_at", "hostname", "is_announced",
        "patience", "pid", "reason", "said_at", "since_at", "state", "suspect_at",
    )  # fmt: skip

    def __init__(self, hostname: str, *, pid: int, now: float) -> None:
        self.hostname = hostname
        self.pid = pid
        self.state = Liveness.ALIVE
        #: Why it is held for what it is held for.
        self.reason = "heartbeat on time"
        #: Since when.
        self.since_at = now
        self.heard_at = now
        #: When a regular heartbeat last came.
        self.beat_at: float | None = None
        self.freq = SILENT_FREQUENCY
        #: How long it may be silent before that is suspect.
        self.patience = 0.0
        self.clock = NO_CLOCK
        #: When it sent what it sent last, by its own clock.
        self.said_at = 0.0
        #: Whether it spoke for itself; else only its tasks are known, and the pid may be a child's.
        self.is_announced = False
        self.suspect_at = 0.0
        self.confirmed_by: set[str] = set()
        self.gaps: Gaps = Gaps()

    def __repr__(self) -> str:
        return f"<Member: {self.hostname} {self.state} ({self.reason})>"

    @property
    def is_present(self) -> bool:
        """Whether it is there as far as we know; a suspect is."""
        return self.state in (Liveness.ALIVE, Liveness.SUSPECT)

    def become(self, state: Liveness, reason: str, now: float) -> None:
        """Hold it for something else from now on."""
        self.state, self.reason, self.since_at = state, reason, now


def is_of(sign: Sign, member: Member) -> bool:
    """Tell whether a message is of the process that we know under this name, as far as that can be told."""
    return sign.pid is None or sign.pid == member.pid or not member.is_announced


def is_later(sign: Sign, known: Member | Farewell) -> bool:
    """Tell whether a message was sent after all that is known of a node: by clock, else by time."""
    if sign.pid is not None and sign.pid != known.pid:
        return sign.subject != "other" and (sign.clock > known.clock or sign.timestamp > known.said_at)
    if NO_CLOCK in (sign.clock, known.clock):
        return sign.timestamp > known.said_at
    return sign.clock > known.clock or is_restart(sign, known)


def is_restart(sign: Sign, known: Member | Farewell) -> bool:
    """Tell whether a process began anew under its old pid, as in containers: its clock fell as time rose."""
    if sign.subject == "other" or NO_CLOCK in (sign.clock, known.clock) or sign.pid != known.pid:
        return False
    fell_by = known.clock - sign.clock
    is_fall = fell_by > (0 if sign.subject == "online" else NEW_INCARNATION)
    return is_fall and sign.timestamp > known.said_at


def is_not_before(sign: Sign, known: Member) -> bool:
    """Tell whether nothing that is known of a process was sent after a message of it."""
    if NO_CLOCK in (sign.clock, known.clock):
        return sign.timestamp >= known.said_at
    return sign.clock >= known.clock
