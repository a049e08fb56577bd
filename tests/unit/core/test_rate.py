"""Rate limits: how they are spelled, who may begin, and who waits."""

import pytest

from celeriac.core.rate import RateLimits, parse_rate
from celeriac.errors import CallerError


def limits(rate: float | None, *, waiting: int = 0) -> RateLimits[str]:
    """Return limits for the task "t", one of which has begun at 0, and so many wait: "0", "1", …"""
    made: RateLimits[str] = RateLimits()
    made.set("t", rate, now=0.0)
    made.enter("t", "first", now=0.0)
    for number in range(waiting):
        made.enter("t", str(number), now=0.0)
    return made


# -- spelling


@pytest.mark.parametrize(
    ("rate", "per_second"),
    [("10/s", 10.0), ("120/m", 2.0), ("1800/h", 0.5), (" 10 / s ", 10.0), ("0.5/s", 0.5), ("10", 10.0),
     (10, 10.0), (0.25, 0.25)],
)  # fmt: skip
def test_a_rate_is_so_many_a_second(rate: str | float, per_second: float) -> None:
    assert parse_rate(rate) == per_second


@pytest.mark.parametrize("rate", [None, "", 0, 0.0, "0", "0/s", "0/m"])
def test_no_rate_and_a_rate_of_nothing_are_no_limit(rate: str | float | None) -> None:
    assert parse_rate(rate) is None


@pytest.mark.parametrize(
    "rate",
    ["x", "10/d", "/s", "-1/s", -1, "nan", "inf/s", "10/s/s", True, float("nan"), float("inf"), [1], {}],
)
def test_what_is_no_rate_is_the_callers_error_with_the_fix(rate: str) -> None:
    with pytest.raises(CallerError, match=r"Invalid rate limit string: .*'10/s'"):
        parse_rate(rate)


# -- who may begin


def test_a_task_without_a_limit_may_begin_at_once() -> None:
    rates = limits(8.0)

    allowed = [rates.enter("other", str(number), now=0.0) for number in range(100)]

    assert all(allowed)
    assert len(rates) == 0


def test_the_first_of_a_limited_task_may_begin_and_the_second_waits() -> None:
    rates = limits(8.0)

    may_begin = rates.enter("t", "second", now=0.05)

    assert not may_begin
    assert list(rates) == ["second"]


def test_after_its_interval_the_next_may_begin() -> None:
    rates = limits(8.0)

    may_begin = rates.enter("t", "second", now=0.125)

    assert may_begin
    assert not rates.enter("t", "third", now=0.125)


def test_those_that_wait_leave_evenly_and_in_the_order_they_came() -> None:
    rates = limits(8.0, waiting=3)

    left = [rates.due(eighths / 8) for eighths in range(5)]

    assert left == [[], ["0"], ["1"], ["2"], []]


def test_none_that_comes_later_overtakes_one_that_waits() -> None:
    rates = limits(8.0, waiting=1)

    may_begin = rates.enter("t", "late", now=0.25)

    assert not may_begin
    assert rates.due(0.25) == ["0", "late"]


def test_who_looks_late_lets_go_what_would_have_gone() -> None:
    rates = limits(8.0, waiting=20)

    left = rates.due(0.7)

    assert left == ["0", "1", "2", "3", "4"]


def test_who_looks_very_late_lets_go_one_seconds_worth() -> None:
    rates = limits(8.0, waiting=100)

    left = rates.due(3600.0)

    assert len(left) == 9


def test_a_time_of_rest_is_not_saved_up() -> None:
    rates = limits(8.0)

    allowed = [rates.enter("t", str(number), now=1000.0) for number in range(3)]

    assert allowed == [True, False, False]
    assert rates.due(1000.05) == []


def test_names_do_not_wait_for_each_other() -> None:
    rates = limits(8.0, waiting=1)
    rates.set("slow", 1.0, now=0.0)
    rates.enter("slow", "first", now=0.0)
    rates.enter("slow", "s", now=0.0)

    left = [rates.due(0.125), rates.due(1.0)]

    assert left == [["0"], ["s"]]


def test_of_several_names_the_one_whose_turn_came_first_leaves_first() -> None:
    rates = limits(2.0, waiting=2)
    rates.set("b", 4.0, now=0.0)
    for item in ("first", "b0", "b1"):
        rates.enter("b", item, now=0.0)

    left = rates.due(1.0)

    assert left == ["b0", "0", "b1", "1"]


# -- when to look


def test_the_next_moment_is_when_one_may_begin() -> None:
    rates = limits(8.0, waiting=2)

    assert rates.next_at(0.0) == 0.125
    rates.due(0.125)
    assert rates.next_at(0.125) == 0.25


def test_a_moment_that_has_passed_is_now() -> None:
    rates = limits(8.0, waiting=1)

    assert rates.next_at(5.0) == 5.0


def test_where_none_waits_there_is_no_next_moment() -> None:
    rates = limits(8.0)

    assert rates.next_at(0.0) is None


# -- changes


def test_a_faster_rate_holds_for_those_that_wait() -> None:
    rates = limits(0.001, waiting=2)

    rates.set("t", 8.0, now=1.0)

    assert rates.next_at(1.0) == 1.125
    assert rates.due(1.25) == ["0", "1"]


def test_a_slower_rate_holds_for_those_that_wait() -> None:
    rates = limits(8.0, waiting=2)

    rates.set("t", 1.0, now=0.0)

    assert rates.due(0.125) == ["0"]
    assert rates.due(1.0) == []
    assert rates.due(1.125) == ["1"]


def test_without_a_limit_all_that_wait_may_begin_at_once_in_order() -> None:
    rates = limits(0.001, waiting=3)

    rates.set("t", None, now=1.0)

    assert not rates.enter("t", "late", now=1.0)
    assert rates.due(1.0) == ["0", "1", "2", "late"]
    assert rates.enter("t", "free", now=1.0)
    assert rates.enter("t", "free", now=1.0)


def test_to_lift_a_limit_that_is_none_does_nothing() -> None:
    rates = limits(None)

    rates.set("t", None, now=0.0)

    assert rates.enter("t", "a", now=0.0)


def test_those_that_are_removed_do_not_begin_and_the_others_keep_their_turns() -> None:
    rates = limits(8.0, waiting=4)

    removed = rates.remove(lambda item: item in {"1", "3"})

    assert removed == ["1", "3"]
    assert len(rates) == 2
    assert rates.due(0.25) == ["0", "2"]
