"""States: names as in Celery, and an order by precedence; tests/conformance compares sets and precedence."""

from itertools import combinations

import pytest
from celery import states as stock

from celeriac.model import states
from celeriac.model.states import precedence, state

#: Every state we name, and two that users made up.
NAMES = (
    "SUCCESS", "FAILURE", "PROGRESS", "CANCELLED", "REVOKED", "STARTED", "RECEIVED", "REJECTED", "RETRY",
    "PENDING",
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["PENDING", "RECEIVED", "STARTED", "SUCCESS", "FAILURE", "REVOKED", "REJECTED", "RETRY", "IGNORED"],
)
def test_a_state_has_the_name_that_celery_gives_it(name: str) -> None:
    ours = getattr(states, name)

    theirs = getattr(stock, name)

    assert ours == theirs == name


def test_no_state_is_both_ready_and_unready() -> None:
    ready = states.READY_STATES

    both = ready & states.UNREADY_STATES

    assert not both


@pytest.mark.parametrize("custom", ["PROGRESS", "IGNORED", "success", ""])
def test_a_custom_state_lies_between_failure_and_revoked(custom: str) -> None:
    place = precedence(custom)

    neighbours = precedence(states.FAILURE), precedence(states.REVOKED)

    assert neighbours[0] < place < neighbours[1]


@pytest.mark.parametrize(("higher", "lower"), list(combinations([n for n in NAMES if n != "CANCELLED"], 2)))
def test_a_state_further_along_is_greater(higher: str, lower: str) -> None:
    further, behind = state(higher), state(lower)

    is_greater = further > behind and further >= behind

    assert is_greater
    assert not further < behind
    assert not further <= behind


def test_two_custom_states_have_one_place_and_are_still_different() -> None:
    one, other = state("PROGRESS"), state("CANCELLED")

    have_one_place = one >= other and one <= other

    assert have_one_place
    assert one != other


def test_a_state_compares_with_plain_text() -> None:
    started = state(states.STARTED)

    is_greater = started > "PENDING"

    assert is_greater


def test_a_state_is_equal_to_its_text_and_finds_it_in_a_set() -> None:
    success = state("SUCCESS")

    is_found = success in states.READY_STATES

    assert success == "SUCCESS"
    assert is_found
