"""Mingling: one clock and one set of revoked tasks, whoever answers badly."""

from celeriac.core.clock import LamportClock
from celeriac.core.mingle import Mingled, mingle
from celeriac.core.revoked import RevokedSet
from celeriac.model.greeting import BadGreeting, Greeting


def mingled(
    *answers: Greeting | BadGreeting,
    clock: LamportClock | None = None,
    revoked: RevokedSet | None = None,
    persisted: object = 0,
) -> Mingled:
    known = RevokedSet() if revoked is None else revoked
    return mingle(answers, clock=clock or LamportClock(), revoked=known, now=5.0, persisted=persisted)


def test_nobody_there_leaves_the_clock_where_it_was() -> None:
    result = mingled(clock=LamportClock(7))

    assert result == Mingled((), 7, 0, {})


def test_the_clock_starts_at_the_highest_of_two_neighbours() -> None:
    clock = LamportClock()

    result = mingled(Greeting("a", 10), Greeting("b", 30), clock=clock)

    assert (result.neighbours, result.clock, clock.value) == (("a", "b"), 30, 30)


def test_one_of_three_cannot_choose_the_clock() -> None:
    result = mingled(Greeting("a", 10), Greeting("b", 2**51), Greeting("c", 12))

    assert result.clock == 12


def test_one_that_answers_often_still_has_one_voice() -> None:
    poisoned = [Greeting("liar", 2**51)] * 3

    result = mingled(Greeting("a", 10), *poisoned, Greeting("c", 12))

    assert result.clock == 12
    assert result.neighbours == ("a", "liar", "c")


def test_the_clock_of_our_last_run_counts() -> None:
    result = mingled(Greeting("a", 10), persisted=500)

    assert result.clock == 500


def test_revoked_tasks_of_all_neighbours_are_merged_and_counted_once() -> None:
    revoked = RevokedSet()
    revoked.add("ours", now=1.0)

    result = mingled(Greeting("a", 1, ["x", "ours", "x"]), Greeting("b", 1, ["x", "y"]), revoked=revoked)

    assert set(revoked) == {"ours", "x", "y"}
    assert result.merged == 2


def test_one_bad_answer_spoils_no_other() -> None:
    revoked = RevokedSet()

    result = mingled(BadGreeting("bad", "no clock"), Greeting("good", 10, ["x"]), revoked=revoked)

    assert result == Mingled(("good",), 10, 1, {"bad": "no clock"})
    assert list(revoked) == ["x"]


def test_who_tells_no_true_clock_is_believed_in_the_rest() -> None:
    revoked = RevokedSet()

    result = mingled(Greeting("odd", float("inf"), ["x"]), Greeting("good", 10), revoked=revoked)

    assert result == Mingled(("odd", "good"), 10, 1, {"odd": "invalid clock"})
    assert list(revoked) == ["x"]
