"""Processes that contend for a lease, and what each believed at each look."""

import json
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from celeriac.programs.service import Service
from tests.clocks import SkewedClock

__all__ = ["LEASE", "Contender", "Look", "overlaps"]

#: The key of the lease at the arbiter.
LEASE = "leader/report"
#: The bytes at the end of what it printed in which there is a whole line.
_LONGEST = 1000


class Look(NamedTuple):
    """A process asked whether it leads, at some moment between two."""

    #: The same for as long as it leads; 0 while it does not.
    term: int
    token: int
    before: float
    after: float


class Contender(Service):
    """A process that contends for a lease, with a wall clock of its own."""

    name = "contender"

    def __init__(self, url: str, clock: SkewedClock, *, ttl: float, **settings: Any) -> None:
        super().__init__()
        self._clock = clock
        self._told = {"url": url, "ttl": ttl, "settings": settings}

    @property
    def looks(self) -> list[Look]:
        """What it saw so far; the last line may be torn."""
        return _read(self.log())

    @property
    def last(self) -> Look:
        """What it saw last."""
        return _read(self.log_file.read_bytes()[-_LONGEST:].decode(errors="replace"))[-1]

    def _command(self) -> list[str]:
        return self._clock.command("tests.peers.leading", json.dumps(self._told))

    def _cwd(self) -> Path:
        return Path(__file__).parents[1]

    def _is_ready(self) -> bool:
        return bool(self.looks)


def _read(text: str) -> list[Look]:
    lines = text.splitlines()
    return [Look(*json.loads(line)) for line in lines if line.startswith("[") and line.endswith("]")]


def overlaps(contenders: list[Contender]) -> list[tuple[Look, Look]]:
    """Return the looks by which two led at one moment: each leads from its first yes to its last."""
    spans: list[tuple[Look, Look]] = []
    for contender in contenders:
        for term, group in groupby(contender.looks, key=lambda look: look.term):
            looks = list(group)
            if term:
                spans.append((looks[0], looks[-1]))
    spans.sort(key=lambda span: span[0].after)
    return [(one[1], other[0]) for one, other in pairwise(spans) if one[1].before > other[0].after]
