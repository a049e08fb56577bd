"""Pictures of the docs are taken by tests, and are those that the docs show."""

import re
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, named, pages

_KEPT = ROOT / "docs" / "screenshots"
_MOST_BYTES = 200_000
_TAKEN = re.compile(r'keep_picture\(page, "(?P<page>\w+)"|PICTURES / "(?P<file>\w+\.svg)"\)\.write_text')


def pictures() -> list[Path]:
    return sorted(_KEPT.iterdir())


def taken() -> set[str]:
    """Return the files that the tests keep which ``make pictures`` runs."""
    (recipe,) = re.findall(r"^pictures:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tests = [ROOT / path for path in re.findall(r"tests/\S+\.py", recipe)]
    assert tests
    found = [match for path in tests for match in _TAKEN.finditer(path.read_text())]
    return {match["file"] or f"{match['page']}.png" for match in found}


def test_each_picture_is_one_that_make_pictures_takes_and_each_of_those_is_there() -> None:
    assert {picture.name for picture in pictures()} == taken()


@pytest.mark.parametrize("picture", pictures(), ids=named)
def test_a_picture_is_small_and_some_page_shows_it(picture: Path) -> None:
    shown = [page for page in pages() if f"screenshots/{picture.name})" in page.read_text()]

    assert shown
    assert picture.stat().st_size < _MOST_BYTES
