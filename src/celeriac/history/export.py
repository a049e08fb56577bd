"""Tables written elsewhere: to PostgreSQL, as a Delta table, as one Parquet file, as CSV."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from celeriac.errors import CallerError
from celeriac.history.answer import Question
from celeriac.history.edition import Edition
from celeriac.history.source import quoted
from celeriac.history.span import EVER, Days
from celeriac.masking import sanitize_place
from celeriac.model.answer import Exported
from celeriac.model.table import INNER_COLUMNS, TABLES, Column
from celeriac.store.new_file import new_file
from celeriac.store.spreadsheet import escape_formula

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Progress", "Reader", "export", "guarded", "written_columns"]

#: Is told how many rows are done, and of how many.
Progress = Callable[[int, int], object]

#: Rows that are in memory at once.
_ROWS: Final = 50_000
_POSTGRES: Final = ("postgresql://", "postgres://")
_DELTA: Final = "delta:"
_ROW_END: Final = "\r\n"
_FORMS: Final = "postgresql://user:password@host/name, delta:FOLDER, FILE.parquet or FILE.csv"


def export(
    edition: Edition,
    table: str,
    to: str,
    *,
    days: Days = EVER,
    name: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write a table, or some days of it, to where ``to`` says. All of it is there afterwards, or none.

    Neither PostgreSQL nor CSV gets ``course`` and ``history``, which are for the pipeline; nor CSV sketches.
    """
    if name is not None and not to.startswith(_POSTGRES):
        raise CallerError("--name applies to PostgreSQL only: remove it, or give another file or folder")
    rows = _Rows(edition, table, days, progress)
    if to.startswith(_POSTGRES):
        from celeriac.history.postgres import write_postgres  # noqa: PLC0415 - only who exports there loads it

        columns = written_columns(table, is_without=INNER_COLUMNS)
        target, count = write_postgres(
            to,
            table,
            columns,
            name=name or f"history_{table}",
            days=days,
            run=lambda write: rows.given_to(write, columns),
        )
        return Exported(count, target)
    if to.startswith(_DELTA):
        from celeriac.history.delta import write_delta  # noqa: PLC0415 - only who exports there loads it

        folder = to.removeprefix(_DELTA)
        count = rows.given_to(lambda reader: write_delta(folder, reader, days=days), written_columns(table))
        return Exported(count, sanitize_place(folder))
    path = Path(to)
    if "://" in to or path.suffix not in (".parquet", ".csv"):
        raise CallerError(f"cannot export to {sanitize_place(to)!r}: use {_FORMS}")
    with new_file(path, fix="use another file") as file:
        if path.suffix == ".csv":
            columns = written_columns(table, is_without=INNER_COLUMNS, has_bytes=False)
            count = rows.given_to(lambda reader: _write_csv(file, reader), columns)
        else:
            count = rows.given_to(lambda reader: _write_parquet(file, reader), written_columns(table))
    return Exported(count, str(path))


def written_columns(table: str, *, is_without: tuple[str, ...] = (), has_bytes: bool = True) -> list[Column]:
    """Return the columns that are written."""
    return [
        column
        for column in TABLES[table].columns
        if column.name not in is_without and (has_bytes or column.type != "binary")
    ]


def guarded(value: object) -> object:
    """Return a cell of CSV: a text that a spreadsheet would run has an apostrophe before it."""
    if isinstance(value, str):
        return escape_formula(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | dict):
        return msgspec.json.encode(value).decode()
    return value


class Reader:
    """Batches of rows, which are counted as they are taken, and their schema."""

    def __init__(self, reader: Any, count: Callable[[int], object]) -> None:
        self._reader = reader
        self._count = count
        self.schema: pa.Schema = reader.schema

    def __iter__(self) -> Iterator["pa.RecordBatch"]:
        for batch in self._reader:
            yield batch
            self._count(batch.num_rows)


class _Rows:
    """The rows of a table, of some days."""

    def __init__(self, edition: Edition, table: str, days: Days, progress: Progress | None) -> None:
        self._edition = edition
        self._table = table
        self._days = days
        self._progress = progress
        self._total = edition.rows(table, days)
        self._done = 0

    def given_to(self, write: Callable[[Reader], int], columns: Sequence[Column]) -> int:
        """Give some columns of them to what writes them, as they are read, and return how many there were."""
        self._done = 0
        names = ", ".join(quoted(column.name) for column in columns)
        text = f"SELECT {names} FROM {{{self._table}}}"  # noqa: S608 - of names of ours

        def make(question: Question) -> int:
            return write(Reader(question.relation().to_arrow_reader(_ROWS), self._count))

        return self._edition.run(make, text, {}, {self._table: self._days})

    def _count(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)


def _write_parquet(file: BinaryIO, reader: Reader) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415  (slow to load)

    rows = 0
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_csv(file: BinaryIO, reader: Reader) -> int:
    # Of ends of lines within a cell, the module quotes only those that it ends rows with itself.
    sheet = csv.writer(_Encoded(file), lineterminator=_ROW_END)
    sheet.writerow(reader.schema.names)
    rows = 0
    for batch in reader:
        sheet.writerows(map(guarded, row) for row in zip(*batch.to_pydict().values(), strict=True))
        rows += batch.num_rows
    return rows


class _Encoded:
    """A file of bytes that takes rows of text, and ends each with a line feed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(f"{row.removesuffix(_ROW_END)}\n".encode("utf-8", "replace"))
