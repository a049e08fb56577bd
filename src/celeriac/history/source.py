"""The tables of a warehouse, as DuckDB reads them."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from celeriac.errors import CallerError
from celeriac.model.table import TABLES, Table

__all__ = ["duck_type", "known_table", "picked", "quoted", "source_of"]

_PLAIN: Final = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
}
_FIELD: Final = re.compile(r"\s*(\w+)\s*:\s*(\w+)\s*(?:,|$)", re.ASCII)


def known_table(name: str) -> Table:
    """Return a table by its name; CallerError if there is none of this name."""
    if name not in TABLES:
        raise CallerError(f"unknown table {name!r}: use one of {', '.join(TABLES)}")
    return TABLES[name]


def quoted(name: str) -> str:
    """Return a name as SQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def duck_type(type_: str) -> str:
    """Return DuckDB's name of a type that is spelled as Spark spells it."""
    if type_.startswith("array<"):
        return f"{duck_type(type_[len('array<') : -1])}[]"
    if type_.startswith("struct<"):
        fields = _FIELD.findall(type_[len("struct<") : -1])
        return f"STRUCT({', '.join(f'{quoted(name)} {_PLAIN[kind]}' for name, kind in fields)})"
    return _PLAIN[type_]


@cache
def _nothing(name: str) -> str:
    """Return a table without rows: whatever the files lack is then there, and null."""
    columns = ", ".join(
        f"CAST(NULL AS {duck_type(column.type)}) AS {quoted(column.name)}" for column in TABLES[name].columns
    )
    return f"SELECT {columns} WHERE false"


def source_of(name: str, rows: str | None) -> str:
    """Return what stands for a table in a statement; ``rows`` is what yields those of its files, if any."""
    nothing = _nothing(known_table(name).name)
    if rows is None:
        return f"({nothing})"
    # DuckDB reads no more columns and rows of the files than are asked for, through the union too.
    return f"({nothing} UNION ALL BY NAME SELECT * FROM {rows})"  # noqa: S608 - of names of ours


def picked(columns: Sequence[str], table: Table) -> list[str]:
    """Return columns that a table has, each once; CallerError for another."""
    known = [column.name for column in table.columns]
    for name in columns:
        if name not in known:
            raise CallerError(f"{table.name} has no column {name!r}: use one of {', '.join(known)}")
    return list(dict.fromkeys(columns))
