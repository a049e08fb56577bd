"""What happened in elections, as it was seen from outside, and whether the promises were kept.

Nothing here believes what the code under test says of itself but for one thing: a process that asks whether
it leads writes down the answer, with the clock of the machine before and after it.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

__all__ = ["Attempt", "Belief", "History", "read_journal"]


class Attempt(NamedTuple):
    """Somebody began to act, or wrote, or tried to, by a token."""

    #: Which election, or lease.
    key: str
    token: int
    #: As the arbiter knows it.
    owner: str
    #: A process, from its start to its end.
    boot: str
    #: The token was granted after this moment.
    entered_at: float
    #: And before this one, when the sink saw it.
    arrived_at: float
    is_taken: bool


class Belief(NamedTuple):
    """A process asked whether it leads, and was told that it does, at some moment between these two."""

    token: int
    boot: str
    before: float
    after: float


def read_journal(path: Path) -> list[Belief]:
    """Read what processes believed; a last line may be torn, as they are killed."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Belief(*json.loads(line)) for line in lines if line.endswith("]\n")]


@dataclass
class History:
    """Who began to act, what was written, both in the order of arrival; all beliefs; and first calls.

    The mode of an election is told by its key: ``once-…`` or ``takeover-…``; all else are leases.
    """

    begun: list[Attempt]
    attempts: list[Attempt]
    beliefs: list[Belief] = field(default_factory=list)
    #: When each election was called for the first time.
    called_at: Mapping[str, float] = field(default_factory=dict)

    def violations(self) -> list[str]:
        """Return what was promised and not kept; nothing, if all is well."""
        return [
            *self._tokens_of_two(),
            *self._tokens_that_fall(),
            *self._split(),
            *self._twice_by_one_grant(),
            *self._out_of_order(),
            *self._leaders_at_once(),
        ]

    def refused(self, key: str) -> list[Attempt]:
        """Return the writes of those who were replaced."""
        return [each for each in self.attempts if each.key == key and not each.is_taken]

    def tokens(self, key: str) -> list[int]:
        """Return the tokens that were written by, in order of their first writes."""
        return list(dict.fromkeys(each.token for each in self.attempts if each.key == key and each.is_taken))

    def _tokens_of_two(self) -> Iterator[str]:
        """E2: each token is of one grant, of one key, to one owner in one process."""
        holders: dict[int, set[tuple[str, str]]] = defaultdict(set)
        for each in (*self.begun, *self.attempts):
            holders[each.token].add((each.key, each.boot))
            if each.token <= 0:
                yield f"E2: {each} has no token"
        for belief in self.beliefs:
            keys = [key for key, _ in holders[belief.token]] or [""]
            holders[belief.token].add((keys[0], belief.boot))
        for token, found in holders.items():
            if len({boot for _, boot in found}) > 1 or len({key for key, _ in found if key}) > 1:
                yield f"E2: token {token} is of {sorted(found)}"

    def _tokens_that_fall(self) -> Iterator[str]:
        """E2: a token that was surely granted after another is higher, whatever either is for."""
        first_seen: dict[int, float] = {}
        entered: dict[int, tuple[float, str]] = {}
        for each in sorted((*self.begun, *self.attempts), key=lambda each: each.arrived_at):
            first_seen.setdefault(each.token, each.arrived_at)
            lower = max(each.entered_at, self.called_at.get(each.key, -inf))
            known, _ = entered.get(each.token, (-inf, ""))
            entered[each.token] = (max(known, lower), each.key)
        # In the order of when they were seen; whoever was entered after that must be higher.
        seen = sorted((seen_at, token) for token, seen_at in first_seen.items())
        highest, position = (0, ""), 0
        for (entered_at, key), token in sorted((value, token) for token, value in entered.items()):
            while position < len(seen) and seen[position][0] < entered_at:
                candidate = seen[position][1]
                highest = max(highest, (candidate, entered[candidate][1]))
                position += 1
            if token < highest[0]:
                yield f"E2: token {token} of {key} was granted after {highest[0]} of {highest[1]}"

    def _split(self) -> Iterator[str]:
        """E1: of mode once one acts, at the most, and once; to begin is to act."""
        for name, told in (("begun", self.begun), ("done", self.attempts)):
            counts = Counter(each.key for each in told if each.key.startswith("once-"))
            for key, count in counts.items():
                if count > 1:
                    yield f"E1: {key} was {name} {count} times: {[each for each in told if each.key == key]}"

    def _twice_by_one_grant(self) -> Iterator[str]:
        """E6: a handler runs once for a grant."""
        counts = Counter((each.key, each.token) for each in self.begun)
        for (key, token), count in counts.items():
            if count > 1:
                yield f"E6: {key} was begun {count} times by token {token}"

    def _out_of_order(self) -> Iterator[str]:
        """E5: the sink took nothing of an older leader after something of a newer one."""
        taken: dict[str, list[Attempt]] = defaultdict(list)
        for each in self.attempts:
            if each.is_taken:
                taken[each.key].append(each)
        for key, attempts in taken.items():
            for one, next_ in pairwise(attempts):
                if next_.token < one.token:
                    yield f"E5: {key} took token {next_.token} after {one.token}"

    def _leaders_at_once(self) -> Iterator[str]:
        """E4: whoever leads later by the token asked later: no two were told that they lead at one moment.

        The last yes of one was not before ``before``, the first yes of the next not after ``after``.
        """
        spans = list(_spans(self.beliefs))
        latest: Belief | None = None
        for first, last in spans:
            if latest is not None and latest.before > first.after:
                yield f"E4: {latest} while {first}"
            if latest is None or last.before > latest.before:
                latest = last


def _spans(beliefs: Iterable[Belief]) -> Iterator[tuple[Belief, Belief]]:
    """Return of each token the first and the last time that it was believed in, by rising tokens."""
    by_token: dict[int, list[Belief]] = defaultdict(list)
    for each in beliefs:
        by_token[each.token].append(each)
    for token in sorted(by_token):
        told = by_token[token]
        yield min(told, key=lambda each: each.after), max(told, key=lambda each: each.before)
