"""Patterns of node names: what they fit, and that none of them can keep a node busy."""

import re
from fnmatch import fnmatchcase
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.errors import PeerError
from celeriac.wire.pattern import matches

#: A name that an expression can divide in many ways.
TWISTY = "a" * 40


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("w1@web", True),
        ("w*", True),
        ("*@web", True),
        ("w?@*", True),
        ("w[12]@web", True),
        ("w1", False),
        ("", False),
    ],
)
def test_a_shell_pattern_fits_the_whole_name(pattern: str, expected: bool) -> None:
    assert matches("w1@web", pattern=pattern, matcher="glob") is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("w1", True),
        (r"w\d+@web", True),
        (r"w\d@web$", True),
        ("^w1@(web|db)", True),
        (r"(?:w1|w2)@.*", True),
        ("[a-z]+[0-9]{1,3}@", True),
        (r".*@w.*b$", True),
        ("web", False),
        ("w2", False),
        (r"w1@web\.example", False),
    ],
)
def test_an_expression_fits_the_beginning_of_the_name(pattern: str, expected: bool) -> None:
    assert matches("w1@web", pattern=pattern, matcher="pcre") is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*b",
        "(a+)+$",
        "(a|a)*b",
        "(?:a|aa)+$",
        "(.*)(.*)(.*)(.*)(.*)b",
        "a*" * 30 + "b",
        "a?" * 30 + "a" * 30,
        "a{0,40}" * 10 + "b",
        "(a|a)" * 40 + "b",
        "(a|aa)" * 20 + "b",
        "((a|a)(a|a)(a|a)(a|a)(a|a)(a|a)|b)" * 5 + "b",
        "^*" * 60,
        r"\b?" * 60,
        "(|a)" * 60,
    ],
)
def test_an_expression_that_might_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(PeerError, match=r"^pattern$"):
        matches(TWISTY, pattern=pattern, matcher="pcre")


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", "(?=a)a", "(?!b)a", "(?<=a)a", "(?P<x>a)(?P=x)", "(?i)a", "(?#x)a", "(?>a)", "(?(1)a|b)"],
)
def test_an_expression_that_looks_around_or_back_is_refused(pattern: str) -> None:
    with pytest.raises(PeerError, match=r"^pattern$"):
        matches("aa", pattern=pattern, matcher="pcre")


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "(a",
        "a)",
        "[a",
        "[]",
        "*a",
        "a**",
        "\\",
        r"\q",
        "[z-a]",
        "a{3,1}",
        "a{99999999999999999999}",
        "[[a]",
        "[]&&",
        "[^]--",
    ],
)
def test_a_broken_expression_is_refused(pattern: str) -> None:
    with pytest.raises(PeerError, match=r"^pattern$"):
        matches("a", pattern=pattern, matcher="pcre")


@pytest.mark.parametrize("matcher", ["glob", "pcre"])
def test_a_long_pattern_is_refused(matcher: str) -> None:
    with pytest.raises(PeerError, match=r"^pattern$"):
        matches("a", pattern="a" * 257, matcher=matcher)


@pytest.mark.parametrize("matcher", ["", "regex", "GLOB", "os.system"])
def test_another_language_is_refused(matcher: str) -> None:
    with pytest.raises(PeerError, match=r"^matcher$"):
        matches("a", pattern="a", matcher=matcher)


# Weighted to what makes expressions slow, or Python warn of them: warnings are errors here.
PIECES = st.sampled_from(
    [
        "a", "b", "@", ".", "*", "+", "?", "|", "(", ")", "(?:", "[", "]", "[^", "-", "--", "&&", "||", "~~",
        "\\", "\\d", "\\b", "\\1", "{1,3}", "{2}", "{", "}", "^", "$", "(a|b)", "a*", ".*", "[ab]", "(?i)",
    ]
)  # fmt: skip
PATTERNS = st.lists(PIECES, max_size=60).map("".join)


@given(PATTERNS | st.text(max_size=40))
def test_any_expression_is_answered_soon_and_as_python_does(pattern: str) -> None:
    began = perf_counter()
    try:
        answer = matches(TWISTY, pattern=pattern, matcher="pcre")
    except PeerError:
        answer = None
    took = perf_counter() - began

    assert took < 2.0
    assert answer is None or answer == (re.match(pattern, TWISTY) is not None)


@given(st.lists(PIECES | st.sampled_from(["[!", "*", "?"]), max_size=60).map("".join) | st.text(max_size=40))
def test_any_shell_pattern_is_answered_soon_and_as_python_does(pattern: str) -> None:
    began = perf_counter()
    try:
        answer = matches(TWISTY, pattern=pattern, matcher="glob")
    except PeerError:
        answer = None
    took = perf_counter() - began

    assert took < 2.0
    assert answer is None or answer == fnmatchcase(TWISTY, pattern)
