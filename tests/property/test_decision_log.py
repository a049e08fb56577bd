"""The laws of a log of decisions, whatever is written in whatever order, and whoever reads when.

Nodes plan by what they have read, with clocks that differ in rate. What they write gets into the log late,
twice or never. Time passes in small steps and in long ones, so that records are forgotten.
"""

import os
from itertools import count, pairwise
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from celeriac.core.decision_log import DecisionLog, max_age_of
from celeriac.core.election_rules import CLOCK_ERROR, deadline_of
from celeriac.model.decision import Entry, EntryKind, Verdict
from celeriac.model.election import Granted, Mode

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
TTL = 10.0
RETAIN = 10_000.0
#: The rates of the nodes' clocks, as far apart as they may be.
RATES = (1.0, 1 + CLOCK_ERROR, 1 - CLOCK_ERROR)
KEYS = ("a", "b")
NODES = range(len(RATES))
#: From here on nothing that is on its way gets into the log: it would be older than clocks may be wrong.
LONG = 100.0
#: How old an entry gets, where clocks are right and what is on its way gets there before long.
KEPT = 3 * (RETAIN + LONG)

VERBS = ("claim", "claim", "renew", "finish", "release")
steps = st.one_of(
    # A whole call, as it mostly is; then all that can come between its parts.
    st.tuples(st.sampled_from([f"do {verb}" for verb in VERBS]), st.sampled_from(NODES)),
    st.tuples(st.sampled_from(("read", *VERBS)), st.sampled_from(NODES)),
    st.tuples(st.sampled_from(("land", "land", "land twice", "lose", "restart")), st.sampled_from(NODES)),
    st.tuples(st.just("pass"), st.sampled_from((3.0, 9.0, 10.5))),
    st.tuples(st.just("pass"), st.sampled_from((3.0, 9.5, RETAIN * 0.4, RETAIN * 0.7, RETAIN * 1.2))),
)
stories = st.lists(
    st.tuples(steps, st.sampled_from(("a", "a", "a", "b")), st.sampled_from((0, 0, 0, 50))),
    min_size=5,
    max_size=100,
)


Story = list[tuple[tuple[str, float], str, int]]


def told(*steps: tuple[str, float]) -> Story:
    """Return a story about one key."""
    return [(step, "a", 0) for step in steps]


#: One looks, and the other renews until its first time would be over.
RENEWED = told(
    ("do claim", 0),
    ("do claim", 1),
    *(("pass", 3.0), ("do claim", 0)) * 4,
    ("do claim", 1),
)
#: One looks, and the other has its time prolonged when it is over.
PROLONGED = told(("do claim", 0), ("do claim", 1), ("pass", 12.0), ("do claim", 0), ("do claim", 1))
#: One looks, and looks again long before the time of the other is over.
HELD = told(("do claim", 0), ("do claim", 1), ("pass", 3.0), ("do claim", 1), ("pass", 3.0))
#: One claims by what it has read long ago; what is found at the beginning of the log was overtaken.
OVERTAKEN = told(
    *(("do claim", 2), ("read", 0), ("do release", 2)),
    *(("pass", RETAIN * 0.7), ("do claim", 0)),
    *(("pass", RETAIN * 0.4), ("pass", RETAIN * 0.4), ("do claim", 2), ("do release", 2)),
    *(("pass", RETAIN * 0.7), ("do claim", 0)),
)


class Term(NamedTuple):
    """That a node takes itself for the holder of a lease, from when to when."""

    key: str
    owner: str
    begins_at: float
    ends_at: float


class Node:
    """Plans by what it has read."""

    def __init__(self, number: int) -> None:
        self.rate = RATES[number]
        self.number = number
        self.boots = 0
        self.begin()

    def begin(self) -> None:
        """Start anew, and know nothing."""
        self.boots += 1
        self.owner = f"node-{self.number}.{self.boots}"
        self.log = DecisionLog(retain=RETAIN)
        self.read = 0
        self.tokens: dict[str, int] = {}
        #: When its entries were planned, by its clock.
        self.sent: dict[str, float] = {}


class World:
    """A log, and who writes and reads it."""

    def __init__(self, modes: dict[str, Mode]) -> None:
        self.modes = modes
        self.now = 0.0
        self.ids = count()
        #: What got into the log, and when.
        self.log: list[tuple[float, Entry]] = []
        self.flying: list[Entry] = []
        #: By entry, the highest token that its writer knew.
        self.floors: dict[str, int] = {}
        self.nodes = [Node(number) for number in NODES]
        self.terms: list[Term] = []
        #: By place in the log, what readers made of it.
        self.verdicts: dict[int, Verdict] = {}

    def step(self, verb: str, number: float, key: str, floor: int) -> None:
        """Do one thing."""
        if verb == "pass":
            if number > LONG:
                self.flying.clear()
            self.now += number
            return
        node = self.nodes[int(number)]
        match verb:
            case "read":
                self.catch_up(node)
            case "restart":
                node.begin()
            case "land" | "land twice" | "lose":
                self.land(0, 0 if verb == "lose" else 1 + (verb == "land twice"))
            case _:
                is_whole = verb.startswith("do ")
                if self.plan(node, verb.removeprefix("do "), key, floor) and is_whole:
                    self.land(-1, 1)
                    self.catch_up(node)

    def plan(self, node: Node, verb: str, key: str, floor: int) -> bool:
        # Nobody plans before all is read that was there when it began.
        if not node.read:
            self.catch_up(node)
        now, id_ = self.now * node.rate, f"{next(self.ids)}"
        token = node.tokens.get(key, 0)
        at = self.now
        match verb:
            case "claim":
                plan: object = node.log.claim(
                    key, node.owner, ttl=TTL, mode=self.modes[key], now=now, at=at, id=id_, floor=floor
                )
                if isinstance(plan, Granted):
                    self.believe(node, key, plan.token, sent_at=now)
            case "renew":
                plan = node.log.renew(key, node.owner, token, ttl=TTL, at=at, id=id_)
            case "finish":
                plan = node.log.finish(key, node.owner, token, at=at, id=id_)
            case _:
                plan = node.log.release(key, node.owner, token, at=at, id=id_)
        if isinstance(plan, Entry):
            node.sent[id_] = now
            self.floors[id_] = floor
            self.flying.append(plan)
            if plan.kind in {EntryKind.RELEASE, EntryKind.FINISH}:
                # Who gives something up has stopped before.
                self.stop(key, node.owner)
        return isinstance(plan, Entry)

    def land(self, which: int, times: int) -> None:
        if self.flying:
            entry = self.flying.pop(which)
            self.log.extend([(self.now, entry)] * times)

    def catch_up(self, node: Node) -> None:
        for place in range(node.read, len(self.log)):
            _, entry = self.log[place]
            verdict = node.log.apply(place, entry, now=self.now * node.rate)
            assert self.verdicts.setdefault(place, verdict) == verdict
            if verdict.is_valid and entry.id in node.sent:
                sent_at = node.sent[entry.id]
                if entry.kind in {EntryKind.CLAIM, EntryKind.TAKEOVER, EntryKind.RENEW}:
                    self.believe(node, entry.key, verdict.token, sent_at=sent_at)
        node.read = len(self.log)

    def believe(self, node: Node, key: str, token: int, *, sent_at: float) -> None:
        node.tokens[key] = token
        ends_at = deadline_of(sent_at, TTL) / node.rate
        if ends_at > self.now and self.modes[key] is not Mode.ONCE:
            self.terms.append(Term(key, node.owner, self.now, ends_at))

    def stop(self, key: str, owner: str) -> None:
        self.terms = [
            term._replace(ends_at=min(term.ends_at, self.now)) if term[:2] == (key, owner) else term
            for term in self.terms
        ]


def played(story: list[tuple[tuple[str, float], str, int]], modes: dict[str, Mode]) -> World:
    """Return what came of a story."""
    world = World(modes)
    for (verb, number), key, floor in story:
        world.step(verb, number, key, floor)
    for node in world.nodes:
        world.catch_up(node)
    return world


def grants(world: World) -> list[tuple[Entry, int]]:
    """Return what was granted, in order, with its token."""
    reader = DecisionLog(retain=RETAIN)
    judged = [(entry, reader.apply(place, entry, now=0.0)) for place, (_, entry) in enumerate(world.log)]
    return [
        (entry, verdict.token)
        for entry, verdict in judged
        if verdict.is_valid and entry.kind in {EntryKind.CLAIM, EntryKind.TAKEOVER}
    ]


OPEN = {"a": Mode.LEASE, "b": Mode.TAKEOVER}


@example(RENEWED)
@example(PROLONGED)
@example(HELD)
@given(stories)
def test_readers_agree_and_no_two_hold_a_lease_at_a_time(
    story: list[tuple[tuple[str, float], str, int]],
) -> None:
    world = played(story, OPEN)

    terms = sorted(world.terms, key=lambda term: (term.key, term.begins_at))
    reach: dict[str, dict[str, float]] = {}
    for term in terms:
        held = reach.setdefault(term.key, {})
        others = max((until for owner, until in held.items() if owner != term.owner), default=-inf)
        assert others <= term.begins_at
        held[term.owner] = max(held.get(term.owner, -inf), term.ends_at)


@given(stories)
def test_tokens_rise_over_all_grants_and_are_above_what_was_known(
    story: list[tuple[tuple[str, float], str, int]],
) -> None:
    world = played(story, OPEN)

    tokens = [token for _, token in grants(world)]
    assert all(before < after for before, after in pairwise(tokens))
    assert all(token > world.floors[entry.id] for entry, token in grants(world))


@given(stories)
def test_what_is_granted_once_is_not_granted_again_while_it_is_kept(
    story: list[tuple[tuple[str, float], str, int]],
) -> None:
    world = played(story, dict.fromkeys(KEYS, Mode.ONCE))

    for key in KEYS:
        moments = [entry.at for entry, _ in grants(world) if entry.key == key]
        assert all(after - before > RETAIN for before, after in pairwise(moments))


# Many, where there is time: few stories have an entry that was overtaken just where the log begins.
@settings(max_examples=settings().max_examples * (5 if IS_LONG else 1))
@pytest.mark.parametrize("modes", [OPEN, dict.fromkeys(KEYS, Mode.ONCE)], ids=["open", "once"])
@example(story=OVERTAKEN)
@given(story=stories)
def test_who_starts_late_judges_as_all_others(
    modes: dict[str, Mode], story: list[tuple[tuple[str, float], str, int]]
) -> None:
    world = played(story, modes)
    assert max_age_of(RETAIN) > KEPT
    full = DecisionLog(retain=RETAIN)
    truth = [full.apply(place, entry, now=0.0) for place, (_, entry) in enumerate(world.log)]

    for first in range(1, len(world.log)):
        # It starts when all before is so old that it is gone, and has to agree on what comes from then on.
        gone_at = world.log[first - 1][0] + KEPT
        late = DecisionLog(retain=RETAIN)
        for place in range(first, len(world.log)):
            landed_at, entry = world.log[place]
            verdict = late.apply(place, entry, now=0.0)
            assert landed_at <= gone_at or verdict == truth[place]
