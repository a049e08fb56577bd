"""A table as a Delta table, by delta-rs."""

from typing import Any

from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.history.span import Days
from celeriac.masking import sanitize_place

__all__ = ["write_delta"]


def write_delta(folder: str, reader: Any, *, days: Days) -> int:
    """Write rows as a table at a folder or URL, in the place of those of the same days, by one commit.

    All days are replaced unless some are named, also those that the warehouse has no more.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  (slow to load)
        from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415  (needs the extra)
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError as error:
        raise ImproperlyConfigured(
            f"a Delta table needs {error.name}, which is not installed: pip install 'celeriac[delta]'"
        ) from error
    rows = 0

    def counted() -> Any:
        nonlocal rows
        for batch in reader:
            rows += batch.num_rows
            yield batch

    try:
        is_there = DeltaTable.is_deltatable(folder)
        write_deltalake(
            folder,
            pa.RecordBatchReader.from_batches(reader.schema, counted()),
            mode="overwrite",
            partition_by=["day"],
            predicate=_predicate(days) if is_there else None,
        )
    except (DeltaError, OSError, ValueError) as error:
        raise DiskError(
            f"cannot write the table to {sanitize_place(folder)}: {error}; use another folder, or remove "
            "the existing one"
        ) from None
    return rows


def _predicate(days: Days) -> str | None:
    tests = [f"day {sign} '{day}'" for sign, day in ((">=", days.first), ("<=", days.last)) if day]
    return " AND ".join(tests) or None
