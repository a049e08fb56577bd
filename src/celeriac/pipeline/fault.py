"""Events that could not be used, or only in part."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.model.table import TABLES
from celeriac.pipeline.row import DAY_SECONDS, day_of, moment, row_of
from celeriac.pipeline.schema import LOG

__all__ = ["MAX_TEXT_BYTES", "TEXT_COLUMNS", "faults", "merged"]

#: The door cuts texts far below this, so a longer one is no work of a recorder of ours.
MAX_TEXT_BYTES: Final = 2**20
#: The year 2000: nobody sent events before.
_MIN_TIMESTAMP: Final = 946_684_800.0
#: The columns of the log that hold text of any length.
TEXT_COLUMNS: Final = tuple(field.name for field in LOG if field.dataType.simpleString() == "string")

_TEXTS: Final = {
    "no_id": "task events without a task id: they are in no table of tasks",
    "absurd_time": (
        "events whose timestamp is missing, before 2000, after 2100 or more than a day after their "
        "receipt: they are kept, but times derived from them are wrong"
    ),
    "oversized": (
        "events with a string of more than 1 MiB: they are used, with exceptions shortened, and "
        "arguments, results and tracebacks left out"
    ),
}


def faults(raw: DataFrame, recorders: Sequence[str], *, texts: Sequence[str] = TEXT_COLUMNS) -> DataFrame:
    """Count the events that are wrong in each way, by recorder and the day they were recorded.

    An event that is wrong in two ways counts for both; a row that is given twice counts once. ``texts`` are
    the columns to look at for texts that are too long: who knows better may spare reading some.
    """
    wrong = _wrong(texts)
    found = (
        raw.select("recorder", "sequence", "received_at", row_of(recorders).alias("row"), *_flags(wrong))
        .where(F.array_contains(F.array(*map(F.col, wrong)), F.lit(True)))
        .dropDuplicates(["recorder", "sequence"])
        .select(
            "row",
            F.col("recorder").alias("source"),
            day_of(F.col("received_at")).alias("day"),
            F.explode(
                F.filter(F.array(*[F.when(F.col(kind), F.lit(kind)) for kind in wrong]), _is_there)
            ).alias("kind"),
        )
    )
    return _told(found.groupBy("kind", "source", "day").agg(F.min("row"), F.count(F.lit(1))))


def merged(faults: DataFrame) -> DataFrame:
    """Add up the counts of different rows of a log. Those of the same rows would count twice."""
    return (
        faults.groupBy("kind", "source", "text", "day")
        .agg(F.min("first_row").alias("first_row"), F.sum("rows").alias("rows"))
        .select([column.name for column in TABLES["faults"].columns])
    )


def _wrong(texts: Sequence[str]) -> dict[str, Column]:
    """Return what makes an event wrong, by kind; null counts as not."""
    sent_at = moment(F.col("timestamp"))
    is_late = sent_at > moment(F.col("received_at")) + F.lit(DAY_SECONDS)
    wrong = {
        "no_id": F.col("type").startswith("task-") & (F.coalesce(F.col("uuid"), F.lit("")) == ""),
        "absurd_time": F.coalesce(sent_at < F.lit(_MIN_TIMESTAMP), F.lit(True))
        | F.coalesce(is_late, F.lit(False)),
    }
    if texts:
        wrong["oversized"] = F.greatest(*(_size(name) for name in texts), F.lit(0)) > F.lit(MAX_TEXT_BYTES)
    return wrong


def _flags(wrong: dict[str, Column]) -> list[Column]:
    return [test.alias(kind) for kind, test in wrong.items()]


def _size(name: str) -> Column:
    return F.coalesce(F.octet_length(F.col(name)), F.lit(0))


def _is_there(column: Column) -> Column:
    return column.isNotNull()


def _told(counted: DataFrame) -> DataFrame:
    """Return counts as rows of the table: kind, source, day, first row and number."""
    named = counted.toDF("kind", "source", "day", "first_row", "rows")
    text = F.element_at(
        F.create_map(*(F.lit(each) for pair in _TEXTS.items() for each in pair)), F.col("kind")
    )
    return named.withColumn("text", text).select([column.name for column in TABLES["faults"].columns])
