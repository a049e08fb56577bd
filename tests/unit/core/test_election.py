"""One node's part in one election: each step from hearing of it to the end."""

from collections.abc import Collection
from math import inf

import pytest

from celeriac.core.election import (
    FORGET_AFTER,
    NOMINATION,
    RETRY_BASE,
    RETRY_CAP,
    STAGGER,
    STEP_DOWN,
    WATCH,
    Candidacy,
)
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
    Resign,
    StepDown,
)
from celeriac.core.election_rules import CLOCK_ERROR, GUARD, MAX_GRANTS, Grants, Rules, deadline_of
from celeriac.model.election import (
    Ack,
    Answer,
    Candidate,
    Denied,
    Elect,
    Elected,
    Election,
    Granted,
    Mode,
    RecordState,
    Resigned,
)

US, PEER, THIRD = "us@here.1", "peer@there.2", "third@there.3"
OWNER = f"{US}.boot"
TTL = 15.0


class Part:
    """A candidacy in a time of its own; chance always gives a half."""

    def __init__(
        self,
        mode: Mode = Mode.ONCE,
        *,
        alive: Collection[str] = (PEER,),
        has_celery: bool = False,
        acts_beside_celery: bool = False,
        may_act: bool = True,
        nominates: bool = True,
        grants: Grants | None = None,
    ) -> None:
        self.at = 100.0
        self.election = Election("e1", "topic", {"x": 1}, mode)
        rules = Rules(
            US,
            OWNER,
            lambda: 0.5,
            alive=lambda: alive,
            has_celery=lambda: has_celery,
            acts_beside_celery=acts_beside_celery,
        )
        self.machine = Candidacy(
            self.election,
            rules,
            grants or Grants(),
            ttl=TTL,
            may_act=may_act,
            nominates=nominates,
            now=self.at,
        )

    @property
    def phase(self) -> Phase:
        return self.machine.phase

    def stand(self) -> list[Effect]:
        return self.machine.stand(self.at)

    def hear(self, name: str, clock: int = 5, *, is_ours: bool = True) -> list[Effect]:
        return self.machine.receive_elect(Elect(self.election, Candidate(clock, name), is_ours), self.at)

    def hear_ack(self, sender: str, candidate: str = US) -> list[Effect]:
        return self.machine.receive_ack(Ack("e1", sender, candidate), self.at)

    def hear_elected(self, owner: str = PEER, token: int = 4) -> list[Effect]:
        return self.machine.receive_elected(Elected("e1", owner, token, TTL), self.at)

    def hear_resigned(self, owner: str = PEER) -> list[Effect]:
        return self.machine.receive_resigned(Resigned("e1", owner, 4), self.at)

    def answer(self, answer: Answer) -> list[Effect]:
        return self.machine.answer(answer, self.at)

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, and do what is due at its end."""
        self.at += seconds
        return self.machine.tick(self.at)

    def wait_until_due(self) -> list[Effect]:
        self.at = max(self.at, self.machine.due_at)
        return self.machine.tick(self.at)

    def claimed(self) -> "Part":
        """Have nominated itself, and claimed."""
        self.stand()
        if self.phase is Phase.NOMINATING:
            self.wait(NOMINATION)
        assert self.phase is Phase.CLAIMING
        return self

    def elected(self, token: int = 7) -> "Part":
        """Have been granted it."""
        self.claimed().answer(Granted(token))
        assert self.phase is Phase.ACTING
        return self

    def stepping_down(self) -> "Part":
        """Have lost it."""
        self.elected().wait_until_due()
        self.answer(False)
        assert self.phase is Phase.STEPPING_DOWN
        return self


def claim(mode: Mode, floor: int = 0) -> Claim:
    return Claim("e1", mode, TTL, floor)


def held(token: int = 4, remaining: float = 10.0) -> Denied:
    return Denied(PEER, token, RecordState.HELD, remaining)


# -- from hearing of it to the claim


def test_who_is_told_of_it_nominates_itself_and_collects_candidates_for_a_while() -> None:
    part = Part()

    effects = part.stand()

    assert effects == [Nominate(part.election)]
    assert part.phase is Phase.NOMINATING
    assert part.machine.due_at == part.at + NOMINATION


def test_to_be_told_twice_is_to_be_told_once() -> None:
    part = Part()
    part.stand()

    assert part.stand() == []
    assert part.phase is Phase.NOMINATING


def test_who_may_not_act_is_no_candidate() -> None:
    part = Part(may_act=False)

    assert part.stand() == []
    assert part.phase is Phase.OBSERVING


def test_who_only_hears_of_a_candidate_observes_acknowledges_and_forgets() -> None:
    part = Part()

    effects = part.hear(PEER)

    assert effects == [Acknowledge("e1", PEER, 1)]
    assert part.phase is Phase.OBSERVING
    assert part.machine.due_at == inf
    assert part.machine.forget_at == part.at + FORGET_AFTER


def test_who_nominates_acknowledges_other_candidates_too() -> None:
    part = Part()
    part.stand()

    effects = [*part.hear(US, 3), *part.hear(PEER, 4)]

    assert effects == [Acknowledge("e1", US, 1), Acknowledge("e1", PEER, 2)]
    assert part.phase is Phase.NOMINATING


def test_once_all_have_heard_of_us_nobody_waits_any_longer() -> None:
    part = Part(alive=(PEER, THIRD))
    part.stand()
    part.hear(US, 3)

    part.hear_ack(PEER)
    is_due_after_one = part.machine.due_at <= part.at
    part.hear_ack(THIRD)

    assert not is_due_after_one
    assert part.wait(0) == [claim(Mode.ONCE)]


def test_a_node_that_acknowledges_twice_counts_once() -> None:
    part = Part(alive=(PEER, THIRD))
    part.stand()
    part.hear(US, 3)

    part.hear_ack(PEER)
    part.hear_ack(PEER)

    assert part.wait(0) == []


def test_an_acknowledgement_of_another_candidate_is_none_of_us() -> None:
    part = Part()
    part.stand()
    part.hear(US, 3)

    part.hear_ack(PEER, THIRD)
    part.hear_ack(PEER, "")

    assert part.wait(0) == []


def test_acknowledgements_that_are_faster_than_our_own_message_do_not_cost_us_our_rank() -> None:
    part = Part()
    part.stand()
    part.hear(PEER, 9)
    part.hear_ack(PEER)
    before = part.wait(0)

    part.hear(US, 3)

    assert before == []
    assert part.wait(0) == [claim(Mode.ONCE)]


def test_the_preferred_candidate_claims_when_the_time_is_over() -> None:
    part = Part()
    part.stand()
    part.hear(US, 3)
    part.hear(PEER, 4)

    assert part.wait(NOMINATION - 0.01) == []
    assert part.wait(0.01) == [claim(Mode.ONCE)]


def test_equal_clocks_are_told_apart_by_name() -> None:
    part = Part()
    part.stand()
    part.hear(US, 3)
    part.hear(PEER, 3)

    assert part.wait(NOMINATION) == []
    assert part.phase is Phase.BACKOFF


def test_each_next_candidate_claims_half_a_second_later() -> None:
    part = Part(alive=(PEER, THIRD))
    part.stand()
    for name, clock in ((US, 5), (PEER, 3), (THIRD, 4)):
        part.hear(name, clock)
    part.wait(NOMINATION)

    assert part.phase is Phase.BACKOFF
    assert part.wait(2 * STAGGER - 0.01) == []
    assert part.wait(0.01) == [claim(Mode.ONCE)]


def test_whose_own_message_was_lost_claims_after_all_it_heard_of() -> None:
    part = Part()
    part.stand()
    part.hear(PEER, 9)
    part.wait(NOMINATION)

    assert part.wait(STAGGER) == [claim(Mode.ONCE)]


def test_who_is_alone_claims_at_once() -> None:
    part = Part(alive=())
    part.stand()

    assert part.wait(0) == [claim(Mode.ONCE)]


def test_who_nominates_nobody_begins_with_a_claim() -> None:
    part = Part(Mode.LEASE, nominates=False)

    assert part.stand() == [claim(Mode.LEASE)]


@pytest.mark.parametrize("phase", [Phase.OBSERVING, Phase.NOMINATING, Phase.BACKOFF])
def test_an_election_that_is_decided_for_good_is_followed(phase: Phase) -> None:
    part = Part()
    if phase is not Phase.OBSERVING:
        part.stand()
        part.hear(US, 5)
    part.hear(PEER, 3)
    if phase is Phase.BACKOFF:
        part.wait(NOMINATION)
    before = part.phase

    effects = part.hear_elected()

    assert before is phase
    assert effects == [Ended("e1", Phase.FOLLOWING, f"{PEER} was elected")]
    assert part.machine.due_at == inf


@pytest.mark.parametrize("mode", [Mode.TAKEOVER, Mode.LEASE])
def test_where_another_may_follow_a_candidate_watches_who_was_elected(mode: Mode) -> None:
    part = Part(mode)
    part.stand()

    effects = part.hear_elected()

    assert effects == []
    assert part.phase is Phase.WATCHING
    assert part.wait(WATCH + STAGGER) == [claim(mode)]


def test_a_token_that_a_peer_speaks_of_lifts_no_floor_and_one_of_the_arbiter_does() -> None:
    part = Part(Mode.LEASE)
    part.stand()
    part.hear_elected(token=2**62)
    by_hearsay = part.wait_until_due()

    part.answer(held(token=9))

    assert by_hearsay == [claim(Mode.LEASE)]
    assert part.wait_until_due() == [claim(Mode.LEASE, floor=9)]


@pytest.mark.parametrize("mode", [Mode.TAKEOVER, Mode.LEASE])
def test_who_only_observed_that_somebody_was_elected_can_still_be_asked_to_stand(mode: Mode) -> None:
    part = Part(mode)
    part.hear(PEER, 3)
    part.hear_elected()

    effects = part.stand()

    assert effects == [Nominate(part.election)]


def test_that_we_were_elected_is_no_news_to_us() -> None:
    part = Part()
    part.stand()

    assert part.hear_elected(OWNER) == []
    assert part.phase is Phase.NOMINATING


def test_what_is_said_while_the_arbiter_is_asked_does_not_decide() -> None:
    part = Part().claimed()

    assert part.hear_elected() == []
    assert part.phase is Phase.CLAIMING


# -- the claim


@pytest.mark.parametrize("mode", list(Mode))
def test_who_is_granted_it_announces_that_and_acts(mode: Mode) -> None:
    part = Part(mode).claimed()

    effects = part.answer(Granted(7, b"note"))

    assert effects == [Announce("e1", 7, TTL), Act(part.election, 7, b"note")]
    assert part.phase is Phase.ACTING
    assert part.machine.is_leader(part.at)


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        (Mode.ONCE, RecordState.HELD),
        (Mode.ONCE, RecordState.FAILED),
        (Mode.TAKEOVER, RecordState.DONE),
        (Mode.LEASE, RecordState.DONE),
    ],
)
def test_who_is_denied_what_nobody_else_can_have_follows(mode: Mode, state: RecordState) -> None:
    part = Part(mode).claimed()

    effects = part.answer(Denied(PEER, 4, state, 10.0))

    assert effects == [Ended("e1", Phase.FOLLOWING, f"{PEER} was elected")]
    assert part.machine.is_over


@pytest.mark.parametrize("mode", [Mode.TAKEOVER, Mode.LEASE])
@pytest.mark.parametrize(("remaining", "wait"), [(10.0, WATCH), (0.3, 0.3), (-1.0, 0.0)])
def test_who_is_denied_what_another_has_now_watches_and_claims_again(
    mode: Mode, remaining: float, wait: float
) -> None:
    part = Part(mode).claimed()

    effects = part.answer(held(remaining=remaining))

    assert effects == []
    assert part.phase is Phase.WATCHING
    assert part.machine.due_at == pytest.approx(part.at + wait + STAGGER / 2)
    assert part.wait_until_due() == [claim(mode, floor=4)]


def test_who_gets_no_answer_asks_the_same_again_and_never_acts() -> None:
    part = Part().claimed()

    asked = []
    for _ in range(12):
        assert part.answer(None) == []
        assert part.phase is Phase.CLAIMING
        asked.append(part.machine.due_at - part.at)
        assert part.wait_until_due() == [claim(Mode.ONCE)]

    assert asked[:3] == pytest.approx([RETRY_BASE / 2, RETRY_BASE, 2 * RETRY_BASE])
    assert max(asked) == pytest.approx(RETRY_CAP / 2)


def test_an_answer_that_nobody_waits_for_is_nothing() -> None:
    part = Part().elected()

    assert part.answer(Granted(9)) == []
    assert part.machine.token == 7


def test_an_answer_to_something_else_is_nothing() -> None:
    part = Part(Mode.LEASE).claimed()

    assert part.answer(True) == []
    assert part.phase is Phase.CLAIMING


def test_a_grant_that_came_too_late_to_be_used_is_claimed_again() -> None:
    part = Part(Mode.LEASE).claimed()
    part.at += TTL

    effects = part.answer(Granted(7))

    assert effects == [claim(Mode.LEASE, floor=7)]
    assert not part.machine.is_leader(part.at)


def test_a_grant_with_a_token_below_one_that_is_known_is_not_acted_on() -> None:
    part = Part(Mode.LEASE).claimed()
    part.answer(Denied("another", 9, RecordState.HELD, 1.0))
    part.at = part.machine.due_at
    assert part.machine.tick(part.at) == [claim(Mode.LEASE, floor=9)]

    (ended,) = part.answer(Granted(8))

    assert ended == Ended("e1", Phase.FAILED, "token 8 is below 9, an earlier one")
    assert not part.machine.is_leader(part.at)


def test_a_grant_of_once_never_comes_too_late() -> None:
    part = Part().claimed()
    part.at += 100 * TTL

    effects = part.answer(Granted(7))

    assert Act(part.election, 7, b"") in effects


@pytest.mark.parametrize(
    ("mode", "effect"),
    [
        (Mode.ONCE, Finish("e1", 7, False)),
        (Mode.TAKEOVER, Finish("e1", 7, False)),
        (Mode.LEASE, Release("e1", 7)),
    ],
)
def test_no_grant_is_acted_on_twice(mode: Mode, effect: Effect) -> None:
    grants = Grants()
    grants.add("e1", 7)
    part = Part(mode, grants=grants).claimed()

    effects = part.answer(Granted(7))

    assert effects == [effect]
    assert not part.machine.is_leader(part.at)


# -- what is done once


@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.TAKEOVER])
def test_what_was_done_is_finished(mode: Mode) -> None:
    part = Part(mode).elected()

    effects = part.machine.acted(part.at)
    ended = part.answer(True)

    assert effects == [Finish("e1", 7, False)]
    assert ended == [Ended("e1", Phase.DONE, "the action ended")]
    assert part.machine.forget_at == part.at + FORGET_AFTER


def test_a_once_that_failed_stays_failed() -> None:
    part = Part().elected()

    effects = part.machine.acted(part.at, is_failed=True)
    part.answer(True)

    assert effects == [Finish("e1", 7, True)]
    assert part.phase is Phase.FAILED


def test_a_takeover_that_failed_is_left_to_another() -> None:
    part = Part(Mode.TAKEOVER).elected()

    effects = part.machine.acted(part.at, is_failed=True)
    ended = part.answer(True)

    assert effects == [Release("e1", 7)]
    assert ended == [Resign("e1", 7), Ended("e1", Phase.FAILED, "the action failed; another node may try")]


def test_that_it_is_done_is_told_until_it_is_heard() -> None:
    part = Part().elected()
    part.machine.acted(part.at)

    part.answer(None)

    assert part.wait_until_due() == [Finish("e1", 7, False)]
    assert part.answer(True) == [Ended("e1", Phase.DONE, "the action ended")]


def test_that_a_takeover_is_done_is_not_told_once_another_may_be_elected() -> None:
    part = Part(Mode.TAKEOVER).elected()
    part.machine.acted(part.at)
    part.at = part.machine.deadline

    effects = part.answer(None)

    assert effects == [Ended("e1", Phase.DONE, "the action ended, but another node may be elected")]


def test_what_was_done_too_late_is_over_all_the_same() -> None:
    part = Part(Mode.TAKEOVER).elected()
    part.machine.acted(part.at)

    assert part.answer(False) == [Ended("e1", Phase.DONE, "the action ended, too late")]


def test_what_ends_without_having_begun_is_nothing() -> None:
    part = Part()

    assert part.machine.acted(part.at) == []
    assert part.machine.stepped_down(part.at) == []


# -- a lease


def test_a_lease_is_used_from_when_it_was_asked_for_and_less_than_clocks_may_differ() -> None:
    part = Part(Mode.LEASE).claimed()
    asked_at = part.at
    part.at += 3.0

    part.answer(Granted(7))

    assert (
        part.machine.deadline == asked_at + TTL * (1 - 2 * CLOCK_ERROR - GUARD) == deadline_of(asked_at, TTL)
    )
    assert part.machine.is_leader(part.machine.deadline - 0.001)
    assert not part.machine.is_leader(part.machine.deadline)


def test_whichever_clock_is_slow_a_lease_is_over_for_its_owner_before_it_is_for_the_arbiter() -> None:
    slow, fast = 1 - CLOCK_ERROR, 1 + CLOCK_ERROR

    assert deadline_of(0.0, TTL) / slow < TTL / fast


def test_a_lease_is_renewed_after_a_third_of_its_time() -> None:
    part = Part(Mode.LEASE).elected()
    asked_at = part.at

    part.wait(TTL / 3 - 0.01)
    effects = part.wait(0.01)
    sent_at = part.at
    part.at += 2.0
    part.answer(True)

    assert effects == [Renew("e1", 7, TTL)]
    assert sent_at == pytest.approx(asked_at + TTL / 3)
    assert part.machine.deadline == deadline_of(sent_at, TTL)
    assert part.machine.due_at == pytest.approx(sent_at + TTL / 3)


def test_a_renewal_without_an_answer_is_repeated_soon_and_prolongs_nothing() -> None:
    part = Part(Mode.LEASE).elected()
    deadline = part.machine.deadline
    part.wait(TTL / 3)

    part.answer(None)

    assert part.machine.deadline == deadline
    assert part.machine.due_at <= part.at + TTL / 10
    assert part.wait_until_due() == [Renew("e1", 7, TTL)]


@pytest.mark.parametrize("how", ["lost", "expired", "resigned", "told", "done", "failed"])
def test_who_leads_no_more_steps_down_and_only_then_releases(how: str) -> None:
    part = Part(Mode.LEASE).elected()
    match how:
        case "lost":
            part.wait(TTL / 3)
            effects = part.answer(False)
        case "expired":
            part.wait(TTL / 3)
            part.answer(None)
            part.at = part.machine.deadline
            effects = part.machine.tick(part.at)
        case "resigned":
            effects = part.machine.resign(part.at)
        case "told":
            effects = part.machine.lost(part.at)
        case _:
            effects = part.machine.acted(part.at, is_failed=how == "failed")

    released = part.machine.stepped_down(part.at)

    (step_down,) = effects
    assert isinstance(step_down, StepDown)
    assert step_down.token == 7
    assert not part.machine.is_leader(part.at)
    assert released == [Release("e1", 7)]


def test_who_takes_too_long_to_step_down_releases_all_the_same() -> None:
    part = Part(Mode.LEASE).stepping_down()

    assert part.wait(STEP_DOWN - 0.01) == []
    assert part.wait(0.01) == [Release("e1", 7)]


def test_a_release_waits_for_a_renewal_that_is_under_way() -> None:
    part = Part(Mode.LEASE).elected()
    part.wait(TTL / 3)
    part.machine.resign(part.at)

    assert part.machine.stepped_down(part.at) == []
    assert part.answer(None) == [Release("e1", 7)]


def test_a_renewal_that_comes_true_after_all_makes_nobody_lead_again() -> None:
    part = Part(Mode.LEASE).elected()
    part.wait(TTL / 3)
    part.machine.resign(part.at)

    effects = part.answer(True)

    assert effects == []
    assert part.phase is Phase.STEPPING_DOWN
    assert not part.machine.is_leader(part.at)


def test_who_has_released_tells_all_and_lets_others_come_first() -> None:
    part = Part(Mode.LEASE).stepping_down()
    part.machine.stepped_down(part.at)

    effects = part.answer(True)

    assert effects == [Resign("e1", 7)]
    assert part.phase is Phase.WATCHING
    assert part.wait(WATCH) == []
    assert part.wait(STAGGER) == [claim(Mode.LEASE, floor=7)]


@pytest.mark.parametrize("answer", [False, None])
def test_what_was_not_ours_to_release_is_told_to_nobody(answer: Answer) -> None:
    part = Part(Mode.LEASE).stepping_down()
    part.machine.stepped_down(part.at)

    assert part.answer(answer) == []
    assert part.phase is Phase.WATCHING


@pytest.mark.parametrize("mode", [Mode.TAKEOVER, Mode.LEASE])
def test_who_watches_claims_soon_after_it_hears_that_a_leader_has_resigned(mode: Mode) -> None:
    part = Part(mode).claimed()
    part.answer(held())

    part.hear_resigned()

    assert part.phase is Phase.BACKOFF
    assert part.machine.due_at == pytest.approx(part.at + STAGGER / 2)
    assert part.wait_until_due() == [claim(mode, floor=4)]


def test_who_was_told_that_it_has_resigned_itself_does_not_hurry() -> None:
    part = Part(Mode.LEASE).claimed()
    part.answer(held())
    due_at = part.machine.due_at

    part.hear_resigned(OWNER)

    assert part.machine.due_at == due_at


# -- to want no more of it


@pytest.mark.parametrize("mode", list(Mode))
def test_who_resigns_before_it_has_claimed_is_out(mode: Mode) -> None:
    part = Part(mode)
    part.stand()

    assert part.machine.resign(part.at) == [Ended("e1", Phase.FOLLOWING, "resigned")]


@pytest.mark.parametrize(
    ("mode", "effect"),
    [
        (Mode.ONCE, Finish("e1", 7, True)),
        (Mode.TAKEOVER, Release("e1", 7)),
        (Mode.LEASE, Release("e1", 7)),
    ],
)
def test_what_is_granted_to_who_has_resigned_is_given_back(mode: Mode, effect: Effect) -> None:
    part = Part(mode).claimed()
    part.machine.resign(part.at)

    effects = part.answer(Granted(7))

    assert effects == [effect]
    assert not part.machine.is_leader(part.at)


@pytest.mark.parametrize("answer", [held(), None])
def test_who_has_resigned_and_is_granted_nothing_is_out(answer: Answer) -> None:
    part = Part(Mode.LEASE).claimed()
    part.machine.resign(part.at)

    part.answer(answer)

    assert part.phase is Phase.FOLLOWING


def test_who_has_resigned_claims_never_again() -> None:
    part = Part(Mode.LEASE).elected()
    part.machine.resign(part.at)
    part.machine.stepped_down(part.at)

    effects = part.answer(True)

    assert effects == [Resign("e1", 7), Ended("e1", Phase.DONE, "resigned")]
    assert part.machine.due_at == inf


def test_what_is_being_done_once_is_not_broken_off_by_resigning() -> None:
    part = Part().elected()

    assert part.machine.resign(part.at) == []
    assert part.phase is Phase.ACTING


# -- beside Celery


def test_a_worker_of_celery_that_is_preferred_decides_by_itself() -> None:
    part = Part()
    part.stand()
    part.hear(US, 5)
    part.hear(PEER, 3, is_ours=False)

    (ended,) = part.wait(NOMINATION)

    assert isinstance(ended, Ended)
    assert part.phase is Phase.FOLLOWING


@pytest.mark.parametrize(("acts_beside_celery", "phase"), [(False, Phase.FOLLOWING), (True, Phase.CLAIMING)])
def test_beside_a_worker_of_celery_that_comes_later_we_act_only_if_allowed(
    acts_beside_celery: bool, phase: Phase
) -> None:
    part = Part(acts_beside_celery=acts_beside_celery)
    part.stand()
    part.hear(US, 2)
    part.hear(PEER, 3, is_ours=False)

    part.wait(NOMINATION)

    assert part.phase is phase


@pytest.mark.parametrize("may_act", [True, False])
def test_a_lone_candidate_of_celery_is_kept_company_and_nothing_is_done(may_act: bool) -> None:
    part = Part(may_act=may_act)

    effects = part.hear(PEER, 3, is_ours=False)
    part.hear(US, 5)
    ended = part.wait(NOMINATION)

    assert effects == [Nominate(part.election), Acknowledge("e1", PEER, 1)]
    assert [type(effect) for effect in ended] == [Ended]


def test_where_workers_of_celery_are_they_come_first_and_if_none_stands_we_do() -> None:
    part = Part(has_celery=True)

    first = part.stand()
    then = part.wait(NOMINATION)

    assert first == []
    assert then == [Nominate(part.election)]


# -- what was acted on


def test_a_grant_is_new_once() -> None:
    grants = Grants()

    assert grants.add("e1", 7)
    assert not grants.add("e1", 7)
    assert grants.add("e1", 8)
    assert grants.add("e2", 7)


def test_the_oldest_grants_are_forgotten_when_there_are_too_many() -> None:
    grants = Grants()
    for token in range(MAX_GRANTS + 1):
        grants.add("e1", token)

    assert not grants.add("e1", MAX_GRANTS)
    assert grants.add("e1", 0)
