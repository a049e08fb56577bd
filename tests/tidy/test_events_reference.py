"""The reference of events names every type, record and field, and no others."""

import inspect
import re

import pytest
from msgspec.structs import fields

from celeriac.config import Settings
from celeriac.core.clock import LamportClock
from celeriac.errors import ConnectionLost
from celeriac.model import events
from celeriac.model.events import EVENT_CLASSES, Custom, Event, Gap
from celeriac.node.reception import Reception
from celeriac.wire.event import Gate
from tests.tidy.repository import ROOT

PAGE = (ROOT / "docs" / "reference" / "events.md").read_text()
RECORDS = [
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, Event) and kind.__module__ == events.__name__
]


def tables() -> list[list[list[str]]]:
    """Return the tables of the page: rows of cells, their heads first."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    rows = [
        [[cell.strip() for cell in row[1:-1].split("|")] for row in table.splitlines()] for table in found
    ]
    return [[row for row in table if set("".join(row)) != {"-"}] for table in rows]


def names(cell: str) -> set[str]:
    """Return the names that a cell spells as code."""
    return set(re.findall(r"`([\w-]+)`", cell))


def listed_fields() -> set[str]:
    """Return the names in the first column of every table of fields."""
    return {name for head, *rows in tables() if head[0] == "Field" for row in rows for name in names(row[0])}


def gap() -> Event:
    """Return what a receiver makes of a loss."""
    reception = Reception(
        settings=Settings(),
        clock=LamportClock(),
        hostname="gen7@web",
        gate=Gate(),
        state=None,
        routing_key="#",
        node_id=None,
    )
    reception.lose(ConnectionLost("cut"))
    reception.resume()
    return reception.waiting[0]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_reference_names_every_record(record: type[Event]) -> None:
    assert f"`{record.__name__}`" in PAGE


def test_the_reference_lists_every_type_with_its_record() -> None:
    rows = [row for head, *below in tables() if head[:2] == ["Type", "Record"] for row in below]

    listed = {row[0].strip("`"): row[1].strip("`") for row in rows}

    known = {type_: record.__name__ for type_, record in EVENT_CLASSES.items()}
    assert listed == known | {"any other `task-…": Custom.__name__}


def test_the_reference_lists_every_field_and_no_others() -> None:
    by_name = {each.name for record in RECORDS for each in fields(record)}

    listed = listed_fields()

    assert listed == by_name | {"type", "group", "subject"}


@pytest.mark.parametrize("type_", EVENT_CLASSES)
def test_the_reference_tells_which_fields_belong_to_a_record_alone(type_: str) -> None:
    record = EVENT_CLASSES[type_]
    base = record.__mro__[1]
    own = {each.name for each in fields(record)} - {each.name for each in fields(base)}

    rows = [row for table in tables() for row in table if row[0] == f"`{type_}`"]

    assert len(rows) == 1
    if type_.startswith("task-"):
        shared = {base.__name__} & {"Described", "Raised"}
        assert names(rows[0][3]) == own | shared


def test_the_gap_of_a_receiver_is_what_the_reference_calls_it() -> None:
    event = gap()

    assert isinstance(event, Gap)
    assert f"### `{event.type}`" in PAGE
