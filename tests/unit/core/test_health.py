"""Local health: when a node could not hear, and how far it distrusts itself."""

import pytest

from celeriac.core.health import LAG, MAX_AWAITED, MAX_SCORE, MAX_STALLS, LocalHealth


def health(*, until: float = 0.0) -> LocalHealth:
    """Return the health of a node that ticked every half second until a moment."""
    made = LocalHealth(period=2.0, pulse=0.5)
    tick(made, 0.0, until)
    return made


def tick(of: LocalHealth, begin: float, end: float) -> None:
    for number in range(int((end - begin) * 2) + 1):
        of.tick(begin + number / 2)


def test_who_ticks_in_time_is_well() -> None:
    well = health(until=100.0)

    assert well.score == 0
    assert well.can_judge(100.0)


def test_a_late_tick_is_a_stall() -> None:
    stalled = health(until=10.0)

    stalled.tick(15.0)

    assert stalled.score == 1
    assert stalled.stalled_since(10.0, 15.0) == 4.5
    assert stalled.stalled_since(12.0, 15.0) == 3.0
    assert stalled.stalled_since(15.0, 15.0) == 0.0


def test_a_tick_that_is_hardly_late_is_none() -> None:
    well = health(until=10.0)

    well.tick(10.5 + LAG)

    assert (well.score, well.stalled_since(0.0, 11.0)) == (0, 0.0)


def test_nobody_is_judged_by_the_tick_that_notices_a_stall_but_by_the_next() -> None:
    stalled = health(until=10.0)

    stalled.tick(15.0)

    assert not stalled.can_judge(15.0)
    assert stalled.can_judge(15.5)


def test_a_stall_that_was_told_before_its_tick_counts_once() -> None:
    stalled = health(until=10.0)

    stalled.lagged(4.5, 15.0)
    stalled.tick(15.0)

    assert (stalled.score, stalled.stalled_since(0.0, 15.0)) == (1, 4.5)


def test_each_clean_period_takes_one_away() -> None:
    ill = health(until=10.0)
    ill.tick(15.0)
    ill.tick(20.0)

    scores = []
    for at in (21.5, 22.0, 23.5, 24.0):
        tick(ill, 20.5, at)
        scores.append(ill.score)

    assert scores == [2, 1, 1, 0]


def test_the_score_has_an_end() -> None:
    ill = health()

    for number in range(1, 100):
        ill.tick(number * 3.0)

    assert ill.score == MAX_SCORE


def test_time_without_a_link_counts_as_a_stall_while_it_lasts_and_after() -> None:
    cut = health(until=10.0)

    cut.disconnected(10.0)
    during = cut.stalled_since(4.0, 13.0)
    cut.reconnected(14.0)

    assert during == 3.0
    assert cut.stalled_since(4.0, 20.0) == 4.0
    assert (cut.score, cut.reconnected_at) == (1, 14.0)


def test_without_a_link_nobody_is_judged() -> None:
    cut = health(until=10.0)

    cut.disconnected(10.0)

    assert not cut.can_judge(1000.0)


def test_a_late_tick_without_a_link_is_no_second_stall() -> None:
    cut = health(until=10.0)
    cut.disconnected(10.0)
    cut.tick(14.0)

    cut.reconnected(20.0)

    assert (cut.score, cut.stalled_since(0.0, 20.0)) == (1, 10.0)


def test_time_without_a_link_is_not_clean() -> None:
    cut = health(until=10.0)
    cut.tick(15.0)
    cut.disconnected(15.0)

    tick(cut, 15.5, 60.0)

    assert cut.score == 1


@pytest.mark.parametrize("again", ["disconnected", "reconnected"])
def test_to_be_told_twice_of_a_link_changes_nothing(again: str) -> None:
    cut = health(until=10.0)
    cut.disconnected(10.0)

    if again == "disconnected":
        cut.disconnected(12.0)
    cut.reconnected(14.0)
    if again == "reconnected":
        cut.reconnected(15.0)

    assert (cut.score, cut.stalled_since(0.0, 20.0)) == (1, 4.0)


def test_a_heartbeat_that_does_not_come_back_is_a_sign_of_illness() -> None:
    deaf = health(until=10.0)
    deaf.beat(7, 10.0)

    tick(deaf, 10.5, 12.0)
    in_time = deaf.score
    deaf.tick(12.5)

    assert (in_time, deaf.score) == (0, 1)


def test_a_heartbeat_that_comes_back_is_none() -> None:
    well = health(until=10.0)
    well.beat(7, 10.0)

    well.echo(7)
    tick(well, 10.5, 14.0)

    assert well.score == 0


def test_the_echo_of_an_older_event_is_not_the_one_waited_for() -> None:
    slow = health(until=10.0)
    slow.beat(7, 10.0)

    slow.echo(6)
    tick(slow, 10.5, 12.5)

    assert slow.score == 1


def test_who_hears_nothing_of_itself_gets_worse_with_each_heartbeat() -> None:
    deaf = health()

    for number in range(4):
        deaf.beat(number + 1, number * 2.0)
        tick(deaf, number * 2.0 + 0.5, number * 2.0 + 2.0)

    assert deaf.score == 3


def test_heartbeats_that_are_waited_for_are_bounded() -> None:
    deaf = health()

    for number in range(1000):
        deaf.beat(number, 0.0)

    assert len(deaf._awaited) == MAX_AWAITED


def test_an_echo_that_could_not_be_heard_is_not_missed() -> None:
    stalled = health(until=10.0)
    stalled.beat(7, 10.0)

    stalled.tick(15.0)
    stalled.tick(15.5)

    assert stalled.score == 1


def test_stalls_beyond_those_remembered_are_never_taken_for_shorter() -> None:
    ill = health()
    stalls = MAX_STALLS + 50

    for number in range(1, stalls + 1):
        ill.lagged(0.6, number * 2.0)

    assert ill.stalled_since(0.0, stalls * 2.0) >= stalls * 0.6
    assert ill.stalled_since(stalls * 2.0 - 20.0, stalls * 2.0) == pytest.approx(6.0)
