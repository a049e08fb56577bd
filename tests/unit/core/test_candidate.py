"""Who stands, who is preferred, and who has heard of whom."""

import pytest

from celeriac.core import candidate
from celeriac.core.candidate import Candidates
from celeriac.model.election import Candidate

US, PEER, THIRD = "us@here.1", "peer@there.2", "third@there.3"


@pytest.fixture
def candidates() -> Candidates:
    return Candidates(US)


def test_the_earliest_is_preferred(candidates: Candidates) -> None:
    for clock, name in ((5, US), (3, PEER), (4, THIRD)):
        candidates.add(Candidate(clock, name), is_ours=True)

    assert candidates.own_rank() == 2


def test_of_equal_clocks_the_lower_name_is_preferred(candidates: Candidates) -> None:
    for name in (US, PEER, THIRD):
        candidates.add(Candidate(3, name), is_ours=True)

    assert candidates.own_rank() == 2


def test_of_several_messages_the_earliest_counts(candidates: Candidates) -> None:
    candidates.add(Candidate(4, PEER), is_ours=True)
    for clock in (5, 3, 9):
        candidates.add(Candidate(clock, US), is_ours=True)

    assert candidates.own_rank() == 0
    assert len(candidates) == 2


def test_who_has_not_heard_itself_comes_last(candidates: Candidates) -> None:
    candidates.add(Candidate(9, PEER), is_ours=True)

    assert candidates.own_rank() == 1


def test_all_have_heard_of_us_once_each_has_said_so_and_we_have_heard_ourselves(
    candidates: Candidates,
) -> None:
    candidates.heard(PEER)
    candidates.heard(PEER)
    before = candidates.is_heard_by([PEER])
    candidates.add(Candidate(1, US), is_ours=True)

    assert not before
    assert candidates.is_heard_by([PEER])
    assert not candidates.is_heard_by([PEER, THIRD])


def test_celery_is_first_only_if_its_candidate_is_preferred(candidates: Candidates) -> None:
    candidates.add(Candidate(3, US), is_ours=True)
    without = candidates.has_celery
    candidates.add(Candidate(4, PEER), is_ours=False)
    later = candidates.is_celery_first
    candidates.add(Candidate(2, PEER), is_ours=False)

    assert not without
    assert not later
    assert candidates.has_celery
    assert candidates.is_celery_first


def test_no_flood_of_candidates_grows_it_beyond_its_limit(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate, "MAX_CANDIDATES", 3)

    for number in range(10):
        candidates.add(Candidate(number, f"n{number}"), is_ours=False)
        candidates.heard(f"n{number}")

    assert len(candidates) == 3
    assert candidates.is_celery_first
    assert not candidates.is_heard_by(["n5"])
