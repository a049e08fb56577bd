"""The events of tasks as the pipeline works with them: normalised, and without what users wrote."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.model.clock import MAX_CLOCK, NO_CLOCK
from celeriac.pipeline.row import moment, row_of

__all__ = ["COLUMNS", "narrow"]

#: The columns of a narrow event, but for its task.
COLUMNS: Final = (
    "type", "at", "clock", "host", "pid", "retries", "name", "queue", "root_id", "parent_id", "runtime",
    "eta_at", "requeue", "row",
)  # fmt: skip
#: A longer run is a mistake, as at the door.
_MAX_RUNTIME: Final = 1e12
#: Spark also reads "12:30" as a moment, of the day that it reads it.
_ISO: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"


def narrow(raw: DataFrame, recorders: Sequence[str]) -> DataFrame:
    """Return the events of tasks among rows of the log; ``recorders`` gives each recorder its code.

    An event without the id of a task, or of a type that says no more than ``task-``, is left out. What
    the door of the recorder would have mended is mended here too: a log may be written by others.
    """
    kind = F.substring(F.col("type"), len("task-") + 1, 2**31 - 1)
    is_sent = F.col("type") == "task-sent"
    is_described = is_sent | (F.col("type") == "task-received")
    is_event = F.col("type").startswith("task-") & (F.length("type") > len("task-"))
    # A moment that nobody knows is 0 here, so that it can be compared.
    at = F.coalesce(moment(F.col("timestamp")), F.lit(0.0))
    return raw.where(is_event & F.col("uuid").isNotNull() & (F.col("uuid") != "")).select(
        "uuid",
        kind.alias("type"),
        at.alias("at"),
        _count(F.col("clock")).alias("clock"),
        F.coalesce(F.col("hostname"), F.lit("")).alias("host"),
        _count(F.col("pid")).alias("pid"),
        F.when(is_described, _count(F.col("retries"))).otherwise(F.lit(0)).cast("bigint").alias("retries"),
        F.when(is_described, F.col("name")).alias("name"),
        F.when(is_sent, F.col("queue")).alias("queue"),
        F.when(is_described & (F.col("root_id") != ""), F.col("root_id")).alias("root_id"),
        F.when(is_described & (F.col("parent_id") != ""), F.col("parent_id")).alias("parent_id"),
        F.when(F.col("type") == "task-succeeded", _runtime(F.col("runtime"))).alias("runtime"),
        F.when(is_described & F.col("eta").rlike(_ISO), _iso(F.col("eta"))).alias("eta_at"),
        F.when(F.col("type") == "task-rejected", F.col("requeue")).alias("requeue"),
        row_of(recorders).alias("row"),
        F.coalesce(moment(F.col("received_at")), at).alias("seen_at"),
    )


def _count(value: Column) -> Column:
    # Clocks, process ids and retries have one range; 0 stands for what is out of it.
    return F.when((value > 0) & (value <= MAX_CLOCK), value).otherwise(F.lit(NO_CLOCK).cast("bigint"))


def _runtime(value: Column) -> Column:
    # The sum makes one zero of the two that doubles have.
    return F.when((value >= 0) & (value <= _MAX_RUNTIME), value + 0.0)


def _iso(value: Column) -> Column:
    return moment(value.try_cast("timestamp").cast("double"))
