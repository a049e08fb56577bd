"""All elections of one node: found by their ids, bounded, and forgotten."""

from math import inf

import pytest

from celeriac.core import elections as module
from celeriac.core.election import FORGET_AFTER, NOMINATION
from celeriac.core.election_effect import (
    Acknowledge,
    Act,
    Claim,
    Ended,
    Finish,
    Nominate,
    Phase,
    Release,
    StepDown,
)
from celeriac.core.election_rules import Rules, deadline_of
from celeriac.core.elections import Elections
from celeriac.model.election import Ack, Candidate, Elect, Elected, Election, Granted, Mode, Resigned

US, PEER = "us@here.1", "peer@there.2"
TTL = 15.0


def about(id_: str = "e1", mode: Mode = Mode.ONCE, topic: str = "topic") -> Election:
    return Election(id_, topic, mode=mode)


def heard(id_: str = "e1", *, mode: Mode = Mode.ONCE, is_ours: bool = True) -> Elect:
    return Elect(about(id_, mode), Candidate(3, PEER), is_ours)


@pytest.fixture
def elections() -> Elections:
    rules = Rules(US, f"{US}.boot", lambda: 0.5, alive=lambda: [PEER])
    return Elections(rules, ttl=TTL, may_act=lambda election: election.topic == "topic")


def phase_of(elections: Elections, id_: str = "e1") -> Phase:
    return elections.all[id_].phase


def test_nothing_is_due_where_nothing_is_known(elections: Elections) -> None:
    assert elections.due_at() == inf
    assert elections.tick(1e9) == []


def test_an_election_goes_from_nomination_to_its_end(elections: Elections) -> None:
    stood = elections.stand(about(), 0.0)
    claimed = elections.tick(NOMINATION)
    acted = elections.answer("e1", Granted(7), 1.0)
    finished = elections.acted("e1", 2.0)
    ended = elections.answer("e1", True, 3.0)

    assert stood == [Nominate(about())]
    assert claimed == [Claim("e1", Mode.ONCE, TTL, 0)]
    assert Act(about(), 7, b"") in acted
    assert finished == [Finish("e1", 7, False)]
    assert ended == [Ended("e1", Phase.DONE, "the action ended")]


def test_a_lease_goes_from_claim_to_release(elections: Elections) -> None:
    elections.stand(about(mode=Mode.LEASE), 0.0)
    elections.tick(NOMINATION)
    elections.answer("e1", Granted(7), 1.0)

    resigned = elections.resign("e1", 2.0)
    released = elections.stepped_down("e1", 3.0)

    assert resigned == [StepDown("e1", 7, "resigned")]
    assert released == [Release("e1", 7)]


def test_what_we_may_not_act_in_we_do_not_join(elections: Elections) -> None:
    assert elections.join(about(topic="other"), 0.0) == []
    assert elections.join(about("e2"), 0.0) == [Nominate(about("e2"))]


def test_what_we_want_ourselves_nobody_need_allow(elections: Elections) -> None:
    assert elections.stand(about(topic="other"), 0.0) == [Nominate(about(topic="other"))]


def test_what_another_says_of_an_election_is_not_what_we_act_on_in_our_own(elections: Elections) -> None:
    ours = about(topic="other")
    elections.receive(heard(), 0.0)

    effects = elections.stand(ours, 1.0)

    assert effects == [Nominate(ours)]


@pytest.mark.parametrize(
    "said", [heard(mode=Mode.TAKEOVER), heard(mode=Mode.LEASE)], ids=["takeover", "lease"]
)
def test_what_a_candidate_says_of_an_election_is_not_what_we_act_on_when_it_is_called(
    elections: Elections, said: Elect
) -> None:
    elections.receive(said, 0.0)

    effects = elections.join(about(), 1.0)

    assert effects == [Nominate(about())]
    assert elections.tick(1.0 + NOMINATION) == []  # the other one comes first
    assert elections.tick(2.5) == [Claim("e1", Mode.ONCE, TTL, 0)]


def test_what_a_candidate_says_of_an_election_keeps_nobody_from_it(elections: Elections) -> None:
    elections.receive(Elect(about(topic="other"), Candidate(3, PEER)), 0.0)

    assert elections.join(about(), 1.0) == [Nominate(about())]


def test_an_election_that_is_called_twice_is_what_it_was_called_for_first() -> None:
    rules = Rules(US, f"{US}.boot", lambda: 0.5, alive=lambda: [PEER], has_celery=lambda: True)
    elections = Elections(rules, ttl=TTL, may_act=lambda election: election.topic == "topic")
    elections.join(about(), 0.0)  # it waits for those of Celery

    elections.join(about(mode=Mode.TAKEOVER), 0.1)
    elections.join(about(topic="other"), 0.2)

    assert elections.tick(NOMINATION) == [Nominate(about())]


def test_a_lease_counts_from_when_it_was_asked_for_and_not_from_when_it_was_wanted(
    elections: Elections,
) -> None:
    elections.stand(about(mode=Mode.TAKEOVER), 0.0)
    elections.tick(NOMINATION)

    effects = elections.answer("e1", Granted(7), 101.0, sent_at=100.0)

    assert Act(about(mode=Mode.TAKEOVER), 7, b"") in effects
    assert elections.all["e1"].deadline == deadline_of(100.0, TTL)


def test_messages_find_their_election(elections: Elections) -> None:
    elections.stand(about("e1"), 0.0)
    elections.stand(about("e2"), 0.0)

    elections.receive(Elected("e2", PEER, 4, TTL), 0.1)

    assert phase_of(elections, "e1") is Phase.NOMINATING
    assert phase_of(elections, "e2") is Phase.FOLLOWING


def test_once_all_have_acknowledged_us_it_is_due(elections: Elections) -> None:
    elections.stand(about(), 0.0)
    elections.receive(Elect(about(), Candidate(1, US)), 0.1)

    elections.receive(Ack("e1", PEER, US), 0.2)

    assert elections.due_at() <= 0.2
    assert elections.tick(0.2) == [Claim("e1", Mode.ONCE, TTL, 0)]


def test_a_candidate_of_an_unknown_election_is_observed(elections: Elections) -> None:
    assert elections.receive(heard(), 0.0) == [Acknowledge("e1", PEER, 1)]
    assert phase_of(elections) is Phase.OBSERVING


@pytest.mark.parametrize(
    "message",
    [Ack("e1", PEER, US), Elected("e1", PEER, 4, TTL), Resigned("e1", PEER, 4)],
    ids=lambda m: type(m).__name__,
)
def test_what_is_said_of_an_unknown_election_is_nothing(
    elections: Elections, message: Ack | Elected | Resigned
) -> None:
    assert elections.receive(message, 0.0) == []
    assert elections.all == {}


def test_what_is_told_of_an_unknown_election_is_nothing(elections: Elections) -> None:
    told = [
        elections.answer("e1", None, 0.0),
        elections.acted("e1", 0.0),
        elections.stepped_down("e1", 0.0),
        elections.resign("e1", 0.0),
    ]

    assert told == [[], [], [], []]


def test_it_is_due_when_the_first_of_all_is(elections: Elections) -> None:
    elections.stand(about("e1"), 5.0)
    elections.stand(about("e2"), 1.0)

    assert elections.due_at() == 1.0 + NOMINATION


def test_elections_with_a_worker_of_celery_are_counted_once_each(elections: Elections) -> None:
    for _ in range(2):
        elections.receive(heard("e1", is_ours=False), 0.0)
    elections.receive(heard("e2"), 0.0)

    assert elections.mixed == 1


def test_what_is_over_or_only_observed_is_forgotten_after_a_while(elections: Elections) -> None:
    elections.stand(about("over"), 0.0)
    elections.receive(Elected("over", PEER, 4, TTL), 0.0)
    elections.receive(heard("observed"), 0.0)
    elections.stand(about("open", Mode.LEASE), 0.0)

    elections.tick(FORGET_AFTER - 1)
    before = sorted(elections.all)
    elections.tick(FORGET_AFTER)
    elections.tick(FORGET_AFTER)

    assert before == ["observed", "open", "over"]
    assert sorted(elections.all) == ["open"]


def test_a_forgotten_grant_is_still_not_acted_on_twice(elections: Elections) -> None:
    for began_at in (0.0, 2 * FORGET_AFTER):
        elections.stand(about(), began_at)
        elections.tick(began_at + NOMINATION)
        effects = elections.answer("e1", Granted(7), began_at + 1)
        elections.acted("e1", began_at + 2)
        elections.answer("e1", True, began_at + 3)
        elections.tick(began_at + 4 + FORGET_AFTER)

    assert effects == [Finish("e1", 7, False)]


def test_with_no_room_what_is_over_goes_first_then_what_is_observed(
    elections: Elections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ELECTIONS", 3)
    elections.receive(heard("observed"), 0.0)
    elections.stand(about("open"), 0.0)
    elections.stand(about("over"), 0.0)
    elections.resign("over", 0.0)

    elections.stand(about("new"), 1.0)
    first = list(elections.all)
    elections.stand(about("newer"), 1.0)

    assert first == ["observed", "open", "new"]
    assert list(elections.all) == ["open", "new", "newer"]


def test_while_all_are_under_way_new_ones_are_turned_away(
    elections: Elections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ELECTIONS", 2)
    elections.stand(about("e1"), 0.0)
    elections.stand(about("e2"), 0.0)

    effects = [*elections.stand(about("e3"), 0.0), *elections.receive(heard("e4"), 0.0)]
    again = elections.stand(about("e1"), 0.0)

    assert effects == []
    assert again == []
    assert elections.turned_away == 2
    assert sorted(elections.all) == ["e1", "e2"]
