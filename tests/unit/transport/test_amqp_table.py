"""Headers in bytes, as py-amqp spells and reads them, and not one step further than they go."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from amqp.serialization import dumps, loads
from hypothesis import given
from hypothesis import strategies as st

from celeriac.errors import CallerError
from celeriac.transport.amqp_table import read_table, spell_table
from tests.property.effort import COSTLY

NAMES = st.text(max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=6)


def read(spelled: bytes) -> dict[str, Any]:
    """Return what we read of a table that begins with its length."""
    assert int.from_bytes(spelled[:4]) == len(spelled) - 4
    return read_table(spelled, 4, len(spelled))


def kinds(value: object) -> object:
    """Return the kinds of all that is in a value: 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return {name: kinds(each) for name, each in value.items()}
    if isinstance(value, list):
        return [kinds(each) for each in value]
    return type(value)


@COSTLY
@given(TABLES)
def test_py_amqp_reads_what_we_spell(table: dict[str, Any]) -> None:
    spelled = spell_table(table)

    (read_by_it,), end = loads("F", spelled, 0)
    assert (read_by_it, end) == (table, len(spelled))
    assert kinds(read_by_it) == kinds(table)


@COSTLY
@given(TABLES)
def test_we_read_what_py_amqp_spells(table: dict[str, Any]) -> None:
    spelled = dumps("F", [table])

    assert read(spelled) == table
    assert kinds(read(spelled)) == kinds(table)


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"U\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xff", -1),
        (b"f\x3f\x00\x00\x00", 0.5),
        (b"x\x00\x00\x00\x02ab", b"ab"),
        (b"D\x02\x00\x00\x00\x7d", 1.25),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x07", 7),
        (b"S\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
        (b"A\x00\x00\x00\x07S\x00\x00\x00\x02\xff\xfe", [b"\xff\xfe"]),
    ],
)
def test_other_kinds_of_values_are_read_too(spelled: bytes, value: object) -> None:
    table = b"\x01x" + spelled

    assert read_table(table, 0, len(table)) == {"x": value}


@COSTLY
@given(TABLES, st.data())
def test_a_table_that_is_cut_short_is_refused(table: dict[str, Any], data: st.DataObject) -> None:
    spelled = spell_table(table | {"last": "one"})
    end = data.draw(st.integers(5, len(spelled) - 1))

    with pytest.raises(ValueError, match=r"table|list|value|decode"):
        read_table(spelled[:end], 4, len(spelled))


@COSTLY
@given(st.binary(max_size=80))
def test_any_bytes_are_a_table_or_are_refused(spelled: bytes) -> None:
    try:
        table = read_table(spelled, 0, len(spelled))
    except ValueError:
        return

    assert all(isinstance(name, str) for name in table)


def test_what_lies_deeper_than_anybody_needs_is_refused_both_ways() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    spelled = dumps("F", [{"deep": deep}])

    with pytest.raises(ValueError, match="too deep"):
        read(spelled)
    with pytest.raises(CallerError, match="nests more than"):
        spell_table({"deep": deep})


class Level(IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Level.LOW, 1),
        (Name("web1"), "web1"),
        ((1, None), [1, None]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({1: "one"}, {"1": "one"}),
        (b"bytes", "bytes"),
    ],
)
def test_what_is_almost_of_a_known_kind_is_spelled_as_that(value: object, plain: object) -> None:
    assert read(spell_table({"x": value})) == {"x": plain}


@pytest.mark.parametrize(
    ("table", "fix"),
    [
        ({"x": {1, 2}}, "a header cannot hold set: use strings, numbers, lists and dicts of"),
        ({"x": [object()]}, "a header cannot hold object: use strings, numbers, lists and dicts of"),
        ({"x": 2**63}, "send it as string"),
        ({"x" * 256: 1}, "shorten it to 255 bytes"),
    ],
)
def test_what_cannot_be_spelled_is_told_with_what_can(table: Mapping[str, object], fix: str) -> None:
    with pytest.raises(CallerError, match=fix):
        spell_table(table)
