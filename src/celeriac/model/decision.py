"""The nouns of a log of decisions: what nodes write into it, and what came of that."""

from enum import StrEnum
from typing import Final, NamedTuple

from celeriac.model.election import Mode

__all__ = ["NOTHING", "Entry", "EntryKind", "Verdict", "Version"]


class EntryKind(StrEnum):
    """What an entry asks for."""

    #: Nothing: whoever wrote it has read all before it once it has read it. It draws a token, too.
    MARK = "mark"
    #: A key that is free.
    CLAIM = "claim"
    #: A key of another that was silent for too long.
    TAKEOVER = "takeover"
    #: The key for longer.
    RENEW = "renew"
    #: That what was to be done is done.
    FINISH = "finish"
    #: That others may have the key.
    RELEASE = "release"


class Version(NamedTuple):
    """One state of a key; every later one is higher."""

    #: Of the grant.
    token: int
    #: How often it was changed since.
    seq: int


#: What a key is at that was never granted, or so long ago that it is forgotten.
NOTHING: Final = Version(0, 0)


class Entry(NamedTuple):
    """One command. It presupposes what its writer has read, and holds only if that still is so."""

    kind: EntryKind
    #: By which its writer knows it again.
    id: str
    key: str
    owner: str
    mode: Mode
    ttl: float
    #: When it was written, by its writer's wall clock.
    at: float
    #: What its writer has read of the key.
    prev: Version = NOTHING
    #: The token to give; 0 for the next after the place in the log, and above that by the lift.
    ticket: int = 0
    lift: int = 0
    is_failed: bool = False
    #: What is left for who follows; None for what is there.
    note: bytes | None = None


class Verdict(NamedTuple):
    """What came of an entry."""

    is_valid: bool
    #: Of the key, if it is valid.
    token: int = 0
    note: bytes = b""
