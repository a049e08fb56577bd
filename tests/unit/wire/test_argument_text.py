"""Arguments for people: short, and without harm."""

from typing import Any, NoReturn

import pytest

from celeriac.errors import SoftTimeLimitExceeded
from celeriac.wire.argument_text import MAX_REPR_CHARS, argument_text


class Rude:
    def __repr__(self) -> NoReturn:
        raise SystemError("no")


class Wordy:
    def __repr__(self) -> str:
        return "w" * 10_000


@pytest.mark.parametrize(
    "value",
    [
        (),
        (1,),
        (1, 2.5, None, True),
        {"a": 1, "b": ["c", ("d",)]},
        {1, 2},
        frozenset({1}),
        set(),
        [],
        {},
        "it's",
        b"\xff\x00",
        1 + 2j,
        range(3),
    ],
)
def test_what_is_short_is_shown_as_python_does(value: object) -> None:
    assert argument_text(value) == repr(value)


def test_what_is_deep_is_shown_in_its_upper_levels() -> None:
    assert argument_text([[[[[1]]]]]) == "[[[[...]]]]"


@pytest.mark.parametrize(
    "value", ["x" * 5000, b"x" * 5000, list(range(5000)), dict.fromkeys(range(5000), "y"), (Wordy(), Wordy())]
)
def test_what_is_long_is_cut_and_shows_it(value: object) -> None:
    text = argument_text(value)

    assert len(text) == MAX_REPR_CHARS
    assert text.endswith("...")


def test_what_cannot_be_shown_is_named_by_its_kind() -> None:
    assert argument_text((Rude(), 10**5000)) == "(<Rude>, <int>)"


def test_what_holds_itself_is_shown_once_in_a_while() -> None:
    circle: list[Any] = []
    circle.append(circle)

    assert argument_text(circle) == "[[[[...]]]]"


def test_halves_of_surrogate_pairs_do_not_get_out() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "\ud800"

    assert argument_text([Odd()]) == "[?]"


def test_a_huge_value_is_not_looked_at_as_a_whole() -> None:
    looked = 0

    class Counted:
        def __repr__(self) -> str:
            nonlocal looked
            looked += 1
            return "item"

    argument_text([Counted() for _ in range(100_000)])

    assert looked < 1000


def test_a_warning_to_the_task_that_sends_it_is_not_taken_for_an_error_of_a_value() -> None:
    class Slow:
        def __repr__(self) -> str:
            raise SoftTimeLimitExceeded  # as from outside, in the midst of it

    with pytest.raises(SoftTimeLimitExceeded):
        argument_text([Slow()])
