"""Each statement of the reference documents has a test, and each difference from Celery a reason."""

import re

from scripts.docs.conformance_page import (
    DIFFERENCES,
    PAGE,
    conformance_page,
    read_differences,
    read_statements,
)
from tests.tidy.repository import ROOT

COUNT = 158


def test_each_statement_has_one_test() -> None:
    numbers = [each.number for each in read_statements()]

    assert numbers == list(range(1, COUNT + 1))


def test_each_statement_is_one_sentence() -> None:
    without = [each.test for each in read_statements() if not each.text.endswith(".")]

    assert without == []


def test_each_difference_names_a_section_of_its_page() -> None:
    headings = {line.lstrip("# ") for line in DIFFERENCES.read_text().splitlines() if line.startswith("##")}

    missing = [(each.test, each.difference) for each in read_statements() if each.difference]

    assert [each for each in missing if each[1] not in headings] == []


def test_each_section_on_a_difference_has_a_test() -> None:
    """A section of the second level that has no text of its own only groups others."""
    marked, sections = read_differences(), _sections()

    without = [
        heading for heading, text in sections if text and heading not in marked and not _named_tests(text)
    ]

    assert sections
    assert without == []


def test_each_test_that_a_section_names_exists() -> None:
    named = {each for _, text in _sections() for each in _named_tests(text)}

    missing = [(name, file) for name, file in named if f"def {name}(" not in (ROOT / file).read_text()]

    assert named
    assert missing == []


def _sections() -> list[tuple[str, str]]:
    """Return the headings of the page, from the second level on, and the text below each."""
    _, *parts = re.split(r"^##+ ", DIFFERENCES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(heading, text.strip()) for heading, _, text in (part.partition("\n") for part in parts)]


def _named_tests(section: str) -> list[tuple[str, str]]:
    """Return the test functions that a section names, each with its file."""
    return re.findall(r"`(test_\w+)`\s+in\s+`(tests/[\w/]+\.py)`", section)


def test_the_page_is_made_from_the_tests() -> None:
    """Write it again with ``python -m scripts.docs.conformance_page``."""
    written = PAGE.read_text(encoding="utf-8")

    assert written == conformance_page()
