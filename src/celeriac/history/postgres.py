"""A table in PostgreSQL: copied into a temporary one, and from there into its place by one transaction."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from celeriac.errors import (
    AccessRefused,
    CallerError,
    CeleriacError,
    ConnectionLost,
    DiskError,
    ImproperlyConfigured,
)
from celeriac.history.span import Days
from celeriac.masking import MASK, sanitize_url
from celeriac.model.table import Column

__all__ = ["write_postgres"]

_TYPES: Final = {
    "string": "text",
    "bigint": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "binary": "bytea",
    "array<string>": "text[]",
}
#: What tells one row from another. Of the other tables whole days are replaced.
_KEYS: Final = {"tasks": ("uuid",), "attempts": ("uuid", "retries")}
#: PostgreSQL would cut a longer name.
_MAX_NAME_BYTES: Final = 63
_DRAFT: Final = "celeriac_draft"
#: Stands for the character 0, which PostgreSQL refuses in any text.
_NULL_SIGN: Final = "\N{SYMBOL FOR NULL}"
#: Sorts after every date.
_AFTER_ALL: Final = "9999-99-99"
_PATIENCE: Final = 30
_REFUSED: Final = ("28", "42501", "3D000")
#: What PostgreSQL says of a login before it gives its error a number.
_LOGIN: Final = ("authentication failed", "no pg_hba.conf entry", "no password supplied", "does not exist")
_SHAPE: Final = ("42P01", "42703", "42804", "42P10", "42809", "22P02")


def write_postgres(
    url: str,
    table: str,
    columns: Sequence[Column],
    *,
    name: str,
    days: Days,
    run: Callable[[Callable[[Any], int]], int],
) -> tuple[str, int]:
    """Write rows into the table ``name``, which is made if it is not there.

    Tasks, and the attempts of tasks, take the place of those of the same id; of the other tables all rows of
    ``days`` are replaced. ``run`` gives a function the rows. ``name`` may have a schema before it:
    ``ops.tasks``. Returns where they are now, and how many they were.
    """
    path = _path(name)
    with _connected(url) as connection, connection.transaction():
        _make(connection, path, table, columns)
        rows = run(lambda reader: _copy(connection, columns, reader))
        _settle(connection, path, table, columns, days)
    return f"{sanitize_url(url)} as {name}", rows


def _path(name: str) -> list[str]:
    parts = name.split(".")
    is_good = all(0 < len(part.encode()) <= _MAX_NAME_BYTES and "\0" not in part for part in parts)
    if len(parts) > 2 or not is_good:
        raise CallerError(
            f"invalid table name {name[:100]!r}: use at most {_MAX_NAME_BYTES} bytes, with or without a "
            "schema, as in schema.table"
        )
    return parts


def _make(connection: Any, path: list[str], table: str, columns: Sequence[Column]) -> None:
    from psycopg import sql  # noqa: PLC0415

    told = [sql.SQL("{} " + _TYPES[each.type]).format(sql.Identifier(each.name)) for each in columns]
    key = _KEYS.get(table)
    rule = [sql.SQL("PRIMARY KEY ({})").format(_names(key))] if key else []
    # Two exports that start at once: PostgreSQL would fail one of them.
    connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (".".join(path),))
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
            sql.Identifier(*path), sql.SQL(", ").join([*told, *rule])
        )
    )
    connection.execute(
        sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(
            sql.Identifier(_DRAFT), sql.SQL(", ").join(told)
        )
    )


def _copy(connection: Any, columns: Sequence[Column], reader: Any) -> int:
    from psycopg import sql  # noqa: PLC0415

    rows = 0
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(_DRAFT), _names([each.name for each in columns])
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in reader:
            for row in zip(*batch.to_pydict().values(), strict=True):
                copy.write_row(list(map(_cell, row)))
            rows += batch.num_rows
    return rows


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", _NULL_SIGN) if "\0" in value else value
    return list(map(_cell, value)) if isinstance(value, list) else value


def _settle(connection: Any, path: list[str], table: str, columns: Sequence[Column], days: Days) -> None:
    """Put what was copied in its place."""
    from psycopg import sql  # noqa: PLC0415

    names = [each.name for each in columns]
    target, draft = sql.Identifier(*path), sql.Identifier(_DRAFT)
    key = _KEYS.get(table)
    if table == "attempts":
        # What was taken for an attempt may turn out to be another one.
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE uuid IN (SELECT uuid FROM {})").format(target, draft)
        )
    conflict: sql.Composable = sql.SQL("")
    if key is None:
        # All days between the two: one of which nothing is left has no rows in the draft.
        last = days.last or _AFTER_ALL
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE day >= %s AND day <= %s").format(target), (days.first, last)
        )
    else:
        changed = [
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(each)) for each in names if each not in key
        ]
        conflict = sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
            _names(key), sql.SQL(", ").join(changed)
        )
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(target, _names(names), _names(names), draft)
        + conflict
    )


def _names(names: Sequence[str]) -> Any:
    from psycopg import sql  # noqa: PLC0415

    return sql.SQL(", ").join(map(sql.Identifier, names))


@contextmanager
def _connected(url: str) -> Iterator[Any]:
    try:
        import psycopg  # noqa: PLC0415  (needs the extra)
    except ImportError as error:
        raise ImproperlyConfigured(
            "PostgreSQL needs psycopg, which is not installed: pip install 'celeriac[database]'"
        ) from error
    try:
        with psycopg.connect(url, connect_timeout=_PATIENCE, autocommit=True) as connection:
            yield connection
    except psycopg.Error as error:
        raise _translated(error, url, is_lost=isinstance(error, psycopg.OperationalError)) from None


def _translated(error: Any, url: str, *, is_lost: bool) -> CeleriacError:
    """Return an error of ours; only its first line is told, as details below it can hold values of a row."""
    lines = str(error).strip().splitlines()
    said = lines[0] if lines else type(error).__name__
    place = sanitize_url(url)
    login = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    said = said.replace(login, MASK) if login else said
    code = error.sqlstate or ""
    if code.startswith(_REFUSED) or (not code and any(words in said for words in _LOGIN)):
        return AccessRefused(f"access refused by {place}: {said}; correct the login or its permissions")
    if code in _SHAPE:
        return ImproperlyConfigured(
            f"the table in {place} was not created by Celeriac: {said}; give another with --name, or drop it"
        )
    if is_lost:
        return ConnectionLost(f"{place} cannot be reached: {said}")
    return DiskError(f"{place} rejected the table: {said}")
