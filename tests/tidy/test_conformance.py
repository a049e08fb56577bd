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
    marked = read_differences()

    sections = re.findall(
        r"^### (.+)\n((?:(?!#).*\n)*)", DIFFERENCES.read_text(encoding="utf-8"), re.MULTILINE
    )

    assert sections
    assert [heading for heading, text in sections if heading not in marked and not _names_a_test(text)] == []


def _names_a_test(section: str) -> bool:
    """Tell whether a section names a test function and its file, and all that it names are there."""
    named = re.findall(r"`(test_\w+)`\s+in\s+`(tests/[\w/]+\.py)`", section)
    return bool(named) and all(f"def {name}(" in (ROOT / file).read_text() for name, file in named)


def test_the_page_is_made_from_the_tests() -> None:
    """Write it again with ``python -m scripts.docs.conformance_page``."""
    written = PAGE.read_text(encoding="utf-8")

    assert written == conformance_page()
