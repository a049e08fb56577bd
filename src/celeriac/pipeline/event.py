"""The events of tasks as the pipeline works with them: normalised, and without what users wrote."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.model.clock import MAX_CLOCK, NO_CLOCK
from celeriac.model.events import MAX_TIMESTAMP

__all__ = ["COLUMNS", "ROWS_OF_A_RECORDER", "moment", "narrow"]

#: The columns of a narrow event, but for its task.
COLUMNS: Final = (
    "type", "at", "clock", "host", "pid", "retries", "name", "queue", "root_id", "parent_id", "runtime",
    "eta_at", "requeue", "row",
)  # fmt: skip
#: A reference to a row of the log is the code of its recorder times this, and its sequence number.
ROWS_OF_A_RECORDER: Final = 2**48

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
    at = moment(F.col("timestamp"))
    seen_at = moment(F.col("received_at"))
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
        _reference(recorders).alias("row"),
        F.when(seen_at > 0, seen_at).otherwise(at).alias("seen_at"),
    )


def moment(value: Column) -> Column:
    """Return seconds of the epoch, or 0 where they cannot be: NaN, infinite, negative, absent, past 2100."""
    return F.when((value > 0) & (value < MAX_TIMESTAMP), value).otherwise(F.lit(0.0))


def _count(value: Column) -> Column:
    # Clocks, process ids and retries have one range; 0 stands for what is out of it.
    return F.when((value > 0) & (value <= MAX_CLOCK), value).otherwise(F.lit(NO_CLOCK).cast("bigint"))


def _runtime(value: Column) -> Column:
    # The sum makes one zero of the two that doubles have.
    return F.when((value >= 0) & (value <= _MAX_RUNTIME), value + 0.0)


def _iso(value: Column) -> Column:
    at = moment(value.try_cast("timestamp").cast("double"))
    return F.when(at > 0, at)


def _reference(recorders: Sequence[str]) -> Column:
    """Return what finds the row again, among the rows of all recorders."""
    unknown = F.raise_error(F.concat(F.lit("the manifest names no recorder "), F.col("recorder")))
    code = unknown.cast("bigint")
    for number, recorder in reversed(list(enumerate(recorders))):
        first = F.lit(number * ROWS_OF_A_RECORDER).cast("bigint")
        code = F.when(F.col("recorder") == recorder, first).otherwise(code)
    return code + F.col("sequence")
