"""When programs are started again, and when something is due."""

from celeriac.cli.rhythm import Restarts, Turns


def test_pauses_grow_up_to_half_a_minute() -> None:
    restarts = Restarts()

    pauses = [restarts.ended(after=3.0) for _ in range(7)]

    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_the_fifth_end_in_a_row_is_hopeless_and_no_earlier_one() -> None:
    restarts = Restarts()

    verdicts = []
    for _ in range(5):
        restarts.ended(after=59.0)
        verdicts.append(restarts.is_hopeless)

    assert verdicts == [False, False, False, False, True]


def test_what_has_run_for_a_minute_begins_again_with_a_short_pause() -> None:
    restarts = Restarts()
    for _ in range(4):
        restarts.ended(after=0.0)

    pause = restarts.ended(after=60.0)

    assert pause == 1.0
    assert not restarts.is_hopeless


def test_turns_are_counted_from_beginning_to_beginning() -> None:
    turns = Turns(first=45.0, every=600.0, now=100.0)

    before, first = turns.is_due(144.9), turns.is_due(145.0)
    turns.begin(150.0)

    assert (before, first) == (False, True)
    assert [turns.is_due(moment) for moment in (749.9, 750.0)] == [False, True]


def test_a_turn_that_was_missed_is_taken_once() -> None:
    turns = Turns(first=1.0, every=10.0, now=0.0)

    turns.begin(55.0)

    assert turns.due_at == 65.0
