"""Values that JSON has no spelling for, and kombu has."""

import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
from kombu.utils import json as kombu_json

from celeriac.errors import CallerError, PeerError
from celeriac.wire.value import MAX_DEPTH, is_plain, revive, spell
from tests.builders import nested

ID = UUID("8acc1b1e-0000-4000-8000-00000000000a")
SPELLED: list[tuple[object, object]] = [
    (datetime(2026, 11, 15, 1, 2, 3, 4, UTC),
     {"__type__": "datetime", "__value__": "2026-11-15T01:02:03.000004+00:00"}),
    (datetime(2026, 11, 15), {"__type__": "datetime", "__value__": "2026-11-15T00:00:00"}),  # noqa: DTZ001
    (date(2026, 11, 15), {"__type__": "date", "__value__": "2026-11-15"}),
    (time(1, 2, 3), {"__type__": "time", "__value__": "01:02:03"}),
    (time(1, 2, tzinfo=timezone(timedelta(hours=2))), {"__type__": "time", "__value__": "01:02:00+02:00"}),
    (Decimal("1.10"), {"__type__": "decimal", "__value__": "1.10"}),
    (Decimal("Infinity"), {"__type__": "decimal", "__value__": "Infinity"}),
    (ID, {"__type__": "uuid", "__value__": {"hex": ID.hex}}),
    (b"abc \xc3\xa9", {"__type__": "bytes", "__value__": "abc é"}),
    (b"\xff\x00", {"__type__": "base64", "__value__": "/wA="}),
    (b"", {"__type__": "bytes", "__value__": ""}),
]  # fmt: skip


# -- there and back


@pytest.mark.parametrize(("value", "spelled"), SPELLED)
def test_a_value_is_spelled_as_kombu_spells_it(value: object, spelled: object) -> None:
    document = spell(value)

    assert json.loads(document) == spelled
    assert document == kombu_json.dumps(value).encode()


@pytest.mark.parametrize(("value", "spelled"), SPELLED)
def test_a_value_that_kombu_spelled_is_revived(value: object, spelled: object) -> None:
    assert revive(spelled) == value
    assert revive({"a": [1, spelled, [spelled]], "b": spelled}) == {"a": [1, value, [value]], "b": value}


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ({"datetime": "2026-11-15T00:00:00", "__datetime__": True}, datetime(2026, 11, 15)),  # noqa: DTZ001
        ({"bytes": "é", "__bytes__": True}, b"\xc3\xa9"),
        ({"bytes": "/wA=", "__base64__": True}, b"\xff\x00"),
    ],
)
def test_a_value_as_kombu_52_spelled_it_is_revived(spelled: object, value: object) -> None:
    assert revive([spelled]) == [value]


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ({"__type__": "date", "__value__": "2026-11-15T10:00:00"}, date(2026, 11, 15)),
        ({"__type__": "datetime", "__value__": "2026-11-15T00:00:00Z"}, datetime(2026, 11, 15, tzinfo=UTC)),
        ({"__type__": "uuid", "__value__": str(ID)}, ID),
    ],
)
def test_other_spellings_that_make_sense_are_taken(spelled: object, value: object) -> None:
    assert revive(spelled) == value


# -- what stays as it is


@pytest.mark.parametrize(
    "value",
    [
        {"__type__": "set", "__value__": [1]},
        {"__type__": "os.system", "__value__": "true"},
        {"__type__": ["uuid"], "__value__": "x"},
        {"__type__": None, "__value__": "x"},
        {"__type__": "uuid", "__value__": {"hex": "zz"}},
        {"__type__": "uuid", "__value__": {"hex": 7}},
        {"__type__": "uuid", "__value__": {"int": 7}},
        {"__type__": "uuid", "__value__": None},
        {"__type__": "uuid", "__value__": []},
        {"__type__": "datetime", "__value__": "yesterday"},
        {"__type__": "datetime", "__value__": 7},
        {"__type__": "datetime", "__value__": {"year": 1}},
        {"__type__": "date", "__value__": "9" * 5000},
        {"__type__": "time", "__value__": "25:00"},
        {"__type__": "decimal", "__value__": "one"},
        {"__type__": "decimal", "__value__": 1},
        {"__type__": "decimal", "__value__": "1e99999999999999999999999999"},
        {"__type__": "decimal", "__value__": [0, [1], 2]},
        {"__type__": "bytes", "__value__": "\ud800"},
        {"__type__": "bytes", "__value__": None},
        {"__type__": "base64", "__value__": "a"},
        {"__type__": "base64", "__value__": "é"},
        {"__type__": "bytes", "value": "x"},
        {"__type__": "bytes", "__value__": "x", "more": 1},
        {"bytes": "x", "__bytes__": False},
        {"bytes": 7, "__bytes__": True},
        {"text": "x", "__bytes__": True},
        {"datetime": "now", "__datetime__": True},
        {"a": 1, "b": 2},
        {"__type__": "bytes"},
    ],
)
def test_what_is_no_spelling_stays_the_dict_it_is(value: dict[str, object]) -> None:
    again = json.loads(json.dumps(value))

    assert revive(again) == value
    assert revive([again]) == [value]


def test_what_is_inside_something_malformed_is_revived_still() -> None:
    inner = {"__type__": "bytes", "__value__": "x"}

    assert revive({"__type__": "set", "__value__": [inner]}) == {"__type__": "set", "__value__": [b"x"]}


@pytest.mark.parametrize("levels", [0, 1, MAX_DEPTH])
def test_what_is_nested_to_the_limit_is_taken(levels: int) -> None:
    assert revive(nested(levels)) == nested(levels)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_what_is_nested_deeper_is_refused(levels: int) -> None:
    with pytest.raises(PeerError, match="nested more than 200 levels deep"):
        revive(nested(levels))


def test_a_shallow_document_without_marks_is_plain() -> None:
    assert is_plain(b'{"a": [1, "__x"], "b_": {}}')
    assert not is_plain(b'{"__type__": "bytes", "__value__": "x"}')
    assert not is_plain(b'{"bytes": "x", "__bytes__": true}')
    assert not is_plain(b"[" * (MAX_DEPTH + 1))


# -- what JSON itself decides


class Colour(Enum):
    RED = 1


class Size(IntEnum):
    SMALL = 1


Point = namedtuple("Point", "x y")


class Money:
    def __json__(self) -> object:
        return {"cents": 100, "at": date(2026, 11, 15)}


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", 2.5: "b", False: "c", None: "d"},
        (1, (2,)),
        Point(1, 2),
        Size.SMALL,
        OrderedDict(a=1),
        "\ud800 \udfff é € 😀 \x00",
        10**400,
        [math.nan, math.inf, -math.inf],
        -0.0,
        Money(),
        [Money()],
        datetime(1, 1, 1, tzinfo=UTC),
    ],
)
def test_what_kombu_can_write_is_written_alike(value: object) -> None:
    assert spell(value) == kombu_json.dumps(value).encode()


@pytest.mark.parametrize(
    ("value", "kind"),
    [({1}, "set"), (object(), "object"), (Colour.RED, "Colour"), (1j, "complex"),
     (bytearray(b"x"), "bytearray"), (timedelta(1), "timedelta"), (len, "builtin_function_or_method"),
     ({(1, 2): 3}, "tuple"), ({b"k": 3}, "bytes"), ({ID: 3}, "UUID")],
)  # fmt: skip
def test_what_kombu_cannot_write_is_refused_by_its_type(value: object, kind: str) -> None:
    with pytest.raises(TypeError):
        kombu_json.dumps(value)

    with pytest.raises(CallerError, match=kind):
        spell([value])


def test_what_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(CallerError, match="Circular reference"):
        spell(loop)


def test_what_is_nested_beyond_pythons_limit_is_refused() -> None:
    with pytest.raises(CallerError, match="too deep"):
        spell(nested(100_000))


def test_a_number_with_too_many_digits_is_refused() -> None:
    with pytest.raises(CallerError, match="4300 digits"):
        spell(10**5000)
