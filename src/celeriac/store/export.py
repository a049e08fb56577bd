"""A log, or a part of it, in a form that other programs read. It is as redacted as the log is."""

import re
from collections.abc import Iterator, Sequence
from io import RawIOBase
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from celeriac.errors import CallerError
from celeriac.store.columns import SCHEMA
from celeriac.store.event_log import EventLog, Progress
from celeriac.store.segment import PARQUET
from celeriac.store.spreadsheet import FORMULA_STARTS

__all__ = ["FORMATS", "Format", "export"]

Format = Literal["jsonl", "csv", "parquet"]
FORMATS: Final[tuple[Format, ...]] = ("jsonl", "csv", "parquet")

#: Rows that are written together.
_ROWS: Final = 16_384
_GROUP_ROWS: Final = 100_000
#: Columns that hold JSON.
_JSON: Final = ("rest", "signum")
_FORMULA: Final = f"^[{''.join(map(re.escape, FORMULA_STARTS))}]"
_TEXT: Final = pa.string()


def export(
    log: EventLog,
    form: Format,
    *,
    since: float | None = None,
    until: float | None = None,
    types: Sequence[str] = (),
    task: str | None = None,
    worker: str | None = None,
    progress: Progress | None = None,
) -> Iterator[bytes]:
    """Yield the bytes of one file, as they are made: of JSON lines, CSV or Parquet.

    What is selected is as for :meth:`EventLog.batches`; what could not be read is in ``log.damage``.
    JSON lines leave out what an event does not say. In CSV a text that a spreadsheet would run as a
    formula has an apostrophe before it. Parquet has the columns of a log, in one file.
    """
    writers = {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}
    if form not in writers:
        raise CallerError(f"unknown export format {form!r}: use one of {', '.join(FORMATS)}")
    batches = log.batches(since, until, types, task, worker, progress=progress)
    return writers[form](batches)


def _json_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode_lines
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            yield encode(_rows(batch.slice(start, _ROWS)))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts without what is null."""
    names: list[str] = []
    columns: list[list[Any]] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count == len(column):
            continue
        names.append(name)
        values = column.to_pylist()
        if name in _JSON:
            values = [None if value is None else msgspec.Raw(value.encode()) for value in values]
        columns.append(values)
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _csv(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    header = pa.BufferOutputStream()
    pa_csv.write_csv(_cells(pa.RecordBatch.from_pylist([], schema=SCHEMA)), header)
    yield header.getvalue().to_pybytes()
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            sink = pa.BufferOutputStream()
            pa_csv.write_csv(
                _cells(batch.slice(start, _ROWS)), sink, pa_csv.WriteOptions(include_header=False)
            )
            yield sink.getvalue().to_pybytes()


def _cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as CSV can hold them, and as no spreadsheet runs them."""
    columns: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        cell = column
        if pa.types.is_fixed_size_list(column.type):
            cell = pa.array([None if each is None else str(each) for each in column.to_pylist()], _TEXT)
        # JSON that begins like a formula is a negative number.
        if name not in _JSON and pa.types.is_string(cell.type) and cell.null_count < len(cell):
            is_formula = pc.match_substring_regex(cell, _FORMULA)
            cell = pc.if_else(is_formula, pc.binary_join_element_wise("'", cell, ""), cell)
        columns.append(cell)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class _Outlet(RawIOBase):
    """What is written to it can be taken from it, while the writing goes on."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        part = bytes(content)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _parquet(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    outlet = _Outlet()
    with pq.ParquetWriter(outlet, SCHEMA, **PARQUET) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting, SCHEMA), _GROUP_ROWS)
                waiting = []
                yield outlet.taken()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, SCHEMA), _GROUP_ROWS)
    yield outlet.taken()
