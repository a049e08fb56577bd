"""How often and how long, by minute and by hour: counts, sums and distributions of attempts.

Every column can be merged: the counts of an hour are the sums of those of its minutes, and the distributions
are KLL sketches. One of up to :data:`SKETCH_SIZE` values holds them all; a larger one tells the rank of a
value to within 1.4 % or so, however many are merged.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celeriac.model.states import FAILURE, RETRY, REVOKED, SUCCESS
from celeriac.model.table import TABLES

__all__ = ["SKETCH_SIZE", "by_hour", "by_minute"]

#: The ``k`` of a sketch. What reads sketches must be given the same to merge them without a loss.
SKETCH_SIZE: Final = 200

_KEYS: Final = ("begin_at", "name", "worker", "queue", "day")
_OUTCOMES: Final = {"succeeded": SUCCESS, "failed": FAILURE, "retried": RETRY, "revoked": REVOKED}
_MEASURES: Final = ("wait", "run")
_MINUTE: Final = 60
_HOUR: Final = 3600
#: Microseconds add up to the same sum in every order, which floats do not.
_EXACT: Final = "decimal(26, 6)"


def by_minute(attempts: DataFrame) -> DataFrame:
    """Return the attempts of each minute, task name, worker and queue; a key that is not known is null."""
    told = {"attempts": F.count("*")}
    told |= {name: F.count_if(F.col("outcome") == state) for name, state in _OUTCOMES.items()}
    for name in _MEASURES:
        told |= _measured(name)
    # A group by would sketch in two steps and merge, which most minutes are far too small for: a window has
    # one step. It says the same in every row of a group, and one of them is enough.
    group = Window.partitionBy(*_KEYS)
    rows = attempts.withColumn("begin_at", _begin_of(_MINUTE, "counted_at")).select(
        *_KEYS,
        *(column.over(group).alias(name) for name, column in told.items()),
        F.row_number().over(group.orderBy("begin_at")).alias("place"),
    )
    return _published("rollups_minute", rows.where(F.col("place") == 1))


def by_hour(minutes: DataFrame) -> DataFrame:
    """Return the rows of each hour's minutes merged."""
    told = {name: F.sum(name) for name in ("attempts", *_OUTCOMES)}
    for name in _MEASURES:
        told |= _merged(name)
    hours = minutes.withColumn("begin_at", _begin_of(_HOUR, "begin_at")).groupBy(*_KEYS)
    made = _published("rollups_hour", hours.agg(*(column.alias(name) for name, column in told.items())))
    # Who asks about a name then reads the sketches of that name, and passes over all others.
    return made.sortWithinPartitions("day", "name", "begin_at")


def _begin_of(span: int, moment: str) -> Column:
    return (F.floor(F.col(moment) / span) * span).cast("double")


def _measured(name: str) -> dict[str, Column]:
    value = F.col(name)
    return {
        f"{name}s": F.count(value),
        f"{name}_exact": F.sum(value.cast(_EXACT)),
        f"{name}_max": F.max(value),
        f"{name}_sketch": F.kll_sketch_agg_double(value, SKETCH_SIZE),
    }


def _merged(name: str) -> dict[str, Column]:
    return {
        f"{name}s": F.sum(f"{name}s"),
        f"{name}_exact": F.sum(F.col(f"{name}_sum").cast(_EXACT)),
        f"{name}_max": F.max(f"{name}_max"),
        f"{name}_sketch": F.kll_merge_agg_double(f"{name}_sketch", SKETCH_SIZE),
    }


def _published(table: str, rows: DataFrame) -> DataFrame:
    told = {f"{name}_sum": F.col(f"{name}_exact").cast("double") for name in _MEASURES}
    # Spark gives an empty sketch where there is no value; readers take null for that, as in any column.
    told |= {f"{name}_sketch": F.when(F.col(f"{name}s") > 0, F.col(f"{name}_sketch")) for name in _MEASURES}
    return rows.withColumns(told).select(*(column.name for column in TABLES[table].columns))
