"""Every promise of an election is seen to be broken: bugs are planted, and the simulator must find each.

Several are bugs of election code in use: to count acknowledgements twice, to decide without asking, to trust
a lease from when the answer came, to check a flag instead of a clock, to come back under an old name.
"""

from contextlib import ExitStack
from math import inf
from typing import Any
from unittest.mock import patch

import pytest

from celeriac.core import decision_log, election, election_rules
from celeriac.core.candidate import Candidates
from celeriac.core.decision_log import DecisionLog
from celeriac.core.election import Candidacy
from celeriac.core.election_effect import Act, Claim, Effect, Phase, Request
from celeriac.core.election_rules import Grants
from celeriac.core.elections import Elections
from celeriac.core.register import Register
from celeriac.model.decision import EntryKind
from celeriac.model.election import Ack, Answer, Decision, Elected, Granted, Mode, Record, RecordState
from tests.simulation import node
from tests.simulation.log_arbiter import LogArbiter
from tests.simulation.run import run

#: So many runs a bug may survive.
MOST_RUNS = 1500

_answer, _tick, _step_down = Candidacy.answer, Candidacy.tick, Candidacy._step_down
_renewed, _end, _tick_all = Candidacy._renewed, Candidacy._end, Elections.tick
_claim, _keep, _is_valid = Register.claim, Register._keep, DecisionLog._is_valid
_ask = LogArbiter.ask


def yes(*_: object, **__: object) -> bool:
    """Look at nothing."""
    return True


# -- in what nodes say to each other


class ListedAcknowledgements(Candidates):
    """Count every acknowledgement, also the second one of the same node."""

    def __init__(self, own_name: str) -> None:
        super().__init__(own_name)
        self.count = 0

    def heard(self, by: str) -> None:
        self.count += bool(by)

    def is_heard_by(self, names: Any) -> bool:
        return self.own_name in self._clocks and self.count >= len(names)


class HeardByOthers(Candidates):
    """Be content that others have heard of us, and rank ourselves before we have."""

    def is_heard_by(self, names: Any) -> bool:
        return self._heard_by.issuperset(names)


def decide_by_majority(self: Candidacy, ack: Ack, _: float) -> list[Effect]:
    """Act once most of those who seem to be there have heard of us, as Celery does."""
    if self.phase is not Phase.NOMINATING or ack.candidate != self._rules.name:
        return []
    self.candidates.heard(ack.sender)
    if len(self.candidates._heard_by) * 2 <= len(self._rules.alive()) or self.candidates.own_rank():
        return []
    self.phase, self.token, self.deadline = Phase.ACTING, 1, inf
    return [Act(self.election, 1, b"")]


def follow_for_good(self: Candidacy, _: Elected, now: float) -> list[Effect]:
    """Be no candidate any more once somebody was elected while we only observed."""
    if self.phase is Phase.OBSERVING:
        return self._end(Phase.FOLLOWING, "another was elected", now)
    return []


# -- in one node's part


def count_from_the_answer(
    self: Candidacy, answer: Answer, now: float, *, sent_at: float | None = None
) -> list[Effect]:
    """Believe in a lease from when the answer came, not from when it was asked for."""
    return _answer(self, answer, now, sent_at=now if sent_at is None else sent_at)


def assume_granted(
    self: Candidacy, answer: Answer, now: float, *, sent_at: float | None = None
) -> list[Effect]:
    """Take no answer for a yes."""
    if answer is None and isinstance(self._asked, Claim):
        answer = Granted(self._floor + 1)
    return _answer(self, answer, now, sent_at=sent_at)


def assume_denied(
    self: Candidacy, answer: Answer, now: float, *, sent_at: float | None = None
) -> list[Effect]:
    """Take no answer for a no."""
    if answer is None and isinstance(self._asked, Claim):
        return _end(self, Phase.FOLLOWING, "not granted", now)
    return _answer(self, answer, now, sent_at=sent_at)


def lead_by_a_flag(self: Candidacy, now: float) -> bool:
    """Lead while nobody said otherwise."""
    return self.phase is Phase.ACTING and now > 0


def lead_past_the_deadline(self: Candidacy, now: float) -> list[Effect]:
    """Tell nobody that the lease is over."""
    deadline, self.deadline = self.deadline, inf
    effects = _tick(self, now)
    if self.deadline == inf:
        self.deadline = deadline
    return effects


def release_at_once(self: Candidacy, reason: str, now: float) -> list[Effect]:
    """Let others lead before we have ended what we do."""
    return [*_step_down(self, reason, now), *self._release(now)]


def renew_once(self: Candidacy, now: float, *, is_ours: bool) -> list[Effect]:
    """Forget to renew again."""
    effects = _renewed(self, now, is_ours=is_ours)
    if self.phase is Phase.ACTING:
        self._next_at = inf
    return effects


def watch_for_ever(self: Candidacy, *_: float) -> None:
    """Look at a leader, and never claim."""
    self.phase = Phase.WATCHING
    self._next_at = inf


def forget_nothing(self: Elections, now: float) -> list[Effect]:
    """Keep what is over."""
    kept = self._all.copy()
    effects = _tick_all(self, now)
    self._all.update(kept)
    return effects


def owner_by_name(name: str, boot: int, entry: int) -> str:
    """Be the same after a restart."""
    return name if boot and entry else ""


# -- in the arbiter


def claim_without_extension(self: Register, key: str, owner: str, **about: Any) -> Decision:
    """Tell the owner that it is the owner, and leave the end where it is."""
    record = self.read(key, about["now"])
    if record is not None and (record.owner, record.state) == (owner, RecordState.HELD):
        return Granted(record.token, record.note)
    return _claim(self, key, owner, **about)


def claim_by_own_counter(self: Register, key: str, owner: str, **about: Any) -> Decision:
    """Give the token that follows on what the claimer knows."""
    self.last_token = 0
    return _claim(self, key, owner, **about)


def claim_what_is_done(self: Register, key: str, owner: str, **about: Any) -> Decision:
    """Grant again what is done."""
    record = self.read(key, about["now"])
    if record is not None and record.state is RecordState.DONE:
        del self._records[key]
    return _claim(self, key, owner, **about)


def keep_for_the_ttl(self: Register, record: Record, seconds: float, now: float) -> None:
    """Let a winner of ``once`` be replaced when its time is over."""
    _keep(self, record, min(seconds, record.ttl), now)


def release_whoever(self: Register, key: str, owner: str, token: int, *, now: float) -> bool:
    """Let go what another holds."""
    record = self.read(key, now)
    if record is None or record.mode is Mode.ONCE:
        return False
    del self._records[key], self._ends_at[key]
    return bool(owner and token)


def renew_unasked(self: Register, key: str, owner: str, token: int, *, ttl: float, now: float) -> bool:
    """Write the owner down again, whoever has it meanwhile."""
    record = Record(key, owner, token, Mode.LEASE, RecordState.HELD, ttl, 0.0, 0.0)
    self._keep(record, ttl, now)
    return True


def take_over_by_token(self: DecisionLog, entry: Any, known: Any) -> bool:
    """Take over though it was renewed meanwhile."""
    if entry.kind is EntryKind.TAKEOVER:
        return bool(known.is_open and entry.prev.token == known.version.token)
    return _is_valid(self, entry, known)


def take_over_early(ttl: float) -> float:
    """Have too little patience."""
    return ttl / 2


def wait_for_an_old_entry(self: LogArbiter, asking: node.Node, call: int, request: Request) -> None:
    """Take what an older call has written for the answer to this one."""
    known = self._readers.get(asking.index)
    entry_id = known.entry_id if known is not None and known.boot == asking.boot else ""
    _ask(self, asking, call, request)
    reader = self._readers[asking.index]
    reader.entry_id = reader.entry_id or entry_id


#: What is planted where, which run finds it, and by which promise.
BUGS: list[tuple[str, list[tuple[object, str, object]], Mode, str, set[str]]] = [
    ("acts_twice_on_a_grant", [(Grants, "add", yes)], Mode.LEASE, "register-storm", {"E6"}),
    (
        "acknowledgements_by_list",
        [(election, "Candidates", ListedAcknowledgements)],
        Mode.ONCE,
        "register-fair",
        {"preference"},
    ),
    (
        "ranks_itself_unheard",
        [(election, "Candidates", HeardByOthers)],
        Mode.ONCE,
        "register-fair",
        {"preference"},
    ),
    (
        "decides_by_majority",
        [(Candidacy, "receive_ack", decide_by_majority)],
        Mode.ONCE,
        "register-storm",
        {"E1", "E3"},
    ),
    (
        "follows_for_good",
        [(Candidacy, "receive_elected", follow_for_good)],
        Mode.TAKEOVER,
        "register-storm",
        {"E7"},
    ),
    (
        "deadline_from_the_answer",
        [(Candidacy, "answer", count_from_the_answer)],
        Mode.LEASE,
        "register-storm",
        {"E4"},
    ),
    (
        "deadline_from_the_answer_of_a_log",
        [(Candidacy, "answer", count_from_the_answer)],
        Mode.LEASE,
        "log-storm",
        {"E4"},
    ),
    (
        "unknown_is_granted",
        [(Candidacy, "answer", assume_granted)],
        Mode.ONCE,
        "register-storm",
        {"E1", "E3"},
    ),
    ("unknown_is_denied", [(Candidacy, "answer", assume_denied)], Mode.TAKEOVER, "register-storm", {"E7"}),
    ("leads_by_a_flag", [(Candidacy, "is_leader", lead_by_a_flag)], Mode.LEASE, "register-freeze", {"E4"}),
    (
        "no_step_down_at_the_deadline",
        [(Candidacy, "tick", lead_past_the_deadline)],
        Mode.LEASE,
        "register-drift",
        {"step-down"},
    ),
    (
        "released_before_its_end",
        [(Candidacy, "_step_down", release_at_once)],
        Mode.LEASE,
        "log-storm",
        {"release"},
    ),
    ("renews_once", [(Candidacy, "_renewed", renew_once)], Mode.LEASE, "log-drift", {"E7"}),
    ("watches_for_ever", [(Candidacy, "_watch", watch_for_ever)], Mode.TAKEOVER, "log-storm", {"E7"}),
    ("forgets_nothing", [(Elections, "tick", forget_nothing)], Mode.ONCE, "register-fair", {"E8"}),
    (
        "no_margin_for_clocks",
        [(election_rules, "CLOCK_ERROR", 0.0), (election_rules, "GUARD", 0.0)],
        Mode.LEASE,
        "register-drift",
        {"E4"},
    ),
    ("one_owner_for_all_boots", [(node, "owner_of", owner_by_name)], Mode.ONCE, "register-storm", {"E2"}),
    (
        "claims_do_not_extend",
        [(Register, "claim", claim_without_extension)],
        Mode.LEASE,
        "register-storm",
        {"E4"},
    ),
    (
        "tokens_by_own_counter",
        [(Register, "claim", claim_by_own_counter)],
        Mode.LEASE,
        "register-storm",
        {"E2"},
    ),
    (
        "grants_what_is_done",
        [(Register, "claim", claim_what_is_done)],
        Mode.TAKEOVER,
        "register-storm",
        {"E1"},
    ),
    ("once_for_a_while", [(Register, "_keep", keep_for_the_ttl)], Mode.ONCE, "register-storm", {"E1"}),
    ("anybody_releases", [(Register, "release", release_whoever)], Mode.LEASE, "register-freeze", {"E4"}),
    ("renews_what_is_lost", [(Register, "renew", renew_unasked)], Mode.LEASE, "register-freeze", {"E4"}),
    (
        "takes_over_what_was_renewed",
        [(DecisionLog, "_is_valid", take_over_by_token)],
        Mode.LEASE,
        "log-storm",
        {"E4"},
    ),
    (
        "answered_by_an_old_entry",
        [(LogArbiter, "ask", wait_for_an_old_entry)],
        Mode.LEASE,
        "log-storm",
        {"E3", "E4"},
    ),
    ("takes_over_early", [(decision_log, "silence_of", take_over_early)], Mode.LEASE, "log-storm", {"E4"}),
]


@pytest.mark.parametrize(
    ("planted", "mode", "profile", "laws"), [pytest.param(*bug[1:], id=bug[0]) for bug in BUGS]
)
def test_the_planted_bug_is_found(
    planted: list[tuple[object, str, object]], mode: Mode, profile: str, laws: set[str]
) -> None:
    with ExitStack() as stack:
        for where, name, bug in planted:
            stack.enter_context(patch.object(where, name, bug))

        outcomes = (run(seed, mode, profile) for seed in range(MOST_RUNS))
        found = next((outcome for outcome in outcomes if outcome.violation is not None), None)

    assert found is not None, f"it survived {MOST_RUNS} runs"
    assert found.law in laws, f"{found.replay}: {found.violation}"


def test_without_a_bug_the_same_runs_break_no_promise() -> None:
    runs = {(mode, profile) for _, _, mode, profile, _ in BUGS}

    broken = [
        outcome.replay
        for mode, profile in sorted(runs)
        for seed in range(30)
        if (outcome := run(seed, mode, profile)).violation is not None
    ]

    assert broken == []
