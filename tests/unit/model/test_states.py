"""States: the same names and sets as Celery's, and an order by precedence."""

import operator
from collections.abc import Callable
from itertools import combinations, product

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


@pytest.mark.parametrize(
    "name", ["READY_STATES", "UNREADY_STATES", "EXCEPTION_STATES", "PROPAGATE_STATES", "ALL_STATES"]
)
def test_a_set_of_states_has_the_members_that_celery_gives_it(name: str) -> None:
    ours = getattr(states, name)

    theirs = getattr(stock, name)

    assert ours == theirs


def test_no_state_is_both_ready_and_unready() -> None:
    ready = states.READY_STATES

    both = ready & states.UNREADY_STATES

    assert not both


def test_precedence_is_the_table_of_the_stock_monitor() -> None:
    table = ["SUCCESS", "FAILURE", None, "REVOKED", "STARTED", "RECEIVED", "REJECTED", "RETRY", "PENDING"]

    ours = list(states.PRECEDENCE)

    assert ours == table == stock.PRECEDENCE


@pytest.mark.parametrize("name", [*NAMES, "IGNORED", "", None])
def test_a_state_has_the_place_that_celery_gives_it(name: str | None) -> None:
    ours = precedence(name)

    theirs = stock.precedence(name)

    assert ours == theirs


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


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
def test_every_comparison_is_that_of_celery(compare: Callable[[str, str], bool]) -> None:
    pairs = list(product([*NAMES, "IGNORED"], repeat=2))

    ours = [compare(state(one), state(other)) for one, other in pairs]

    assert ours == [compare(stock.state(one), stock.state(other)) for one, other in pairs]


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
