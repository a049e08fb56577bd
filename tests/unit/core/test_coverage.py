"""Which numbers of a recorder are there, which are missing, and which twice."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from celeriac.core.coverage import Span, is_within, join, missing, overlapping

spans = st.lists(
    st.builds(
        lambda recorder, first, more: Span(recorder, first, first + more),
        st.sampled_from(("a", "b")),
        st.integers(1, 30),
        st.integers(0, 6),
    ),
    max_size=10,
)


def numbers(given: list[Span]) -> set[tuple[str, int]]:
    return {(span.recorder, number) for span in given for number in range(span.first, span.last + 1)}


@given(spans)
def test_joined_spans_have_the_same_numbers_and_none_touches_another(given: list[Span]) -> None:
    joined = join(given)

    assert numbers(joined) == numbers(given)
    assert sum(span.size for span in joined) == len(numbers(given))
    assert join(joined) == joined
    assert all(
        before.recorder != after.recorder or before.last + 1 < after.first
        for before, after in pairwise(joined)
    )


@given(spans)
def test_what_is_missing_and_what_is_there_are_all_up_to_the_last(given: list[Span]) -> None:
    holes = missing(given, first=1)

    assert not numbers(holes) & numbers(given)
    lasts = {name: max(span.last for span in given if span.recorder == name) for name, _, _ in given}
    assert numbers(holes) | numbers(given) == numbers([Span(name, 1, last) for name, last in lasts.items()])


@given(spans)
def test_spans_overlap_where_numbers_are_there_twice(given: list[Span]) -> None:
    pairs = overlapping(given)

    is_twice = sum(span.size for span in given) > len(numbers(given))
    assert bool(pairs) == is_twice
    assert all(numbers([one]) & numbers([other]) for one, other in pairs)


@given(spans, spans)
def test_a_span_is_within_others_if_they_have_all_its_numbers(given: list[Span], others: list[Span]) -> None:
    known = join(others)

    for span in given:
        assert is_within(span, known) == (numbers([span]) <= numbers(others))


def test_a_span_is_within_others_only_if_one_of_its_recorder_has_it_all() -> None:
    known = [Span("a", 1, 5), Span("a", 7, 9)]

    assert is_within(Span("a", 2, 5), known)
    assert not is_within(Span("a", 5, 7), known)
    assert not is_within(Span("b", 2, 5), known)
