"""Every time that a task raised."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celeriac.model.states import FAILURE, RETRY
from celeriac.model.table import TABLES
from celeriac.pipeline.row import day_of, moment, row_of

__all__ = ["MAX_EXCEPTION_CHARS", "failures", "merged"]

#: Enough to tell what was raised and to group by it; the log has the rest.
MAX_EXCEPTION_CHARS: Final = 1000

#: What tells one raise from another, as far as the table has it. The day is among them, so that the
#: rows of a day depend on that day alone: what two recorders got on two sides of a midnight is there twice.
_IDENTITY: Final = ("uuid", "raised_at", "outcome", "worker", "day")


def failures(raw: DataFrame, recorders: Sequence[str]) -> DataFrame:
    """Return one row for each time that a task raised, filed under the day it was recorded.

    Of an event that is in the log more than once the first row speaks. ``raised_at`` is null where the
    worker's clock could not be read. An event without the id of its task is no row here: see ``faults``.
    """
    kind = F.col("type")
    return merged(
        raw.where(kind.isin("task-failed", "task-retried") & (F.col("uuid") != "")).select(
            "uuid",
            moment(F.col("timestamp")).alias("raised_at"),
            F.when(kind == "task-failed", F.lit(FAILURE)).otherwise(F.lit(RETRY)).alias("outcome"),
            F.col("hostname").alias("worker"),
            F.substring(F.col("exception"), 1, MAX_EXCEPTION_CHARS).alias("exception"),
            row_of(recorders).alias("row"),
            day_of(F.col("received_at")).alias("day"),
        )
    )


def merged(failures: DataFrame) -> DataFrame:
    """Return failures of several reads of a log, each once."""
    first = F.min(F.struct("row", "exception"))
    return (
        failures.groupBy(*_IDENTITY)
        .agg(first.alias("first"))
        .select("*", "first.row", "first.exception")
        .select([column.name for column in TABLES["failures"].columns])
    )
