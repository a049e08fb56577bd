"""Which segments go, which are trimmed and which become one, decided by what their names say."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.core.coverage import Span, join
from celeriac.core.retention import HOUR, Piece, beyond_size, merges, plan, received_until
from celeriac.errors import ImproperlyConfigured

#: The beginning of an hour.
H = 1_790_002_800.0
DAY = 24 * HOUR


def piece(
    first: int = 1,
    last: int | None = None,
    *,
    hour: int = 0,
    size: int = 10,
    end_at: float | None = None,
    recorder: str = "a",
) -> Piece:
    span = Span(recorder, first, first if last is None else last)
    begin = H + hour * HOUR
    return Piece(begin, span, size, begin + 10 if end_at is None else end_at, f"{recorder}.{first}")


# -- age


def test_a_segment_stays_until_all_of_its_hour_is_too_old() -> None:
    one = piece()

    on_time = plan([one], keep=DAY, keep_failures=None, now=H + HOUR + DAY)
    later = plan([one], keep=DAY, keep_failures=None, now=H + HOUR + DAY + 1)

    assert on_time == ([], [])
    assert later == ([one], [])


def test_between_the_two_ages_a_segment_is_trimmed_to_failures_and_then_it_goes() -> None:
    one = piece()

    young, old, ancient = (
        plan([one], keep=DAY, keep_failures=9 * DAY, now=H + HOUR + age)
        for age in (DAY, DAY + 1, 9 * DAY + 1)
    )

    assert young == ([], [])
    assert old == ([], [one])
    assert ancient == ([one], [])


def test_what_was_trimmed_before_is_not_trimmed_again() -> None:
    pieces = [piece(1, 5), piece(6, 9)]

    made = plan(
        pieces, keep=0, keep_failures=DAY, now=H + 2 * HOUR, trimmed=[Span("a", 1, 3), Span("a", 4, 5)]
    )

    assert made.trim == [pieces[1]]


@pytest.mark.parametrize("keep_failures", [None, DAY])
def test_without_an_age_all_is_kept(keep_failures: float | None) -> None:
    assert plan([piece()], keep=None, keep_failures=keep_failures, now=inf) == ([], [])


def test_a_sender_whose_clock_is_ahead_keeps_a_segment_an_hour_longer_at_most() -> None:
    wild = piece(end_at=4e9)

    assert received_until(wild) == H + 2 * HOUR
    assert received_until(piece(end_at=H - DAY)) == H + HOUR


def test_what_came_while_a_segment_was_sealed_is_as_old_as_it_says() -> None:
    late = piece(end_at=H + HOUR + 90)

    assert received_until(late) == H + HOUR + 90


@pytest.mark.parametrize(
    ("keep", "keep_failures", "named"),
    [(-1.0, None, "log_keep is"), (5.0, -2.0, "log_keep_failures is"), (5.0, 4.0, "less than log_keep")],
)
def test_ages_that_make_no_sense_are_refused_by_their_names(
    keep: float, keep_failures: float | None, named: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=named):
        plan([], keep=keep, keep_failures=keep_failures, now=H)


# -- size


def test_the_oldest_go_first_and_only_as_many_as_have_to() -> None:
    pieces = [piece(30, hour=2), piece(10, hour=0), piece(20, hour=1)]

    assert [each.span.first for each in beyond_size(pieces, max_bytes=25)] == [10]
    assert [each.span.first for each in beyond_size(pieces, max_bytes=10)] == [10, 20]
    assert beyond_size(pieces, max_bytes=30) == []
    assert beyond_size(pieces, max_bytes=None) == []


@given(sizes=st.lists(st.integers(1, 50), max_size=8), limit=st.integers(0, 200))
def test_what_is_left_fits_and_one_segment_more_would_not(sizes: list[int], limit: int) -> None:
    pieces = [piece(number, size=size, hour=number) for number, size in enumerate(sizes)]

    going = beyond_size(pieces, max_bytes=limit)

    left = sum(sizes) - sum(each.size for each in going)
    assert left <= limit
    assert not going or left + going[-1].size > limit


# -- merging


def test_segments_of_one_hour_and_recorder_become_one() -> None:
    mine, others = [piece(1, 5), piece(6, 9)], [piece(1, 2, recorder="b"), piece(3, 4, recorder="b")]

    found = merges([*others, *mine], target_bytes=100, now=H + HOUR)

    assert found == [mine, others]


def test_an_hour_that_is_not_over_waits() -> None:
    assert merges([piece(1), piece(2)], target_bytes=100, now=H + HOUR - 1) == []


def test_segments_of_two_hours_stay_apart() -> None:
    assert merges([piece(1), piece(2, hour=1)], target_bytes=100, now=inf) == []


def test_numbers_that_are_missing_part_segments_and_those_that_went_on_purpose_do_not() -> None:
    pieces = [piece(1, 2), piece(5, 6)]

    assert merges(pieces, target_bytes=100, now=inf) == []
    assert merges(pieces, target_bytes=100, now=inf, gone=[Span("a", 3, 3)]) == []
    assert merges(pieces, target_bytes=100, now=inf, gone=[Span("a", 3, 3), Span("a", 4, 4)]) == [pieces]


def test_segments_that_overlap_are_left_for_a_person_to_look_at() -> None:
    assert merges([piece(1, 5), piece(3, 9)], target_bytes=100, now=inf) == []


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(0, 2)), max_size=12),
    st.integers(10, 60),
)
def test_merges_keep_to_the_target_and_take_neighbours_only(
    shape: list[tuple[int, int, int]], target: int
) -> None:
    pieces: list[Piece] = []
    number = 1
    for length, size, skipped in shape:
        pieces.append(piece(number, number + length - 1, size=size))
        number += length + skipped

    found = merges(pieces, target_bytes=target, now=inf)

    taken = [each for run in found for each in run]
    assert len(taken) == len(set(taken))
    for run in found:
        assert sum(each.size for each in run) <= target
        assert len(join(each.span for each in run)) == 1 < len(run)
