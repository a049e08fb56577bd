"""Which values are Lamport clocks."""

import pytest

from celeriac import LamportClock
from celeriac.model.clock import MAX_CLOCK, NO_CLOCK, clock_value


@pytest.mark.parametrize("raw", [0, 1, 2**32, 2**53 - 1])
def test_an_integer_of_the_domain_is_a_clock(raw: int) -> None:
    value = clock_value(raw)

    assert value == raw


@pytest.mark.parametrize(("raw", "clock"), [(0.0, 0), (-0.0, 0), (5.0, 5), (float(2**53 - 1), 2**53 - 1)])
def test_an_integral_float_is_its_integer(raw: float, clock: int) -> None:
    value = clock_value(raw)

    assert value == clock
    assert type(value) is int


@pytest.mark.parametrize("raw", [True, False])
def test_a_boolean_is_no_clock(raw: object) -> None:
    value = clock_value(raw)

    assert value is None


@pytest.mark.parametrize("raw", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_no_clock(raw: float) -> None:
    value = clock_value(raw)

    assert value is None


@pytest.mark.parametrize("raw", [0.5, 5.000001, -0.1])
def test_a_fraction_is_no_clock(raw: float) -> None:
    value = clock_value(raw)

    assert value is None


@pytest.mark.parametrize("raw", [-1, -(2**53), -1.0, -1e308])
def test_a_negative_is_no_clock(raw: float) -> None:
    value = clock_value(raw)

    assert value is None


@pytest.mark.parametrize("raw", [2**53, 2**63, 2**100, float(2**53), 1e308])
def test_a_value_past_the_domain_is_no_clock(raw: float) -> None:
    value = clock_value(raw)

    assert value is None


@pytest.mark.parametrize("raw", ["", "5", "abc", b"5", None, [], [5], {}, {"clock": 5}, 5 + 0j])
def test_what_is_no_number_is_no_clock(raw: object) -> None:
    value = clock_value(raw)

    assert value is None


def test_the_last_clock_is_the_last_integer_that_a_double_tells_from_the_next() -> None:
    last = MAX_CLOCK

    is_told_apart = float(last) != float(last + 1)

    assert is_told_apart
    assert float(last + 1) == float(last + 2)


def test_an_integer_too_long_to_print_is_no_clock() -> None:
    value = clock_value(10**5000)

    assert value is None


def test_the_absent_clock_is_below_every_stamp() -> None:
    first_stamp = LamportClock().forward()

    is_below = first_stamp > NO_CLOCK

    assert is_below
