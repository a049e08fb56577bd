"""Texts that people read are written in plain English: see scripts/language.py."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from scripts.language import BANNED, Text, all_texts, bad_words, has_bad_begin, rate, read_makefile
from scripts.language import read_page as page_texts
from scripts.language import read_python as source_texts
from tests.tidy.repository import SOURCE, named
from tests.tidy.test_commands_reference import COMMANDS
from tests.tidy.test_help import texts_of

#: How often "what" and "who" may stand in 1,000 words: Celery's docstrings have 0.2 and 0.
MOST = 2.0
#: The faces: all of them format a number with its unit by the functions of views/format.py.
FACES = ("cli", "tui", "views", "web")
FORMATS = SOURCE / "views" / "format.py"
#: A number with its format, and a unit behind it.
_UNIT = re.compile(r"\{[^{}]*:[,.\d]*[fg]?\} ?(?:µs|ms|s|[KMGT]i?B|kB)\b")


@cache
def texts() -> tuple[Text, ...]:
    """Return every text that people read."""
    return tuple(all_texts())


def begins(of: Iterator[Text] | tuple[Text, ...]) -> list[str]:
    """Return the labels, messages and headings that begin with What, Who, That, It or This."""
    return [f"{each.place}: {each.text}" for each in of if each.is_whole and has_bad_begin(each.text)]


def banned(of: Iterator[Text] | tuple[Text, ...]) -> list[str]:
    """Return the words that have a plain one, and where they are."""
    return [f"{each.place}: {word!r}, write {fix}" for each in of for word, fix in bad_words(each.text)]


def formatted(place: str, source: str) -> set[str]:
    """Return the lines of a module that put a unit behind a number."""
    strings = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr))
    segments = ((node.lineno, ast.get_source_segment(source, node) or "") for node in strings)
    return {f"{place}:{line}" for line, segment in segments if _UNIT.search(segment)}


# -- the texts


def test_no_text_begins_with_what_who_that_it_or_this() -> None:
    assert len(texts()) > 5000
    assert begins(texts()) == []


def test_no_text_has_a_banned_word() -> None:
    assert banned(texts()) == []


@pytest.mark.parametrize("word", ["what", "who"])
def test_few_texts_have_the_word(word: str) -> None:
    assert rate(word, [each.text for each in texts()]) < MOST


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_no_banned_word_and_no_option_begins_badly(path: str) -> None:
    command = COMMANDS[path]
    helps = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]

    assert bad_words(texts_of(command)) == []
    assert [text for text in helps if has_bad_begin(text)] == []


def test_numbers_get_their_unit_in_one_module() -> None:
    modules = [path for face in FACES for path in (SOURCE / face).rglob("*.py") if path != FORMATS]

    assert [line for module in modules for line in formatted(named(module), module.read_text())] == []


# -- the tests find what they look for


@pytest.mark.parametrize(
    "source",
    [
        'logger.info("Who leads cannot be asked: %s", error)',
        'raise CallerError(f"that {name} was sent cannot be read")',
        'label("What it was given")',
        'option(help="It says how many there are.")',
        'text = "this worker runs"',
    ],
)
def test_a_text_with_a_bad_beginning_is_found(source: str) -> None:
    assert len(begins(source_texts("node", "planted.py", source))) == 1


def test_a_heading_with_a_bad_beginning_is_found_and_a_paragraph_is_not() -> None:
    page = "# What is on which page\n\nWhat follows is text.\n\n## Pages\n"

    assert begins(page_texts("docs", "planted.md", page)) == ["planted.md:1: # What is on which page"]


@pytest.mark.parametrize(
    "text",
    [
        "it was told anew",
        "to mend it",
        "parted by commas",
        "lost without a farewell",
        "kept for ever",
        "beside the broker",
        "no ailment known",
        "they tell apart",
        "not heard of yet",
        "out of patience",
        "spelled as JSON",
        "two at the least",
        "after so many seconds",
        "no sign of life",
        "at that moment",
        "give him a password",
        "the link to the broker",
        "our clocks disagree",
        "who sent whom",
        "its relatives",
        "the crew ended",
        "x is no crontab",
    ],
)
def test_a_banned_word_is_found(text: str) -> None:
    assert banned(source_texts("node", "planted.py", f"logger.info({text!r})"))
    assert banned(page_texts("docs", "planted.md", text))
    assert banned(read_makefile(f"pins: ready ## {text}"))


def test_every_banned_word_has_an_example() -> None:
    (mark,) = [each for each in test_a_banned_word_is_found.pytestmark if each.name == "parametrize"]  # type: ignore[attr-defined]

    found = {fix for text in mark.args[1] for _, fix in bad_words(text)}

    assert found == set(BANNED.values())


def test_a_shown_docstring_is_a_text_and_others_are_none() -> None:
    source = '@add_command(app, "add")\ndef add() -> None:\n    """Let him in."""\n'
    hidden = 'def add() -> None:\n    """Let him in."""\n'

    assert banned(source_texts("cli", "planted.py", source)) == [
        "planted.py:3: 'him', write they, or the role"
    ]
    assert banned(source_texts("cli", "planted.py", hidden)) == []


def test_code_on_a_page_and_in_a_string_is_no_text() -> None:
    page = "```python\ntold = what\n```\nThe argument `patience`.\n"

    assert banned(page_texts("docs", "planted.md", page)) == []
    assert banned(source_texts("store", "planted.py", 'ask("SELECT told FROM spelled WHERE patience")')) == []


def test_a_unit_behind_a_number_is_found() -> None:
    source = 'a = f"{1000 * seconds:.0f} ms"\nb = f"{seconds:g} in all, {name} ms"\nc = f"{seconds:g} s"\n'

    assert formatted("planted.py", source) == {"planted.py:1", "planted.py:3"}


def test_words_are_counted_by_the_thousand() -> None:
    assert rate("what", ["what is it", "not whatever"]) == pytest.approx(200.0)
    assert rate("who", []) == 0.0
