"""What worker processes said of themselves, minute by minute."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.model.table import TABLES
from celeriac.pipeline.row import DAY_SECONDS, day_of, moment

__all__ = ["beats", "merged"]

_MINUTE: Final = 60.0
_KEY: Final = ("worker", "pid", "minute_at", "day")
#: How two values of a column become one. The least and the most only: to take one twice, in any order
#: and from any number of recorders, changes nothing.
_LEAST: Final = ("first_at", "drift_min")
_MOST: Final = ("last_at", "online_at", "offline_at", "freq", "active", "processed", "load", "drift_max")


def beats(raw: DataFrame) -> DataFrame:
    """Return one row for each worker process and minute in which one of its events was received.

    A timestamp that is none, or more than a day after its receipt, says nothing of the sender's clock.
    """
    kind, received_at = F.col("type"), moment(F.col("received_at"))
    sent_at = moment(F.col("timestamp"))
    drift = F.when(sent_at <= received_at + F.lit(DAY_SECONDS), received_at - sent_at)
    is_beat = kind.isin("worker-online", "worker-heartbeat", "worker-offline")
    told = raw.where(is_beat & F.col("hostname").isNotNull() & received_at.isNotNull()).select(
        F.col("hostname").alias("worker"),
        F.coalesce(F.col("pid"), F.lit(0)).alias("pid"),
        (F.floor(received_at / F.lit(_MINUTE)) * F.lit(_MINUTE)).alias("minute_at"),
        received_at.alias("first_at"),
        received_at.alias("last_at"),
        F.when(kind == "worker-online", received_at).alias("online_at"),
        F.when(kind == "worker-offline", received_at).alias("offline_at"),
        _finite(F.col("freq")).alias("freq"),
        "active",
        "processed",
        _finite(F.get(F.col("loadavg"), F.lit(0))).alias("load"),
        drift.alias("drift_min"),
        drift.alias("drift_max"),
        F.nullif(F.concat_ws(" ", "sw_ident", "sw_ver"), F.lit("")).alias("software"),
        day_of(received_at).alias("day"),
    )
    return merged(told)


def merged(beats: DataFrame) -> DataFrame:
    """Return beats of several reads of a log, one row for each process and minute."""
    # Numbers are aggregated by hash, and texts by sorting. A process has one software, so the first step
    # leaves little to sort.
    numbers = beats.groupBy(*_KEY, "software").agg(*_extremes())
    return (
        numbers.groupBy(*_KEY)
        .agg(*_extremes(), F.max("software").alias("software"))
        .select([F.col(column.name).cast(column.type) for column in TABLES["beats"].columns])
    )


def _extremes() -> list[Column]:
    return [F.min(name).alias(name) for name in _LEAST] + [F.max(name).alias(name) for name in _MOST]


def _finite(column: Column) -> Column:
    """Return a number as it is, or null where it is negative or not finite."""
    return F.when((column >= 0) & (column < F.lit(float("inf"))), column)
