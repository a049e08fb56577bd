"""Text from peers can be shown: no control character, no end in sight, still readable."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.views.text import (
    CUT_MARK,
    json_text,
    number_text,
    visible,
    visible_lines,
)

ANY_TEXT = st.text(st.characters(blacklist_categories=[]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("one\r\ntwo", "one\\r\\ntwo"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("a\u2028b", "a\\u2028b"),
        ("del\x7f", "del\\x7f"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_does_not_print_is_spelled_out(hostile: str, shown: str) -> None:
    assert visible(hostile) == shown


def test_text_that_prints_stays_as_it_is() -> None:
    text = "größe [red]日本[/red] C:\\new 🙂"

    assert visible(text) == text


@given(ANY_TEXT, st.integers(1, 50))
def test_no_text_is_shown_longer_than_allowed_or_with_a_character_that_does_not_print(
    text: str, most: int
) -> None:
    shown = visible(text, most)

    assert len(shown) <= most
    assert shown.isprintable()


def test_a_text_that_is_cut_ends_in_a_mark() -> None:
    assert visible("x" * 10, 10) == "x" * 10
    assert visible("x" * 11, 10) == "x" * 9 + CUT_MARK


def test_what_is_no_text_is_shown_as_text() -> None:
    assert visible(12) == "12"
    assert visible(None) == "None"


def test_lines_stay_lines_and_nothing_else_moves_the_cursor() -> None:
    assert visible_lines("one\r\n\ttwo\x1b[2J\n") == ["one", "        two\\x1b[2J"]


def test_lines_beyond_the_limit_are_counted() -> None:
    lines = visible_lines("\n".join(map(str, range(1200))))

    assert len(lines) == 1001
    assert lines[-1] == f"{CUT_MARK} and 200 lines more"


@given(JSON, st.none() | st.just(2))
def test_json_says_the_same_and_prints(value: Any, indent: int | None) -> None:
    text = json_text(value, indent=indent)

    assert all(line.isprintable() for line in text.split("\n"))
    # Half of a surrogate pair next to the other half is the whole, as in any JSON.
    assert json.loads(text) == json.loads(json.dumps(value))


def test_json_keeps_what_people_can_read() -> None:
    assert json_text({"name": "größe"}) == '{"name": "größe"}'


@pytest.mark.parametrize(
    ("number", "shown"), [(None, ""), (0, "0"), (1234567, "1234567"), (2.5, "2.5"), (0.12345, "0.123")]
)
def test_numbers_are_short(number: float | None, shown: str) -> None:
    assert number_text(number) == shown
