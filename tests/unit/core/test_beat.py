"""Which ticks are due: once each, the latest of those that were missed, whatever the clock does."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.core.beat import FORGET_AFTER, Beat, Every, Item, Rhythm, Span, Tick

NOW = 1_790_000_000.0


def beat_of(*, last: float | None = NOW, lasts: float | None = None, rhythm: Rhythm | None = None) -> Beat:
    """Return a beat with one entry of a minute."""
    noted = {} if last is None else {"report": last}
    return Beat({"report": Item(rhythm or Every(60.0), lasts)}, noted)


# -- intervals


@pytest.mark.parametrize(
    ("seconds", "moment", "expected"),
    [(60.0, 0.0, 60.0), (60.0, 59.9, 60.0), (60.0, 60.0, 120.0), (0.1, 0.25, 0.3), (0.3, 0.6, 0.9)],
)
def test_the_next_tick_of_an_interval_is_its_next_whole_multiple(
    seconds: float, moment: float, expected: float
) -> None:
    found = Every(seconds).next_after(moment)

    assert found == expected


@given(seconds=st.floats(0.1, 1e6), after=st.floats(0, 4e9), gap=st.floats(0, 1e6))
def test_the_latest_tick_of_an_interval_lies_between_and_none_lies_behind_it(
    seconds: float, after: float, gap: float
) -> None:
    every, until = Every(seconds), after + gap

    span = every.latest(after=after, until=until)

    if span is None:
        assert every.next_after(after) > until
    else:
        assert after < span.at <= until < every.next_after(span.at)


@given(seconds=st.floats(0.1, 1e6), moment=st.floats(0, 4e9))
def test_ticks_of_an_interval_are_the_same_wherever_they_are_counted_from(
    seconds: float, moment: float
) -> None:
    every = Every(seconds)

    first = every.next_after(moment)

    assert first > moment
    assert every.next_after((moment + first) / 2) == first or (moment + first) / 2 >= first
    assert every.latest(after=moment, until=first) == Span(first, 0)


# -- what is due


def test_nothing_is_due_before_the_next_tick() -> None:
    beat = beat_of(last=NOW - NOW % 60)

    due = beat.tick(NOW - NOW % 60 + 59)

    assert due == ([], [], False)
    assert beat.next_at == NOW - NOW % 60 + 60


def test_a_tick_is_due_at_its_moment_and_not_again() -> None:
    beat = beat_of(last=600.0)

    first, second = beat.tick(660.0), beat.tick(660.5)

    assert first.ticks == [Tick("report", 660.0)]
    assert first.is_news
    assert second == ([], [], False)


def test_of_ticks_that_were_missed_the_latest_is_due_and_the_others_are_counted() -> None:
    beat = beat_of(last=600.0)

    due = beat.tick(1000.0)

    assert due.ticks == [Tick("report", 960.0, skipped=5)]
    assert beat.next_at == 1020.0


def test_an_entry_that_nobody_knew_begins_with_its_next_tick_and_is_noted_at_once() -> None:
    beat = beat_of(last=None)

    first, second = beat.tick(630.0), beat.tick(660.0)

    assert first == ([], [], True)
    assert second.ticks == [Tick("report", 660.0)]


def test_a_successor_knows_of_a_tick_that_an_entry_missed_after_it_was_first_seen() -> None:
    first = beat_of(last=None)
    first.tick(630.0)

    second = Beat({"report": Item(Every(60.0))}, first.note(630.0))

    assert second.tick(700.0).ticks == [Tick("report", 660.0)]


def test_a_clock_that_is_set_back_makes_no_tick_due_twice() -> None:
    beat = beat_of(last=600.0)
    beat.tick(660.0)

    due = [beat.tick(moment) for moment in (300.0, 360.0, 600.0, 660.0)]

    assert all(not each.ticks for each in due)
    assert beat.tick(720.0).ticks == [Tick("report", 720.0)]


def test_a_note_that_is_ahead_of_the_clock_holds_ticks_back_and_is_told() -> None:
    beat = beat_of(last=4200.0)

    due = beat.tick(600.0)

    assert due == ([], [], False)
    assert beat.ahead(600.0) == {"report": 3600.0}
    assert beat.tick(4260.0).ticks == [Tick("report", 4260.0)]


def test_a_clock_that_is_set_forward_is_a_gap() -> None:
    beat = beat_of(last=600.0)
    beat.tick(601.0)

    due = beat.tick(7201.0)

    assert due.ticks == [Tick("report", 7200.0, skipped=109)]


def test_a_tick_that_is_no_longer_worth_sending_is_noted_and_stale() -> None:
    beat = beat_of(last=600.0, lasts=30.0)

    due = beat.tick(700.0)

    assert due == ([], [Tick("report", 660.0)], True)
    assert beat.note(700.0) == {"report": 660.0}


def test_nothing_is_ever_due_without_entries() -> None:
    beat = Beat({}, {})

    due = beat.tick(NOW)

    assert due == ([], [], False)
    assert beat.next_at == inf


# -- what is noted


def test_the_note_holds_the_last_tick_of_each_entry() -> None:
    beat = Beat({"a": Item(Every(60.0)), "b": Item(Every(600.0))}, {"a": 600.0, "b": 600.0})

    beat.tick(660.0)

    assert beat.note(660.0) == {"a": 660.0, "b": 600.0}


def test_an_entry_that_is_gone_is_remembered_for_a_week() -> None:
    beat = Beat({"a": Item(Every(60.0))}, {"old": 100.0, "older": 50.0, "a": 600.0})

    notes = [beat.note(now) for now in (660.0, 50.0 + FORGET_AFTER, 100.0 + FORGET_AFTER)]

    assert [list(note) for note in notes] == [["a", "old", "older"], ["a", "old"], ["a"]]


@given(
    moments=st.lists(st.floats(0, 1e5), max_size=30),
    seconds=st.sampled_from([0.5, 1.0, 7.3, 60.0]),
    changes=st.lists(st.integers(0, 29), max_size=5),
)
def test_whoever_leads_and_however_the_clock_goes_each_tick_is_due_once_in_order(
    moments: list[float], seconds: float, changes: list[int]
) -> None:
    items = {"report": Item(Every(seconds))}
    beat, told = Beat(items, {}), []

    for number, moment in enumerate(moments):
        told += [tick.at for tick in beat.tick(moment).ticks]
        if number in changes:
            beat = Beat(items, beat.note(moment))

    assert told == sorted(set(told))
