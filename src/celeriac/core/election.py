"""One node's part in one election: nominated by gossip, decided by one register.

What nodes say to each other only finds the candidate that everybody would prefer. Who acts is decided by
a claim at the arbiter: faults of the gossip can cost time and preference, and never make two winners.
"""

from math import inf
from typing import Final

from celeriac.core.backoff import Backoff
from celeriac.core.candidate import Candidates
from celeriac.core.election_effect import (
    Acknowledge,
    Act,
    Announce,
    Claim,
    Effect,
    Ended,
    Finish,
    Nominate,
    Phase,
    Release,
    Renew,
    Request,
    Resign,
    StepDown,
)
from celeriac.core.election_rules import Grants, Rules, deadline_of
from celeriac.model.election import (
    Ack,
    Answer,
    Denied,
    Elect,
    Elected,
    Election,
    Granted,
    Mode,
    RecordState,
    Resigned,
)

__all__ = ["Candidacy"]

#: So long candidates are collected, unless all nodes have heard of us before.
NOMINATION: Final = 0.6
#: So much later each next candidate claims: the preferred one comes first, and is denied by nobody.
STAGGER: Final = 0.5
#: The waits after an arbiter that cannot be reached.
RETRY_BASE, RETRY_CAP = 0.2, 10.0
#: How often a leader that may be gone is looked after, at the least.
WATCH: Final = 1.0
#: How long who steps down may take to end what it does.
STEP_DOWN: Final = 5.0
#: How long the end of an election is remembered, and how long one is observed.
FORGET_AFTER: Final = 600.0

#: Where nothing follows but to be forgotten.
_ENDS: Final = frozenset({Phase.FOLLOWING, Phase.DONE, Phase.FAILED})
#: Where it is not yet known who is granted the election.
_OPEN: Final = frozenset({Phase.OBSERVING, Phase.NOMINATING, Phase.BACKOFF})


class Candidacy:
    """The part of one node in one election: an input goes in, a list of effects comes out.

    ``ttl`` is how long a grant lasts without being renewed. One that may not act is no candidate, but
    for company. With ``nominates`` false nobody is told and nobody heard: it begins with a claim. Each
    request to the arbiter gets one :meth:`answer`. ``now`` is a clock that does not go back.
    """

    def __init__(
        self,
        election: Election,
        rules: Rules,
        grants: Grants,
        *,
        ttl: float,
        may_act: bool = True,
        nominates: bool = True,
        now: float,
    ) -> None:
        self.election = election
        self.may_act = may_act
        self.phase = Phase.OBSERVING
        self.candidates = Candidates(rules.name)
        #: Of our grant; 0 while we have none.
        self.token = 0
        #: Until when we may act on it.
        self.deadline = -inf
        #: When nothing more can come of it.
        self.forget_at = now + FORGET_AFTER
        self._rules = rules
        self._grants = grants
        self._ttl = ttl
        self._nominates = nominates
        self._next_at = inf
        self._backoff = Backoff(base=RETRY_BASE, cap=RETRY_CAP, random=rules.random)
        #: What we asked the arbiter last and when, and whether it has yet to answer.
        self._asked: Request | None = None
        self._asked_at = 0.0
        self._is_asking = False
        #: The highest token we know.
        self._floor = 0
        #: Whether we want no more of it, and why we step down.
        self._is_leaving = False
        self._reason = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self.phase in _ENDS

    @property
    def due_at(self) -> float:
        """When :meth:`tick` has something to do."""
        return min(self._next_at, self.deadline) if self._is_leading() else self._next_at

    def is_leader(self, now: float) -> bool:
        """Say whether we may act, at this very moment."""
        return now < self.deadline

    # -- what we want

    def stand(self, now: float) -> list[Effect]:
        """Take part; to want it twice is to want it once."""
        if self.phase is not Phase.OBSERVING or not self.may_act:
            return []
        if not self._nominates:
            return self._claim(now)
        if self._rules.has_celery() and not self._rules.acts_beside_celery:
            # One of Celery's is to be preferred: it does not ask whether we may. If none stands, we do.
            self._next_at = min(self._next_at, now + NOMINATION)
            return []
        return self._nominate(now)

    def resign(self, now: float) -> list[Effect]:
        """Want it no more: step down if we lead, and claim it never again."""
        self._is_leaving = True
        if self._is_leading():
            return self._step_down("resigned", now)
        if self.phase in {Phase.OBSERVING, Phase.NOMINATING, Phase.BACKOFF, Phase.WATCHING} or (
            self.phase is Phase.CLAIMING and not self._is_asking
        ):
            return self._end(Phase.FOLLOWING, "resigned", now)
        return []  # what is asked, or done, decides

    def acted(self, now: float, *, is_failed: bool = False) -> list[Effect]:
        """Note that what we were to do has ended."""
        if self.phase is not Phase.ACTING:
            return []
        if self.election.mode is Mode.LEASE:
            self._is_leaving = True
            return self._step_down("failed" if is_failed else "done", now)
        if is_failed and self.election.mode is Mode.TAKEOVER:
            self._is_leaving, self._reason = True, "the action failed; another node may try"
            return self._release(now)
        return self._finish(now, is_failed=is_failed)

    def stepped_down(self, now: float) -> list[Effect]:
        """Note that what we did as leader has ended."""
        return self._release(now) if self.phase is Phase.STEPPING_DOWN else []

    def lost(self, now: float) -> list[Effect]:
        """Note that the arbiter told somebody else of us that the lease is not ours."""
        return self._step_down("lost to another node", now) if self._is_leading() else []

    # -- what nodes say

    def receive_elect(self, elect: Elect, now: float) -> list[Effect]:
        """Take note of a candidate, and say that we have heard of it.

        Beside a node of Celery we stand too: it needs a second candidate, and as our clock is ahead of
        what we heard, it is still preferred.
        """
        if self.phase in _OPEN:
            self.candidates.add(elect.candidate, is_ours=elect.is_ours)
        is_company = self.phase is Phase.OBSERVING and not elect.is_ours
        # Celery: it counts acknowledgements, and fails if it has not heard of two candidates by then.
        effects = self._nominate(now) if is_company else []
        self._hasten(now)
        return [*effects, Acknowledge(self.election.id, elect.candidate.name, len(self.candidates))]

    def receive_ack(self, ack: Ack, now: float) -> list[Effect]:
        """Take note that a node has heard of a candidate; once all have heard of us nobody need wait."""
        if self.phase is Phase.NOMINATING and ack.candidate == self._rules.name:
            self.candidates.heard(ack.sender)
            self._hasten(now)
        return []

    def receive_elected(self, elected: Elected, now: float) -> list[Effect]:
        """Take note that somebody was elected: we follow, and look after it where another may take over."""
        if self.phase not in _OPEN or elected.owner == self._rules.owner:
            return []
        # Its token is hearsay: whoever reaches the broker could use up all tokens by one message.
        if self.election.mode is Mode.ONCE:
            return self._end(Phase.FOLLOWING, f"{elected.owner} was elected", now)
        if self.phase is not Phase.OBSERVING:  # who only observes can still be asked to stand
            self._watch(elected.expires_in, now)
        return []

    def receive_resigned(self, resigned: Resigned, now: float) -> list[Effect]:
        """Take note that a leader has resigned: whoever waits for it claims, not all in one instant."""
        if self.phase is Phase.WATCHING and resigned.owner != self._rules.owner:
            self.phase = Phase.BACKOFF
            self._next_at = min(self._next_at, now + STAGGER * self._rules.random())
        return []

    # -- what the arbiter says

    def answer(self, answer: Answer, now: float, *, sent_at: float | None = None) -> list[Effect]:
        """Take the answer to what was asked (at ``sent_at``, if not at once); None if it is not known."""
        if not self._is_asking:
            return []
        self._is_asking = False
        self._asked_at = self._asked_at if sent_at is None else sent_at
        if answer is None:
            return self._unanswered(now)
        self._backoff.reset()
        effects: list[Effect] = []
        match self._asked, answer:
            case Claim(), Granted():
                effects = self._granted(answer, now)
            case Claim(), Denied():
                effects = self._denied(answer, now)
            case Renew(), bool():
                effects = self._renewed(now, is_ours=answer)
            case Release(), bool():
                effects = self._released(now, is_told=answer)
            case Finish(_, _, is_failed), bool():
                effects = self._finished(now, is_failed=is_failed, is_told=answer)
            case _:
                pass  # no answer to what was asked
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        if self._is_leading() and now >= self.deadline:
            return self._step_down("not renewed in time", now)
        if now < self._next_at:
            return []
        self._next_at = inf
        effects: list[Effect] = []
        match self.phase:
            case Phase.OBSERVING:
                effects = self._nominate(now)
            case Phase.NOMINATING:
                effects = self._nominated(now)
            case Phase.BACKOFF | Phase.WATCHING | Phase.CLAIMING:
                effects = self._claim(now)
            case Phase.ACTING:
                effects = self._ask(Renew(self.election.id, self.token, self._ttl), now)
            case Phase.STEPPING_DOWN:
                effects = self._release(now)
            case Phase.FINISHING if self._asked is not None:
                effects = self._ask(self._asked, now)
        return effects

    # -- from nomination to claim

    def _nominate(self, now: float) -> list[Effect]:
        self.phase = Phase.NOMINATING
        self.forget_at = inf
        self._next_at = now + NOMINATION if self._rules.alive() else now
        return [Nominate(self.election)]

    def _hasten(self, now: float) -> None:
        if self.phase is Phase.NOMINATING and self.candidates.is_heard_by(self._rules.alive()):
            self._next_at = now

    def _nominated(self, now: float) -> list[Effect]:
        if self._reason_to_follow() or not self.candidates or self.candidates.own_rank() == 0:
            return self._claim(now)
        self.phase = Phase.BACKOFF
        self._next_at = now + self.candidates.own_rank() * STAGGER
        return []

    def _reason_to_follow(self) -> str:
        if not self.may_act:
            return "not allowed to act; the node stood only to be counted"
        return self.candidates.reason_to_follow(acts_beside_celery=self._rules.acts_beside_celery)

    def _claim(self, now: float) -> list[Effect]:
        # Here, where every way leads: nothing that a node says makes us claim what we may not.
        if reason := self._reason_to_follow():
            return self._end(Phase.FOLLOWING, reason, now)
        self.phase = Phase.CLAIMING
        self.forget_at = inf
        return self._ask(Claim(self.election.id, self.election.mode, self._ttl, self._floor), now)

    def _granted(self, granted: Granted, now: float) -> list[Effect]:
        mode = self.election.mode
        deadline = inf if mode is Mode.ONCE else deadline_of(self._asked_at, self._ttl)
        if 0 < granted.token < self._floor:  # somebody has changed what the arbiter knows, or it has lost it
            return self._end(
                Phase.FAILED, f"token {granted.token} is below {self._floor}, an earlier one", now
            )
        self.token = self._floor = granted.token
        if self._is_leaving:
            return self._finish(now, is_failed=True) if mode is Mode.ONCE else self._release(now)
        if now >= deadline:
            return self._claim(now)  # it came too late to be used, and to claim again prolongs it
        if not self._grants.add(self.election.id, granted.token):
            # An old grant of ours, whose end did not reach the arbiter.
            return self._release(now) if mode is Mode.LEASE else self._finish(now, is_failed=False)
        self.phase = Phase.ACTING
        self.deadline = deadline
        self._next_at = self._asked_at + self._ttl / 3 if mode is Mode.LEASE else inf
        announced = Announce(self.election.id, granted.token, self._ttl)
        return [announced, Act(self.election, granted.token, granted.note)]

    def _denied(self, denied: Denied, now: float) -> list[Effect]:
        self._floor = max(self._floor, denied.token)
        is_open = denied.state is RecordState.HELD and self.election.mode is not Mode.ONCE
        if not is_open or self._is_leaving:
            return self._end(Phase.FOLLOWING, f"{denied.owner} was elected", now)
        self._watch(denied.remaining, now)
        return []

    def _watch(self, remaining: float, now: float) -> None:
        # Often: that a leader has resigned can be missed.
        self.phase = Phase.WATCHING
        self._next_at = now + min(max(remaining, 0.0), WATCH) + STAGGER * self._rules.random()

    # -- from leading to the end

    def _is_leading(self) -> bool:
        return self.phase is Phase.ACTING and self.election.mode is Mode.LEASE

    def _renewed(self, now: float, *, is_ours: bool) -> list[Effect]:
        if self.phase is Phase.RELEASING:
            return self._release(now)  # it had to wait for this answer
        if self.phase is not Phase.ACTING:
            return []
        if not is_ours:
            return self._step_down("lost to another node", now)
        self.deadline = deadline_of(self._asked_at, self._ttl)
        self._next_at = self._asked_at + self._ttl / 3
        return []

    def _step_down(self, reason: str, now: float) -> list[Effect]:
        self.phase = Phase.STEPPING_DOWN
        self.deadline = -inf
        self._next_at = now + STEP_DOWN
        self._reason = reason
        return [StepDown(self.election.id, self.token, reason)]

    def _release(self, now: float) -> list[Effect]:
        self.phase = Phase.RELEASING
        self.deadline = -inf
        self._next_at = inf
        return [] if self._is_asking else self._ask(Release(self.election.id, self.token), now)

    def _released(self, now: float, *, is_told: bool) -> list[Effect]:
        effects: list[Effect] = [Resign(self.election.id, self.token)] if is_told else []
        self.token = 0
        if self._is_leaving:
            phase = Phase.FAILED if self.election.mode is Mode.TAKEOVER else Phase.DONE
            return [*effects, *self._end(phase, self._reason or "resigned", now)]
        self._watch(WATCH, now)  # whoever waited for it comes first
        return effects

    def _finish(self, now: float, *, is_failed: bool) -> list[Effect]:
        self.phase = Phase.FINISHING
        return self._ask(Finish(self.election.id, self.token, is_failed), now)

    def _finished(self, now: float, *, is_failed: bool, is_told: bool) -> list[Effect]:
        text = f"the action {'failed' if is_failed else 'ended'}{'' if is_told else ', too late'}"
        return self._end(Phase.FAILED if is_failed else Phase.DONE, text, now)

    # -- the arbiter

    def _ask(self, request: Request, now: float) -> list[Effect]:
        self._asked, self._asked_at, self._is_asking = request, now, True
        self._next_at = inf
        return [request]

    def _unanswered(self, now: float) -> list[Effect]:
        """Ask again after a while: what came of it is never assumed."""
        wait = self._backoff.next()
        match self._asked:
            case Claim() if self._is_leaving:
                # It may be ours: then nobody has it until it expires.
                return self._end(Phase.FOLLOWING, "resigned", now)
            case Renew() if self.phase is Phase.ACTING:
                self._next_at = now + min(wait, self._ttl / 10)
            case Renew():
                return self._release(now) if self.phase is Phase.RELEASING else []
            case Release():
                return self._released(now, is_told=False)  # it expires by itself
            case Finish() if self.election.mode is Mode.TAKEOVER and now >= self.deadline:
                return self._end(Phase.DONE, "the action ended, but another node may be elected", now)
            case _:
                self._next_at = now + wait
        return []

    def _end(self, phase: Phase, reason: str, now: float) -> list[Effect]:
        self.phase = phase
        self.deadline = -inf
        self._next_at = inf
        self.forget_at = now + FORGET_AFTER
        return [Ended(self.election.id, phase, reason)]
