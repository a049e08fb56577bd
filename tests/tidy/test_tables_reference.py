"""The reference of tables names every table and column as the model does, and no others."""

import re

import pytest

from celeriac.model.table import COURSE, HISTORY_EVENT, TABLES
from tests.tidy.repository import ROOT

PAGE = (ROOT / "docs" / "reference" / "tables.md").read_text()
#: By name, what stands under the head of a table until the next one.
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def rows(section: str) -> list[list[str]]:
    """Return the cells of the rows below the head of a section's table."""
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table[2:]]


def test_the_reference_has_every_table_in_order() -> None:
    assert list(SECTIONS) == list(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_the_reference_tells_every_column_of_a_table(name: str) -> None:
    told = [
        [
            f"`{column.name}`",
            column.type.replace(HISTORY_EVENT, "event").replace(COURSE, "course"),
            column.meaning,
        ]
        for column in TABLES[name].columns
    ]

    assert rows(SECTIONS[name]) == told


def test_the_reference_tells_what_is_kept_of_an_event() -> None:
    kept = re.findall(r"(\w+):(\w+)", HISTORY_EVENT)

    assert kept
    assert [f"`{name}` {kind}" for name, kind in kept if f"`{name}` {kind}" not in PAGE] == []
